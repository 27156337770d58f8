"""Late, doubled, out-of-order, old, foreign, unknown or broken answers are written to the history as ignored."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from domain.edge import messages
from domain.edge.messages import CrmRequest, CrmVerb
from domain.model import ActionResult
from domain.wire import companion_id
from providers.edge.jobs import InstanceJobs
from providers.edge.platform import CloudletPlatform
from tests.test_edge.kit import Edge, fault, wait_until_idle, words
from tests.test_edge.test_interpret import by_the_table
from workers.crm import fail_next_request, platform_file

pytestmark = pytest.mark.stores("postgres")

SPECS: dict[str, Any] = {"create": {}, "update": {"nodes": 3}, "delete": None}


async def frozen(edge: Edge, action: str, name: str = "c1") -> Any:
    """An action whose CRM says nothing: its answers are sent by the test."""
    path = edge.at("berlin", name)
    if action != "create":
        edge.set_faults()
        await edge.user.do(path, "create", spec={})
    edge.set_faults(fault("silent"))
    return await edge.begun(path, action, spec=SPECS[action])


async def test_every_kind_of_nonsense_is_ignored_kept_and_harmless(edge: Edge) -> None:
    await edge.up()
    ticket = await frozen(edge, "create")
    path, link = ticket.path, edge.client.get_workflow_handle(ticket.path)
    current = await edge.notify_id()
    await edge.say(path, "Ready", notify_id=current - 1)  # of an old connection
    await edge.say(path, "Ready", notify_id=current + 5)  # of one that never was
    await edge.say(path, "Gone fishing")
    await edge.say(path, "Deleting")
    await edge.say(path, "UpdateError", errors=["not mine"])
    await edge.say(path, "Ready", path="org:other:cloudlet:x:cluster:y")
    await edge.say(path, "Ready", path="../../etc/passwd")
    for raw in (None, 17, "Ready", {"state": "Ready"}, {"notify_id": current}, {"state": "Ready", "notify_id": "x"}):
        await link.signal(messages.CRM_RESPONSE, raw)
    await edge.say(path, "Creating", errors=["x" * 1_500_000])  # as much as Temporal takes
    await edge.until(path, "Creating")
    with pytest.raises((RPCError, ApplicationError), match=r"too many|exceeds|larger"):
        await edge.say(path, "Creating", errors=["x" * 10_000_000])
    await edge.say(path, "Creating")  # once more
    await edge.say(path, "Ready")
    outcome = await edge.end(ticket)
    assert (outcome.result, outcome.status) == (ActionResult.SUCCEEDED, "Ready")
    assert words(await edge.walk(path)) == ["CreateRequested", "Creating", "Ready"]
    kept = "\n".join(await edge.ignored(path))
    for reason in (
        f"notify-id {current - 1} is not the current one, {current}",
        f"notify-id {current + 5} is not the current one",
        "unknown state 'Gone fishing'",
        "no row lets CRM move ClusterInst from CreateRequested to Deleting",
        "it is about org:other:cloudlet:x:cluster:y",
        "not understood: path",
        "not understood: message",
        "not understood: notify_id: Field required",
        "not understood: state: Field required",
        "already Creating",
    ):
        assert reason in kept, f"{reason} not in\n{kept}"
    await edge.at_rest()


@pytest.mark.parametrize("action", ["create", "update", "delete"])
async def test_a_late_answer_opens_no_new_run_and_is_kept_as_ignored(edge: Edge, action: str) -> None:
    await edge.up()
    ticket = await frozen(edge, action)
    last = "NotPresent" if action == "delete" else "Ready"
    await edge.say(ticket.path, last)
    before = await edge.end(ticket)
    runs = await edge.runs(ticket.path)
    with pytest.raises(RPCError) as late:
        await edge.say(ticket.path, "CreateError", errors=["too late"])
    assert late.value.status is RPCStatusCode.NOT_FOUND
    link = edge.client.get_workflow_handle(companion_id(edge.at("berlin"), messages.LINK_ROLE))
    message = {"path": ticket.path, "state": "CreateError", "notify_id": await edge.notify_id(), "errors": ["too late"]}
    await link.signal(messages.CRM_RESPONSE, message)
    line = await edge.until_told(ticket.path, "no action is running on it")
    assert (line.to, line.actor) == ("CreateError", "CRM")
    assert await edge.status(ticket.path) == before.status
    assert await edge.runs(ticket.path) == runs


async def test_an_answer_to_the_link_reaches_the_action_that_awaits_it(edge: Edge) -> None:
    await edge.up()
    ticket = await frozen(edge, "create")
    link = edge.client.get_workflow_handle(companion_id(edge.at("berlin"), messages.LINK_ROLE))
    notify_id = await edge.notify_id()
    await link.signal(messages.CRM_RESPONSE, {"path": ticket.path, "state": "Ready", "notify_id": notify_id})
    assert (await edge.end(ticket)).status == "Ready"
    await link.signal(messages.CRM_RESPONSE, {"path": "org:x:cloudlet:y:cluster:z", "state": "Ready", "notify_id": 1})
    await edge.until_told(edge.at("berlin"), "org:x:cloudlet:y:cluster:z is not on this cloudlet")
    await link.signal(messages.CRM_RESPONSE, "rubbish")
    await edge.until_told(edge.at("berlin"), "not understood")


async def test_a_flood_of_messages_is_counted_not_written_down(edge: Edge) -> None:
    await edge.up()
    ticket = await frozen(edge, "create")
    await asyncio.gather(*(edge.say(ticket.path, "Nonsense", notify_id=1) for _ in range(120)))
    await edge.say(ticket.path, "Ready")
    assert (await edge.end(ticket)).status == "Ready"
    kept = await edge.ignored(ticket.path)
    assert len(kept) == 50
    assert kept[-1].endswith("further ones are not kept")


async def test_a_crm_that_says_everything_twice_is_heard_once(edge: Edge) -> None:
    await edge.up(latency=0.02)
    edge.set_faults(fault("twice"))
    path = edge.at("berlin", "c1")
    for action in ("create", "update", "delete"):
        assert (await edge.user.do(path, action, spec=SPECS[action])).result is ActionResult.SUCCEEDED
    assert words(await edge.walk(path)) == [
        *("CreateRequested", "Creating", "Ready", "UpdateRequested", "Updating", "Ready"),
        *("DeletePrepare", "DeleteRequested", "Deleting", "None"),
    ]
    kept = await edge.ignored(path)
    assert sum("already" in why for why in kept) >= 3, kept  # each of the three intermediate messages came again


SCRIPTS = {
    "create": ("CreateRequested", [["Creating", "Creating", "Ready"], ["Creating", "CreateError", "Ready"]]),
    "update": ("UpdateRequested", [["Updating", "Updating", "Ready"], ["Updating", "UpdateError", "Ready"]]),
    "delete": ("DeleteRequested", [["Deleting", "Deleted", "Deleted"], ["Deleting", "DeleteError", "NotPresent"]]),
}
AFTER_UNDO = {"CreateError": "None", "UpdateError": "Ready", "DeleteError": "Ready"}


@pytest.mark.parametrize("action", SCRIPTS)
async def test_shuffled_and_doubled_messages_end_a_real_action_where_the_table_says(edge: Edge, action: str) -> None:
    """The same property as for the pure function, through signals, workflows and the inventory."""
    await edge.up(cleanup=0.2)
    start, scripts = SCRIPTS[action]

    async def one(seed: int) -> None:
        dice = random.Random(seed)
        script = dice.choice(scripts)
        mixed = script + dice.choices(script, k=2)
        dice.shuffle(mixed)
        path = edge.at("berlin", f"c{seed}")
        if action != "create":
            await edge.user.do(path, "create", spec={"override": "ignore-crm"})
        ticket = await edge.begun(path, action, spec=SPECS[action])
        for state in mixed:
            try:
                await edge.say(path, state, notify_id=notify_id, errors=["no"] if "Error" in state else [])
            except RPCError:  # it has ended: the rest comes too late
                break
        end = by_the_table(start, mixed)
        assert (await edge.end(ticket)).status == AFTER_UNDO.get(end, end), f"seed {seed}: {mixed}"

    notify_id = await edge.notify_id()
    edge.set_faults(fault("silent"))
    await asyncio.gather(*map(one, range(12)))
    await edge.at_rest()


async def test_a_request_that_comes_again_when_it_was_done_is_answered_and_not_done_again(tmp_path: Path) -> None:
    platform, said = CloudletPlatform(tmp_path / "platform.db"), []

    async def say(request: CrmRequest, message: dict[str, Any]) -> None:
        said.append(message["state"])

    works = InstanceJobs(platform, say, latency=0, version="v1")
    path, known = "org:a:cloudlet:b:cluster:c", {"notify_id": 1, "version": "v1", "epoch": 7}
    request = CrmRequest(path=path, verb=CrmVerb.UPDATE, spec={"nodes": 2}, **known)
    for attempt in (1, 1, 2):
        works.start_request_job(request.model_copy(update={"attempt": attempt}))
        await wait_until_idle(works, path)
    assert (platform.list_applied_verbs(path), said) == (["update"], ["Ready"] * 3)
    works.start_request_job(CrmRequest(path=path, verb=CrmVerb.UPDATE, spec={"nodes": 1}, undo=True, **known))
    await wait_until_idle(works, path)
    assert platform.list_applied_verbs(path) == ["update", "update"]
    platform.close()


def test_what_is_to_break_next_breaks_first_and_other_rules_stay(tmp_path: Path) -> None:
    path, cluster = "org:a:cloudlet:b", "org:a:cloudlet:b:cluster:c"
    platform = CloudletPlatform(platform_file(tmp_path, path))
    platform.set_faults([fault("slow", "update"), fault("silent", "delete")])
    fail_next_request(tmp_path, path, "update", "no room")
    met = [platform.take_matching_fault(verb, cluster, "v1") for verb in ("update", "update", "delete")]
    assert [(fault.kind, fault.message) for fault in met if fault] == [
        ("fail", "no room"),
        ("slow", ""),
        ("silent", ""),
    ]
    platform.close()
