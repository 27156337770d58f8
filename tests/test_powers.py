"""What Temporal lets everybody do who may write to the namespace: start by a schedule, reset, send once more.

None of it repeats what somebody has signed, and none of it does what nobody has.
"""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, ResetActivityRequest
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionExecutionStartWorkflow,
    ScheduleActionStartWorkflow,
    ScheduleBackfill,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleState,
    WorkflowExecutionStatus,
    WorkflowFailureError,
)

from activities import eviction, proofs
from activities.proofs import ProofSigner, ProofVerifier, ReplayMemory
from activities.refusals import refusal_of_error
from client.actions import ActionClient
from domain import registry, wire
from domain.errors import Category, Refused
from domain.exposure import OWN_ACTION
from domain.healing import ANY_ACTION, HealEntry, HealFinding, SweepOptions
from domain.identities import Identities
from domain.mci.messages import HoldDecision
from domain.model import Refusal, Request
from domain.requests import CancelOrder, EvictRun
from starter.mci.requests import send_decision
from store.identity import mark_restored
from tests.patience import PATIENCE
from tests.stack import opened
from tests.test_access import call
from tests.test_proofs import ANN, ANN_PEM, ATTACKS, EVE, VERIFY, proving, start_by_hand
from tests.test_runs import reset
from tests.test_takeover import stuck
from tests.user import User, spec
from workers.service import WorkerService

__all__ = ["proving"]  # a fixture of theirs
SWEEP = "sweep"
USED = "used before"


async def refusal_of_run(client: Client, workflow_id: str, run: str) -> Refusal | None:
    """The refusal with which a run ends; None if it does its work."""
    cause: BaseException | None = None
    try:
        async with asyncio.timeout(PATIENCE):
            await client.get_workflow_handle(workflow_id, run_id=run).result(follow_runs=False)
    except WorkflowFailureError as failure:
        cause = failure
    while cause and refusal_of_error(cause) is None and (inner := getattr(cause, "cause", None)):
        cause = inner
    assert cause is None or refusal_of_error(cause), cause
    return refusal_of_error(cause)


async def last_run(client: Client, workflow_id: str) -> str:
    return (await client.get_workflow_handle(workflow_id).describe()).run_id


async def until_holding(user: User, run: str) -> None:
    """Until a run on the user's MCI waits for a decision. It must not end."""
    handle = user.asking.client.get_workflow_handle(user.mci(), run_id=run)
    async with asyncio.timeout(PATIENCE):
        while not (seen := await user.asking.try_read_progress(user.mci(), run)) or not seen.step.startswith("holding"):
            assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
            await asyncio.sleep(0.05)


def every_twenty_minutes(kind: str, argument: object, workflow_id: str) -> Schedule:
    """A schedule of somebody who may write to the namespace. It waits to be told, so that a test sees all it starts."""
    return Schedule(
        action=ScheduleActionStartWorkflow(kind, argument, id=workflow_id, task_queue=wire.ACTIONS_QUEUE),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(minutes=20))]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.ALLOW_ALL),
        state=ScheduleState(paused=True),
    )


async def runs_of_schedule(client: Client, schedule: Schedule) -> list[tuple[str, str]]:
    """Lets a schedule start its workflow now, and for the last hour. Returns the IDs and runs of what it started."""
    handle = await client.create_schedule(f"by-hand-{uuid.uuid4().hex}", schedule)
    try:
        now, looks = datetime.now(UTC), count()
        await handle.backfill(ScheduleBackfill(now - timedelta(hours=1), now, overlap=ScheduleOverlapPolicy.ALLOW_ALL))
        async with asyncio.timeout(PATIENCE):
            while len(started := (await handle.describe()).info.recent_actions) < 4:
                if next(looks) % 100 == 0:  # a busy server may have given up a start
                    await handle.trigger(overlap=ScheduleOverlapPolicy.ALLOW_ALL)
                await asyncio.sleep(0.1)
        executions = [each.action for each in started]
        return [
            (execution.workflow_id, execution.first_execution_run_id)
            for execution in executions
            if isinstance(execution, ScheduleActionExecutionStartWorkflow)
        ]
    finally:
        await handle.delete()


async def test_no_schedule_starts_one_of_our_actions_not_even_with_a_good_proof(proving: User, client: Client) -> None:
    """Temporal adds the time to the ID of what a schedule starts, and an action has the ID of its object alone."""
    path = proving.mci()
    await proving.do(path, "create", spec=spec(1, ["aws"]))
    before = await proving.history(path)
    paper = ANN.sign(Request(path=path, action="suspend"), OWN_ACTION)
    kind = registry.verb_of(paper).workflow
    for workflow_id, run in await runs_of_schedule(client, every_twenty_minutes(kind, paper, path)):
        refusal = await refusal_of_run(client, workflow_id, run)
        assert refusal, workflow_id
        assert "the workflow ID must be the object's path" in refusal.message
    assert await proving.history(path) == before
    assert await start_by_hand(client, paper) == "", "its proof is unused"


async def test_a_signed_sweep_is_good_for_one_run_however_it_is_repeated(
    proving: User, client: Client, stack: WorkerService
) -> None:
    """By another start, by a schedule, by a reset, on another worker."""
    order = ANN.sign(SweepOptions(dry_run=True, limits={ANY_ACTION: 86_400}), SWEEP)
    first = f"sweep-{uuid.uuid4().hex}"
    await client.execute_workflow(wire.HEAL_WORKFLOW, order, id=first, task_queue=wire.ACTIONS_QUEUE)

    async def again() -> list[tuple[str, str]]:
        other = f"sweep-{uuid.uuid4().hex}"
        await client.start_workflow(wire.HEAL_WORKFLOW, order, id=other, task_queue=wire.ACTIONS_QUEUE)
        return [(other, await last_run(client, other))]

    async def by_reset() -> list[tuple[str, str]]:
        return [(first, await reset(client, first, await last_run(client, first), 0))]

    async def by_schedule() -> list[tuple[str, str]]:
        other = f"sweep-{uuid.uuid4().hex}"
        return await runs_of_schedule(client, every_twenty_minutes(wire.HEAL_WORKFLOW, order, other))

    for repeat in (again, by_reset, by_schedule):
        for memory in (stack.authorizer.replays, ReplayMemory()):  # that of another worker remembers nothing
            stack.authorizer.replays = memory
            for workflow_id, run in await repeat():
                refusal = await refusal_of_run(client, workflow_id, run)
                assert refusal, (repeat.__name__, "it swept once more")
                assert (refusal.category, USED in refusal.message) == (Category.FORBIDDEN, True), refusal


async def test_a_signed_cancel_is_good_for_one_call_of_all_workers(
    proving: User, client: Client, stack: WorkerService, patient: None
) -> None:
    path, vm = proving.mci(), proving.vm("aws0-1")
    await proving.do(path, "create", spec=spec(1, ["aws"]))
    await proving.fault("hang", verb="suspend", seconds=600)
    await proving.fault("hang", verb="reboot", seconds=600)
    first = await proving.admitted(path, "suspend")
    await proving.until_delayed(vm)
    order = ANN.sign(CancelOrder(path=path), wire.CANCEL_ACTIVITY)
    assert await call(client, wire.CANCEL_ACTIVITY, order) is None
    await proving.asking.wait_for_outcome(path, first.run)
    later = await proving.admitted(path, "reboot")
    for memory in (stack.authorizer.replays, ReplayMemory()):  # that of another worker remembers nothing
        stack.authorizer.replays = memory
        refusal = await call(client, wire.CANCEL_ACTIVITY, order)
        assert refusal, "it cancelled what somebody asked for later"
        assert (refusal.category, USED in refusal.message) == (Category.FORBIDDEN, True), refusal
    run = client.get_workflow_handle(path, run_id=later.run)
    assert (await run.describe()).status is WorkflowExecutionStatus.RUNNING
    await proving.asking.cancel_action(path)
    await proving.asking.wait_for_outcome(path, later.run)


async def test_a_forced_request_that_was_used_ends_no_later_run(
    proving: User, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else with a proof of their own has it ended for what ann signed before: it is good once."""
    monkeypatch.setattr(eviction, "GRACE_SECONDS", 0.1)
    path = proving.mci()
    await proving.do(path, "create", spec=spec(1, ["aws"]))
    paper = ANN.sign(Request(path=path, action="reboot", force=True), OWN_ACTION)
    assert await start_by_hand(client, paper) == ""
    run = await stuck(proving)
    order = EVE.sign(EvictRun(request=paper, run=run.run_id or ""), wire.MAKE_WAY_ACTIVITY)
    refusal = await call(client, wire.MAKE_WAY_ACTIVITY, order)
    assert refusal, "it was ended"
    assert (refusal.category, USED in refusal.message) == (Category.FORBIDDEN, True), refusal
    assert (await run.describe()).status is WorkflowExecutionStatus.RUNNING
    await run.terminate(reason="the test is over")


async def test_a_request_that_was_refused_is_not_carried_out_by_a_reset(proving: User, client: Client) -> None:
    """Its sender was told no. Whoever resets its run when it would be allowed must not change that."""
    path = proving.mci()
    await proving.do(path, "create", spec=spec(1, ["aws"]))
    paper = ANN.sign(Request(path=path, action="resume"), OWN_ACTION)
    assert "not allowed" in await start_by_hand(client, paper)
    refused = await last_run(client, path)
    await proving.do(path, "suspend")
    refusal = await refusal_of_run(client, path, await reset(client, path, refused, 0))
    assert refusal, "it was carried out"
    assert USED in refusal.message
    assert (await proving.see(path)).status.startswith("Suspended")


async def test_whatever_is_wrong_with_a_proof_its_refusal_is_in_the_audit_trail(proving: User, client: Client) -> None:
    path = proving.mci()
    await proving.do(path, "create", spec=spec(1, ["aws"]))
    request = Request(path=path, action="reboot")
    used = ANN.sign(request, OWN_ACTION)
    assert await start_by_hand(client, used) == ""
    papers = {
        USED: used,
        "not what was signed": ANN.sign(request, OWN_ACTION).model_copy(update={"action": "terminate"}),
        "has expired": ProofSigner(ANN_PEM, "ann", "default", -60).sign(request, OWN_ACTION),
        "for the namespace": ProofSigner(ANN_PEM, "ann", "other").sign(request, OWN_ACTION),
    }
    for why, paper in papers.items():
        assert why in await start_by_hand(client, paper)
    lines = [line.message for line in await proving.history(path) if line.message.startswith("refused: ")]
    assert [why for why in papers if not any(why in line for line in lines)] == []


def test_a_wrong_proof_is_refused_before_what_it_came_with_is_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large spec that nobody has signed costs nothing."""
    wrong = ("unsigned", "junk", "unknown key", "claims changed", "expired", "another namespace", "another name")
    papers = [(ATTACKS[attack][0](), ATTACKS[attack][1]) for attack in wrong]

    def fail(*_given: object) -> None:
        raise AssertionError("it was hashed")

    monkeypatch.setattr(proofs, "message_digest", fail)
    for paper, why in papers:
        with pytest.raises(Refused, match=why):
            VERIFY(paper, OWN_ACTION, None)


@pytest.mark.parametrize("task", [0, -1], ids=["to its first task", "to its last task"])
async def test_a_reset_of_an_action_that_has_ended_gives_no_order_and_writes_nothing(
    proving: User, client: Client, task: int
) -> None:
    path = proving.mci()
    await proving.do(path, "create", spec=spec(1, ["aws"]))
    await proving.do(path, "suspend")
    ended = await last_run(client, path)
    await proving.do(path, "resume")
    before = await proving.history(path), await proving.history(proving.vm("aws0-1")), await proving.books()
    assert await refusal_of_run(client, path, await reset(client, path, ended, task)) is None
    assert (await proving.history(path), await proving.history(proving.vm("aws0-1")), await proving.books()) == before


async def test_an_action_that_was_admitted_goes_on_after_a_reset_although_its_proof_is_good_no_more(
    proving: User, client: Client, stack: WorkerService
) -> None:
    path = proving.mci()
    ticket = await proving.admitted(path, "create", spec=proving.groups(option="hold"))
    await proving.until_status(path, "Prepared")
    known = stack.authorizer.identify
    stack.authorizer.identify = ProofVerifier(Identities, client.namespace)  # as if it had expired
    await until_holding(proving, await reset(client, path, ticket.run, 0))
    stack.authorizer.identify = known
    await send_decision(proving.asking, path, "withdraw", HoldDecision())
    assert (await proving.asking.wait_for_outcome(path, ticket.run)).status == "None"


async def test_an_activity_that_somebody_resets_while_it_calls_has_one_effect(
    proving: User, client: Client, patient: None
) -> None:
    path, vm = proving.mci(), proving.vm("aws0-1")
    await proving.do(path, "create", spec=spec(1, ["aws"]))
    effects = (await proving.books())[vm][0].effects
    await proving.fault("hang", verb="reboot", seconds=600)
    ticket = await proving.admitted(path, "reboot")
    await proving.until_delayed(vm)
    run = client.get_workflow_handle(path, run_id=ticket.run)
    [pending] = (await run.describe()).raw_description.pending_activities
    await client.workflow_service.reset_activity(
        ResetActivityRequest(
            namespace=client.namespace,
            execution=WorkflowExecution(workflow_id=path, run_id=ticket.run),
            id=pending.activity_id,
            reset_heartbeat=True,
        )
    )
    await proving.heal_faults()
    assert (await proving.asking.wait_for_outcome(path, ticket.run)).result == "succeeded"
    assert (await proving.books())[vm][0].effects == effects + 1


async def test_nobody_answers_nexus_operations_on_our_queues(client: Client, stack: WorkerService) -> None:
    """An endpoint may lead to any queue of the namespace: what comes over it reaches no code of ours."""
    for queue in stack.queues:
        asked = DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_NEXUS,
        )
        assert not (await client.workflow_service.describe_task_queue(asked)).pollers, queue


async def test_a_run_that_was_reset_before_a_restore_is_cancelled_by_the_next_sweep(tmp_path: Path) -> None:
    """The store knows it under its first run, which the restore has ended. It would wait for a message for ever."""
    async with opened(tmp_path) as site, asyncio.timeout(2 * PATIENCE):
        user = User(ActionClient(site.client), site.stack, "t1")
        path, inventory = user.mci(), site.stack.inventory
        ticket = await user.admitted(path, "create", spec=user.groups(option="hold"))
        await user.until_status(path, "Prepared")
        later = await reset(site.client, path, ticket.run, 0)
        await until_holding(user, later)
        await site.stack.database.run_transaction(partial(mark_restored, hooks=inventory.hooks))
        found: list[HealEntry] = []
        while not found:  # Temporal lists a run a moment after it began
            found = [entry for entry in (await user.asking.run_sweep(SweepOptions())).found if entry.run == later]
        assert [(entry.path, entry.finding) for entry in found] == [(path, HealFinding.CANCELLED)]
        with pytest.raises(WorkflowFailureError):
            await site.client.get_workflow_handle(path, run_id=later).result()
        assert (await user.do(path, "delete")).result == "succeeded"
