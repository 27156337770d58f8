"""The one authorizer: every way in is listed, what is internal is closed, and readers see only what they may."""

from __future__ import annotations

import ast
import asyncio
import uuid
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from pydantic import BaseModel
from temporalio import activity, workflow
from temporalio.client import ActivityFailureError, Client
from temporalio.common import RetryPolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.access import LINES_PER_MINUTE, RefusalLineBudget
from activities.refusals import refusal_of_error
from domain import registry, wire
from domain.access import AccessPolicy
from domain.errors import Category, Refused
from domain.exposure import CallAccess
from domain.healing import SweepOptions
from domain.locks import LocksView
from domain.mci.messages import HOLDING, HoldDecision, SurveyRequest
from domain.model import ObjectsView, ReadQuery, Refusal, Request
from domain.nodecalls import SERVE_NODE_ORDER
from domain.singleorder import ORDER_OBJECT, SETTLE_ORDERED
from domain.waitqueue import QueueCommand
from starter.mci.requests import run_survey, send_decision
from tests.patience import PATIENCE
from tests.test_mci_orphans import late
from tests.tiers import ROOT
from tests.user import User, spec
from workers.families import WORKFLOWS
from workers.service import WorkerService

ACTIVITIES = registry.activity_exposures()
CLOSED = (CallAccess.INTERNAL, CallAccess.LOCAL, CallAccess.RELAYED)


def handlers() -> set[str]:
    """The names of all signals, updates and queries of all workflows."""
    definitions = [workflow._Definition.must_from_class(each) for each in WORKFLOWS]
    return {
        str(name)
        for definition in definitions
        for messages in (definition.signals, definition.updates, definition.queries)
        for name in messages
        if name  # None: whatever no other handler takes, which is recorded as ignored
    }


def test_every_activity_is_classified_and_nothing_else_is(stack: WorkerService) -> None:
    for_families = {ORDER_OBJECT, SETTLE_ORDERED}  # of the kernel, for families with one order per action
    of_real_backends = {SERVE_NODE_ORDER}
    assert {*stack.activity_names(), *for_families, *of_real_backends} == set(ACTIVITIES)


def test_every_message_of_a_workflow_is_classified_and_nothing_else_is() -> None:
    assert handlers() == set(registry.message_exposures())


def test_what_changes_something_is_public_to_nobody() -> None:
    definitions = [workflow._Definition.must_from_class(each) for each in WORKFLOWS]
    changing = {str(name) for definition in definitions for name in {*definition.signals, *definition.updates} if name}
    public = {name for name in changing if registry.message_exposures()[name].access is CallAccess.PUBLIC}
    public |= {name for name, row in ACTIVITIES.items() if row.access is CallAccess.PUBLIC and name[:5] != "read_"}
    assert public == set(), "whoever may write to the namespace can do it, and nobody is asked"


def test_only_workers_change_something_at_temporal_that_is_not_a_start_or_a_message() -> None:
    """What a client asks Temporal for itself is judged by nobody of ours: a worker does it, when it has judged it."""
    setup = {"add_search_attributes", "create_schedule"}  # of `starter setup`, which prepares an empty namespace
    looks = ("describe_", "list_", "get_", "count_")
    for folder in ("starter", "client", "gateway"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                    continue
                called, of = node.func.attr, ast.unparse(node.func.value)
                if of.endswith(("workflow_service", "operator_service")):
                    assert called.startswith(looks) or called in setup, f"{file}: {called}"
                if "handle" in of and "schedule" not in of:
                    assert called not in ("cancel", "terminate", "delete", "pause", "update"), f"{file}: {of}.{called}"


def test_what_is_judged_has_a_verb_and_what_is_not_has_none() -> None:
    for name, row in (ACTIVITIES | registry.message_exposures()).items():
        assert bool(row.verb) is (row.access in (CallAccess.JUDGED, CallAccess.RELAYED)), name


async def call(client: Client, name: str, argument: Any, queue: str = wire.ACTIONS_QUEUE) -> Refusal | None:
    """Calls an activity by hand, as anybody can who may write to the namespace. Returns the refusal."""
    try:
        await client.execute_activity(
            name,
            argument,
            id=f"by-hand-{uuid.uuid4().hex}",
            task_queue=queue,
            schedule_to_close_timeout=timedelta(seconds=PATIENCE),
            retry_policy=RetryPolicy(maximum_attempts=1),
        )
    except ActivityFailureError as failure:
        return refusal_of_error(failure.cause)
    return None


def make_value(hint: Any) -> Any:
    """A valid value of a type: the least that can be sent."""
    if isinstance(hint, type) and (is_dataclass(hint) or issubclass(hint, BaseModel)):
        names = hint.model_fields if issubclass(hint, BaseModel) else {each.name: each for each in fields(hint)}
        hints = get_type_hints(hint)
        return {name: make_value(hints[name]) for name, field in names.items() if is_needed(field)}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return next(iter(hint)).value
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (list, dict, tuple):
        return origin() if origin is not tuple or ... in parts else [make_value(part) for part in parts]
    if origin is not None:
        return make_value(parts[0])
    simple = {int: 1, float: 1.0, bool: False, datetime: "2026-01-01T00:00:00Z", dict: {}, list: []}
    return simple.get(hint, "ns:default:mci:web")


def is_needed(field: Any) -> bool:
    if hasattr(field, "is_required"):
        return bool(field.is_required())
    return field.default is MISSING and field.default_factory is MISSING


def offered(stack: WorkerService) -> Iterator[tuple[str, str, Any]]:
    """Every activity with a queue on which it can be called, and the type of its argument."""
    for queue in stack.queues:
        kernel = stack._kernel_activities() if queue == wire.ACTIONS_QUEUE else [stack._orphans.remove_orphan]
        for each in [*kernel, *stack._activities.get(queue, ())]:
            definition = activity._Definition.must_from_callable(each)
            yield str(definition.name), queue, (definition.arg_types or [str])[0]


async def test_no_internal_activity_can_be_called_from_outside(stack: WorkerService, client: Client) -> None:
    closed = {name: (queue, hint) for name, queue, hint in offered(stack) if ACTIVITIES[name].access in CLOSED}
    assert len(closed) > 45
    for name, (queue, hint) in closed.items():
        refusal = await call(client, name, make_value(hint), queue)
        assert refusal, (name, make_value(hint))
        assert refusal.category is Category.FORBIDDEN, name


@workflow.defn(name="Foreign")
class Foreign:
    """A workflow of somebody else, on a queue of its own."""

    @workflow.run
    async def run(self, name: str, argument: dict[str, Any]) -> None:
        await workflow.execute_activity(
            name, argument, task_queue=wire.ACTIONS_QUEUE, start_to_close_timeout=timedelta(seconds=10)
        )


async def test_no_activity_can_be_called_by_a_foreign_workflow(client: Client) -> None:
    queue = f"foreign-{uuid.uuid4().hex}"
    runner = UnsandboxedWorkflowRunner()
    async with Worker(client, task_queue=queue, workflows=[Foreign], workflow_runner=runner):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - the reason is three causes down
            await client.execute_workflow("Foreign", args=["still_held", {"holders": []}], id=queue, task_queue=queue)
    cause: BaseException | None = caught.value
    while cause and refusal_of_error(cause) is None:
        cause = cause.__cause__
    refusal = refusal_of_error(cause)
    assert refusal
    assert "'Foreign' is no workflow of ours" in refusal.message


POLICY = {
    "roles": {
        "own": {"kinds": ["*"], "actions": ["*"], "paths": ["ns:mine"]},
        "look": {"kinds": ["mci"], "actions": ["read"]},
        "all": {"kinds": ["*"], "actions": ["*"], "force": True},
    },
    "groups": {"crew": {"roles": ["own"], "members": ["mia"]}},
    "users": {"ann": ["own"], "ben": ["look"], "root": ["all"], "dan": ["all"]},
    "deny": [{"who": ["dan"], "actions": ["read", "cancel"], "paths": ["ns:mine:mci:b"], "why": "it is secret"}],
}


@pytest.fixture
def judged(stack: WorkerService, user: User, monkeypatch: pytest.MonkeyPatch) -> User:
    """The stack with a policy; the user is root, and `ns:mine` of the policy is the user's namespace."""
    text = AccessPolicy.model_validate(POLICY).model_dump_json().replace("ns:mine", f"ns:{user.ns}")
    policy = AccessPolicy.model_validate_json(text)
    monkeypatch.setattr(stack.authorizer, "policy", lambda: policy)
    monkeypatch.setattr(stack.refusals, "_lines", RefusalLineBudget(seconds=3600))  # a flood may take over a minute
    return as_user(user, "root")


def as_user(user: User, name: str) -> User:
    return User(user.asking.acting_for(name), user.service, user.ns)


async def listed(user: User, name: str) -> list[str]:
    return [view.path async for view in as_user(user, name).asking.iterate_objects("mci")]


async def test_readers_see_only_what_they_may(judged: User, ns: str) -> None:
    other = User(judged.asking, judged.service, f"{ns}-other")
    for each in (judged.mci("a"), judged.mci("b"), other.mci("c")):
        await judged.do(each, "create", spec=spec(1))
    mine, theirs = [judged.mci("a"), judged.mci("b")], other.mci("c")
    assert await listed(judged, "ann") == mine == await listed(judged, "mia")
    assert {*mine, theirs} <= set(await listed(judged, "root"))
    seen = await listed(judged, "dan")
    assert theirs in seen
    assert mine[0] in seen
    assert mine[1] not in seen
    with pytest.raises(Refused) as refused:
        await listed(judged, "eve")
    assert refused.value.category is Category.FORBIDDEN
    for name, path in (("ann", theirs), ("dan", mine[1]), ("eve", mine[0])):
        for read in (as_user(judged, name).asking.read_object, as_user(judged, name).asking.read_history):
            with pytest.raises(Refused, match=f"{name} may not read {path}") as refused:
                await read(path)
            assert refused.value.category is Category.FORBIDDEN
    vms = {name: [view async for view in as_user(judged, name).asking.iterate_objects("vm")] for name in ("ann", "ben")}
    assert (len(vms["ann"]), vms["ben"]) == (4, [])  # the role of ben is about MCIs only
    locks = await as_user(judged, "ann").asking.run_query(wire.READ_LOCKS, ReadQuery(), LocksView)
    assert all(lock.path.startswith(f"ns:{ns}") for lock in locks.locks)


async def test_a_page_that_hides_something_is_not_taken_for_the_last(judged: User) -> None:
    paths = [judged.mci(name) for name in ("a", "b", "c")]
    for path in paths:
        await judged.do(path, "create", spec=spec(1))
    client, found, after = as_user(judged, "dan").asking, [], ""
    while True:
        query = ReadQuery(kind="mci", path=f"ns:{judged.ns}", after=after, limit=1)
        page = await client.run_query(wire.READ_OBJECTS, query, ObjectsView)
        found += [view.path for view in page.objects]
        if not (after := page.after):
            break
    assert found == [paths[0], paths[2]]


async def test_a_cancel_is_judged_and_leaves_a_name(judged: User) -> None:
    path = judged.mci("b")
    await judged.do(path, "create", spec=spec(1))
    await judged.fault("hang", verb="suspend", seconds=60)
    ticket = await judged.admitted(path, "suspend")
    await judged.until_delayed(judged.vm("aws0-1", "b"))
    for name in ("ben", "dan", "eve"):
        with pytest.raises(Refused, match=f"{name} may not cancel") as refused:
            await as_user(judged, name).asking.cancel_action(path)
        assert refused.value.category is Category.FORBIDDEN
    await as_user(judged, "ann").asking.cancel_action(path, ticket.run)
    await judged.asking.wait_for_outcome(path, ticket.run)
    told = [line.message for line in await judged.asking.read_history(path) if line.action == "cancel"]
    assert [message.partition(" cancel")[0] for message in told[:-1]] == [
        f"refused: {name} may not" for name in ("ben", "dan", "eve")
    ]
    assert told[-1] == "cancel asked for by ann"


async def test_what_was_forbidden_is_in_the_history_with_its_name(judged: User) -> None:
    path = judged.mci("a")
    await judged.do(path, "create", spec=spec(1))
    ticket = await as_user(judged, "ben").ask(path, "suspend")
    assert ticket.admission.refusal
    assert ticket.admission.refusal.category is Category.FORBIDDEN
    line = (await judged.asking.read_history(path))[-1]
    assert (line.action, line.effect) == ("suspend", "ignored")
    assert line.message.startswith(f"refused: ben may not suspend {path}")


async def test_a_hold_is_ended_only_by_those_who_may(judged: User) -> None:
    path = judged.mci("a")
    ticket = await judged.admitted(path, "create", spec={**spec(1), "option": "hold"})
    async with asyncio.timeout(PATIENCE):
        while not (await judged.asking.read_current_step(path)).startswith(HOLDING):
            await asyncio.sleep(0.02)
    for word in ("continue", "withdraw"):
        with pytest.raises(Refused, match=f"ben may not {word}"):
            await send_decision(as_user(judged, "ben").asking, path, word, HoldDecision())
    handle = judged.asking.client.get_workflow_handle(path, run_id=ticket.run)
    await handle.signal("withdraw", HoldDecision(requested_by="ben"))
    await send_decision(as_user(judged, "ann").asking, path, "continue", HoldDecision())
    assert (await judged.asking.wait_for_outcome(path, ticket.run)).status == "Running:2 (R:2/2)"
    told = [line.message for line in await judged.asking.read_history(path)]
    assert any("refused: ben may not withdraw" in message for message in told)


async def test_reconcile_faults_verify_heal_and_queues_are_judged(judged: User) -> None:
    path, ben = judged.mci("a"), as_user(judged, "ben").asking
    await judged.do(path, "create", spec=spec(1))
    await run_survey(ben, SurveyRequest(path=path))  # a refresh is a read
    with pytest.raises(Refused, match="ben may not reconcile"):
        await run_survey(ben, SurveyRequest(path=path, reconcile=True))
    for name, verb, argument in (
        (wire.CLOUD_FAULTS, "inject", {"requested_by": "ben", "faults": []}),
        (wire.VERIFY_ACTIVITY, "verify", {"requested_by": "ben"}),
        (wire.CANCEL_ACTIVITY, "cancel", {"requested_by": "ben", "path": path}),
    ):
        refusal = await call(judged.asking.client, name, argument)
        assert refusal, name
        assert f"ben may not {verb}" in refusal.message
    with pytest.raises(Exception, match="Workflow execution failed"):
        await ben.run_sweep(SweepOptions(limits={"*": 0}))
    assert await judged.service.inventory.read_history("installation:heal", 10), "there is no object to keep it with"
    await ben.run_sweep(SweepOptions(dry_run=True))  # nothing that the schedule would not do
    order = QueueCommand(path=path, run="", at=datetime.now(UTC), requested_by="ben")
    with pytest.raises(Exception, match="Workflow execution failed"):
        await judged.asking.client.execute_workflow(
            wire.DRAIN_QUEUE, order, id=f"{path}::drain", task_queue=wire.ACTIONS_QUEUE
        )


async def test_denied_reads_and_cancels_leave_lines_with_their_names_and_a_flood_leaves_five(judged: User) -> None:
    path = judged.mci("secret")
    await judged.do(path, "create", spec=spec(1))
    before = len(await judged.asking.read_history(path))
    for _ in range(9):
        refusal = await call(judged.asking.client, wire.READ_OBJECT, {"requested_by": "eve", "path": path})
        assert refusal
        assert refusal.category is Category.FORBIDDEN
    told = [(line.action, line.message) for line in (await judged.asking.read_history(path))[before:]]
    assert len(told) == LINES_PER_MINUTE
    assert all(verb == "read" and "refused: eve may not read" in message for verb, message in told), told
    other = judged.mci("other")
    await judged.do(other, "create", spec=spec(1))
    await call(judged.asking.client, wire.CANCEL_ACTIVITY, {"requested_by": "ben", "path": other})
    line = (await judged.asking.read_history(other))[-1]
    assert (line.action, "refused: ben may not cancel" in line.message) == ("cancel", True)
    assert await call(judged.asking.client, wire.READ_OBJECTS, {"requested_by": "eve", "path": "no such path"})


def test_refusals_cannot_fill_the_history() -> None:
    budget = RefusalLineBudget(lines=2, paths=2, seconds=3600)
    assert [budget.try_spend_line("a") for _ in range(3)] == [True, True, False]
    assert [budget.try_spend_line(path) for path in ("b", "c", "b")] == [True, False, True]


@pytest.mark.parametrize("where", [{"csp": "aws", "region": "r1"}, {"connectionName": "aws-eu-west-1"}])
async def test_a_tenant_uses_the_clouds_that_the_policy_lists_and_no_other(judged: User, where: dict[str, str]) -> None:
    policy = judged.service.authorizer.policy()
    assert policy
    allowed = {f"ns:{judged.ns}": ["gcp", "azure/r*"]}
    judged.service.authorizer.policy = lambda: policy.model_copy(update={"connections": allowed})
    own = [{"name": "a", "csp": "gcp", "region": "r1"}, {"name": "b", "csp": "azure", "region": "r2"}]
    refused = await judged.asking.request_action(
        Request(path=judged.mci(), action="create", spec={"subGroups": [*own, {"name": "c", **where}]})
    )
    assert refused.admission.refusal
    assert refused.admission.refusal.category is Category.FORBIDDEN
    assert f"{judged.mci()} may not use aws/" in refused.admission.refusal.message
    assert [view.path async for view in judged.asking.iterate_objects("mci", f"ns:{judged.ns}")] == []
    await judged.do(judged.mci(), "create", spec={"subGroups": own})


async def test_the_clouds_of_a_tenant_are_judged_again_wherever_a_place_comes_in(judged: User) -> None:
    path = judged.mci()
    policy = judged.service.authorizer.policy()
    assert policy
    await judged.do(path, "create", spec=judged.groups("aws", size=1))
    now = policy.model_copy(update={"connections": {f"ns:{judged.ns}": ["gcp"]}})
    judged.service.authorizer.policy = lambda: now  # since then, the tenant has lost aws
    more = {"subGroup": "aws", "count": 1}
    assert f"{path} may not use aws/" in await judged.refused(path, "scale-out", spec=more)
    check = await judged.asking.check_request(Request(path=path, action="scale-out", spec=more))
    assert check.refusal
    assert check.refusal.category is Category.FORBIDDEN
    vm, place = f"{path}:vm:aws-1", wire.make_placement("aws", judged.region())
    await judged.lose(vm)
    await run_survey(judged.asking, SurveyRequest(path=path, reconcile=True))
    orphan = await late(judged, vm, f"{path} late", epoch=(await judged.see(vm)).epoch)
    target = f"{vm}:orphan:{orphan.cloud_id}"
    assert f"{target} may not use aws/" in await judged.refused(target, "adopt", spec={"place": place})
    assert await judged.do(target, "remove", spec={"place": place})  # what is there can still be taken away
    await judged.do(path, "delete")


async def test_a_build_is_promoted_only_by_those_who_may(judged: User) -> None:
    order, client = {"deployment": f"no-such-{judged.ns}", "build": "v1"}, judged.asking.client
    async with judged.service._make_builds_worker():
        refusals = {
            name: await call(client, wire.PROMOTE_BUILD, {**order, "requested_by": name}, wire.BUILDS_QUEUE)
            for name in ("ben", "ann", "root")
        }
    for name in ("ben", "ann"):  # ann may do everything, but only in her namespace
        refusal = refusals[name]
        assert refusal
        assert (refusal.category, f"{name} may not promote" in refusal.message) == (Category.FORBIDDEN, True)
    assert refusals["root"]
    assert refusals["root"].category is Category.NOT_FOUND
    lines = await judged.service.inventory.read_history(f"build:{order['deployment']}", 10)
    assert sorted(line.message[9:28] for line in lines) == ["ann may not promote", "ben may not promote"]
