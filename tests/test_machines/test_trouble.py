"""When things go wrong: failures, cancels, lost answers, workflows terminated from outside, and two hundred users."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from domain.errors import Category
from domain.healing import ANY, Finding, Found, Sweep
from domain.machines import TABLES
from domain.machines.port import Order
from domain.model import Ending, Result
from tests.patience import PATIENCE
from tests.test_machines.estate import Estate, left_node

NOW = Sweep(limits={ANY: 0})


async def swept(estate: Estate) -> list[Found]:
    report = await estate.asking.heal(NOW)
    return [found for found in report.found if estate.name in found.path]


@pytest.mark.parametrize(
    ("action", "verb", "back"),
    [("stop", "stop", "RUNNING"), ("delete", "delete", "RUNNING"), ("destroy", "destroy", "RUNNING")],
)
async def test_an_action_that_fails_leads_back_where_it_came_from_here_and_outside(
    estate: Estate, action: str, verb: str, back: str
) -> None:
    await estate.with_machine()
    db = estate.machine()
    await estate.seed(db, "add-disk", disk="d1")
    await estate.fault("fail", db, verb=verb, message="out of order")
    outcome = await estate.do(db, action)
    assert (outcome.result, outcome.status) == (Result.FAILED, back)
    assert "out of order" in outcome.message
    view = await estate.see(db)
    assert (view.status, "out of order" in view.error) == (back, True)
    await estate.heal_faults()
    state = (await estate.hypervisor.describe(db)).state
    assert state == "running"  # stopped, perhaps in the bin, and brought back


async def test_a_creation_that_fails_leaves_a_record_that_can_be_deployed_again(estate: Estate) -> None:
    await estate.with_machine("other")
    db = estate.machine()
    await estate.fault("fail", db, verb="create", message="no room", times=1)
    outcome = await estate.do(db, "create", image=estate.name, node=f"{estate.name}-1")
    assert (outcome.result, outcome.status) == (Result.FAILED, "VIRTUAL")
    assert await estate.to(db, "deploy") == "RUNNING"
    await estate.at_rest()


@pytest.mark.parametrize("action", ["delete", "destroy"])
async def test_what_a_failed_creation_leaves_can_be_removed_without_force(estate: Estate, action: str) -> None:
    await estate.with_machine("other")
    specs: dict[str, dict[str, Any]] = {estate.machine(): {"image": estate.name}, estate.disk(): {}}
    for path, spec in specs.items():
        await estate.fault("fail", path, verb="create", times=1)
        assert (await estate.do(path, "create", **spec)).result is Result.FAILED
        assert await estate.to(path, action) == "DESTROYED"
        assert {"bin", "until"}.isdisjoint((await estate.see(path)).info)
    await estate.at_rest()


async def test_what_a_failed_creation_made_all_the_same_goes_with_its_record(estate: Estate) -> None:
    """The answer was lost and the hypervisor did not listen any more: outside, the machine is there."""
    await estate.with_machine("other")
    db, spec = estate.machine(), {"image": estate.name, "memory": 1, "node": f"{estate.name}-1"}
    await estate.fault("fail", db, verb="create", times=1)
    assert (await estate.do(db, "create", **spec)).status == "VIRTUAL"
    await estate.hypervisor.perform("create", Order(db, "machine", f"{db}, late", spec))
    assert await estate.to(db, "delete") == "DESTROYED"
    assert (await estate.hypervisor.describe(db)).state == "absent"
    await estate.at_rest()


@pytest.mark.parametrize("kind", ["lose-answer", "throttle", "unavailable"])
async def test_what_was_not_answered_is_asked_again_and_done_once(estate: Estate, kind: str) -> None:
    await estate.with_machine()
    db = estate.machine()
    effects = await estate.hypervisor.effects(db)
    await estate.fault(kind, db, verb="reboot", times=2)
    assert await estate.to(db, "reboot") == "RUNNING"
    assert await estate.hypervisor.effects(db) == effects + 1


async def test_a_cancelled_action_goes_back_here_and_outside(estate: Estate) -> None:
    await estate.with_machine()
    db = estate.machine()
    await estate.hang(db, "destroy")
    destroy = await estate.admitted(db, "destroy")  # stopped and in the bin by the time it hangs
    await estate.hanging(db)
    await estate.asking.cancel(db)
    assert (await estate.outcome(destroy)).result is Result.CANCELLED
    assert await estate.hypervisor.told(db) == ["create", "stop", "delete", "restore", "start"]
    await estate.at_rest()


async def test_a_cancel_that_comes_when_the_end_was_written_undoes_nothing(estate: Estate) -> None:
    """As after a death between finish and Temporal's hearing of it: the next worker meets the cancel before finish."""
    await estate.with_machine()
    db = estate.machine()
    await estate.hang(db, "delete")
    delete = await estate.admitted(db, "delete")
    await estate.hanging(db)
    mine = {"epoch": (await estate.see(db)).epoch, "run": (await estate.service.inventory.holds(db))[0].run, "path": db}
    await estate.service.inventory.finish(Ending(**mine, result=Result.SUCCEEDED, at=datetime.now(UTC)))
    await estate.asking.cancel(db)
    outcome = await estate.outcome(delete)
    assert (outcome.result, outcome.status) == (Result.SUCCEEDED, "DELETED")
    assert await estate.hypervisor.told(db) == ["create", "stop"]


async def test_what_cannot_be_undone_any_more_is_called_what_it_is(estate: Estate) -> None:
    await estate.with_machine()
    db, disk = estate.machine(), estate.disk()
    await estate.seed(db, "add-disk", disk="d1")
    await estate.fault("lose-answer", db, verb="destroy")  # done, but nobody hears of it
    destroy = await estate.admitted(db, "destroy")
    async with asyncio.timeout(PATIENCE):
        while "destroy" not in await estate.hypervisor.told(db):
            await asyncio.sleep(0.02)
    await estate.asking.cancel(db)
    outcome = await estate.outcome(destroy)
    assert (outcome.result, outcome.status) == (Result.CANCELLED, "DESTROYED")
    assert await estate.status(disk) == "DESTROYED"
    await estate.heal_faults()
    await estate.at_rest()


async def test_what_a_creation_made_that_was_cut_off_goes_with_its_record(estate: Estate) -> None:
    await estate.with_machine("other")
    db = estate.machine()
    await estate.fault("lose-answer", db, verb="create")
    await estate.admitted(db, "create", image=estate.name, node=f"{estate.name}-1")
    async with asyncio.timeout(PATIENCE):
        while "create" not in await estate.hypervisor.told(db):
            await asyncio.sleep(0.02)
    await estate.asking.client.get_workflow_handle(db).terminate("an operator")
    await swept(estate)
    await estate.heal_faults()
    assert await estate.status(db) == "VIRTUAL"
    assert await estate.to(estate.account, "destroy", cascade=True) == "DESTROYED"
    assert await estate.hypervisor.below(estate.account) == []
    await estate.at_rest()


async def test_a_forced_action_takes_over_a_running_one(estate: Estate) -> None:
    await estate.with_machine()
    db = estate.machine()
    await estate.hang(db, "pause")
    await estate.admitted(db, "pause")
    await estate.hanging(db)
    assert await estate.to(db, "stop", force=True) == "HALTED"
    await estate.at_rest()


# An operator terminates the workflow in the Web UI, at each step of an action.


@pytest.mark.parametrize(
    ("action", "hung", "verb", "during", "outside"),
    [
        ("stop", "machine", "stop", "STOPPING", "running"),
        ("destroy", "machine", "stop", "DESTROYING", "running"),
        ("destroy", "disk", "detach", "DESTROYING", "stopped, not running"),
        ("destroy", "machine", "delete", "DESTROYING", "stopped, not running"),
        ("destroy", "machine", "destroy", "DESTROYING", "binned, not running"),
    ],
)
async def test_an_action_terminated_at_any_step_is_healed_and_reported(
    estate: Estate, action: str, hung: str, verb: str, during: str, outside: str
) -> None:
    await estate.with_machine()
    db, disk = estate.machine(), estate.disk()
    await estate.seed(db, "add-disk", disk="d1")
    stuck = {"machine": db, "disk": disk}[hung]
    await estate.hang(stuck, verb)
    await estate.admitted(db, action)
    await estate.hanging(stuck)
    [slow] = await swept(estate)  # it lives: reported, and left alone
    assert (slow.finding, slow.status, await estate.status(db)) == (Finding.SLOW, during, during)
    await estate.asking.client.get_workflow_handle(db).terminate("an operator, in the Web UI")
    [found] = await swept(estate)
    assert (found.path, found.action, found.finding, found.to) == (db, action, Finding.HEALED, "RUNNING")
    assert found.provider == outside  # what became of the work is said, not guessed
    assert await estate.status(disk) in ("ASSIGNED", "DESTROYED")
    holds = [hold for hold in await estate.service.inventory.holds() if estate.name in hold.path]
    assert holds == []
    assert await swept(estate) == []
    assert await estate.to(db, "destroy") == "DESTROYED"  # and goes on from wherever it was
    await estate.at_rest()


async def test_what_a_terminated_creation_left_outside_is_told_and_taken_up_when_asked_for_again(
    estate: Estate,
) -> None:
    node = await left_node(estate)
    [found] = await swept(estate)
    assert (found.path, found.finding, found.to, found.provider) == (node, Finding.HEALED, "None", "enabled")
    assert await estate.to(node, "create", memory=10) == "ENABLED"
    assert (await estate.hypervisor.describe(node)).state == "enabled"


async def test_a_terminated_migration_is_healed_and_no_status_ever_showed_it(estate: Estate) -> None:
    await estate.with_machine(nodes=2)
    db = estate.machine()
    await estate.hang(db, "migrate")
    await estate.admitted(db, "migrate", node=f"{estate.name}-2")
    await estate.hanging(db)
    await estate.asking.client.get_workflow_handle(f"{db}::migrate").terminate("an operator")
    [found] = await swept(estate)
    assert (found.path, found.action, found.finding, found.to) == (db, "migrate", Finding.HEALED, "RUNNING")
    await estate.at_rest()


async def test_a_terminated_cascade_is_healed_with_everything_that_went_along(estate: Estate) -> None:
    await estate.with_machine("a", "b")
    await estate.hang(estate.machine("b"), "delete")
    await estate.admitted(estate.space(), "delete", cascade=True)
    await estate.hanging(estate.machine("b"))
    await estate.asking.client.get_workflow_handle(estate.space()).terminate("an operator")
    [found] = await swept(estate)
    assert (found.path, found.finding, found.to) == (estate.space(), Finding.HEALED, "DEPLOYED")
    for name in "ab":
        assert await estate.status(estate.machine(name)) == "RUNNING"
    assert await estate.to(estate.space(), "delete", cascade=True) == "DELETED"
    await estate.at_rest()


ALWAYS_POSSIBLE = ("reboot", "reset", "migrate")  # of a machine that runs, and they leave it running
ANYTHING = (*ALWAYS_POSSIBLE, "start", "pause", "resume", "stop", "delete", "restore")


@pytest.mark.parametrize("actions", [ALWAYS_POSSIBLE, ANYTHING], ids=["always possible", "anything"])
async def test_two_hundred_users_hammer_one_machine(estate: Estate, actions: tuple[str, ...]) -> None:
    """Whoever comes while another acts gets a 409; only what the table forbids at that moment is refused otherwise."""
    await estate.with_machine(nodes=2)
    db, table = estate.machine(), TABLES["machine"]
    chance = random.Random(7)
    forbidden = {Category.NOT_ALLOWED} if actions is ANYTHING else set()

    async def one(action: str) -> tuple[str, object]:
        await asyncio.sleep(chance.random() * 2)
        ticket = await estate.ask(db, action)
        if ticket.admission.refusal:
            return "refused", ticket.admission.refusal
        return "ran", await estate.outcome(ticket)

    ends = await asyncio.gather(*(one(chance.choice(actions)) for _ in range(200)))
    refusals = [end for word, end in ends if word == "refused"]
    assert len(refusals) + len([word for word, _ in ends if word == "ran"]) == 200
    assert refusals
    for refusal in refusals:
        assert refusal.category in {Category.CONFLICT, *forbidden}  # type: ignore[attr-defined]
        if refusal.category is Category.CONFLICT:  # type: ignore[attr-defined]
            assert refusal.message.startswith("409 Conflict")  # type: ignore[attr-defined]
    assert await estate.status(db) in table.stable
    lines = [line for line in await estate.history(db) if line.action not in table.hidden]
    for earlier, later in pairwise(lines):  # one after the other, never two at once
        assert earlier.to == later.source
    await estate.at_rest()
