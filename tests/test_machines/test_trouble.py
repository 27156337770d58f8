"""Failures, cancels, lost answers, terminated workflows, and two hundred users."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from domain.errors import Category
from domain.healing import ANY_ACTION, HealEntry, HealFinding, SweepOptions
from domain.machines import TABLES
from domain.machines.ports import HypervisorOrder
from domain.model import ActionEnding, ActionResult
from tests.patience import PATIENCE
from tests.test_machines.site import MachineSite, left_node

NOW = SweepOptions(limits={ANY_ACTION: 0})


async def swept(site: MachineSite) -> list[HealEntry]:
    report = await site.asking.run_sweep(NOW)
    return [found for found in report.found if site.name in found.path]


@pytest.mark.parametrize(
    ("action", "verb", "back"),
    [("stop", "stop", "RUNNING"), ("delete", "delete", "RUNNING"), ("destroy", "destroy", "RUNNING")],
)
async def test_an_action_that_fails_leads_back_where_it_came_from_here_and_outside(
    site: MachineSite, action: str, verb: str, back: str
) -> None:
    await site.with_machine()
    db = site.machine()
    await site.seed(db, "add-disk", disk="d1")
    await site.fault("fail", db, verb=verb, message="out of order")
    outcome = await site.do(db, action)
    assert (outcome.result, outcome.status) == (ActionResult.FAILED, back)
    assert "out of order" in outcome.message
    view = await site.see(db)
    assert (view.status, "out of order" in view.error) == (back, True)
    await site.heal_faults()
    state = (await site.hypervisor.describe_object(db)).state
    assert state == "running"  # stopped, perhaps in the bin, and brought back


async def test_a_creation_that_fails_leaves_a_record_that_can_be_deployed_again(site: MachineSite) -> None:
    await site.with_machine("other")
    db = site.machine()
    await site.fault("fail", db, verb="create", message="no room", times=1)
    outcome = await site.do(db, "create", image=site.name, node=f"{site.name}-1")
    assert (outcome.result, outcome.status) == (ActionResult.FAILED, "VIRTUAL")
    assert await site.to(db, "deploy") == "RUNNING"
    await site.at_rest()


@pytest.mark.parametrize("action", ["delete", "destroy"])
async def test_what_a_failed_creation_leaves_can_be_removed_without_force(site: MachineSite, action: str) -> None:
    await site.with_machine("other")
    specs: dict[str, dict[str, Any]] = {site.machine(): {"image": site.name}, site.disk(): {}}
    for path, spec in specs.items():
        await site.fault("fail", path, verb="create", times=1)
        assert (await site.do(path, "create", **spec)).result is ActionResult.FAILED
        assert await site.to(path, action) == "DESTROYED"
        assert {"bin", "until"}.isdisjoint((await site.see(path)).info)
    await site.at_rest()


async def test_what_a_failed_creation_made_all_the_same_goes_with_its_record(site: MachineSite) -> None:
    """The answer was lost and the hypervisor did not listen any more: outside, the machine is there."""
    await site.with_machine("other")
    db, spec = site.machine(), {"image": site.name, "memory": 1, "node": f"{site.name}-1"}
    await site.fault("fail", db, verb="create", times=1)
    assert (await site.do(db, "create", **spec)).status == "VIRTUAL"
    await site.hypervisor.perform_order("create", HypervisorOrder(db, "machine", f"{db}, late", spec))
    assert await site.to(db, "delete") == "DESTROYED"
    assert (await site.hypervisor.describe_object(db)).state == "absent"
    await site.at_rest()


@pytest.mark.parametrize("kind", ["lose-answer", "throttle", "unavailable"])
async def test_what_was_not_answered_is_asked_again_and_done_once(site: MachineSite, kind: str) -> None:
    await site.with_machine()
    db = site.machine()
    effects = await site.hypervisor.count_effective_orders(db)
    await site.fault(kind, db, verb="reboot", times=2)
    assert await site.to(db, "reboot") == "RUNNING"
    assert await site.hypervisor.count_effective_orders(db) == effects + 1


async def test_a_cancelled_action_goes_back_here_and_outside(site: MachineSite) -> None:
    await site.with_machine()
    db = site.machine()
    await site.hang(db, "destroy")
    destroy = await site.admitted(db, "destroy")  # stopped and in the bin by the time it hangs
    await site.hanging(db)
    await site.asking.cancel_action(db)
    assert (await site.outcome(destroy)).result is ActionResult.CANCELLED
    assert await site.hypervisor.list_carried_out_verbs(db) == ["create", "stop", "delete", "restore", "start"]
    await site.at_rest()


async def test_a_cancel_that_comes_when_the_end_was_written_undoes_nothing(site: MachineSite) -> None:
    """As after a death between finish and Temporal's hearing of it: the next worker meets the cancel before finish."""
    await site.with_machine()
    db = site.machine()
    await site.hang(db, "delete")
    delete = await site.admitted(db, "delete")
    await site.hanging(db)
    mine = {
        "epoch": (await site.see(db)).epoch,
        "run": (await site.service.inventory.list_locks(db))[0].run,
        "path": db,
    }
    await site.service.inventory.finish_action(
        ActionEnding(**mine, result=ActionResult.SUCCEEDED, at=datetime.now(UTC))
    )
    await site.asking.cancel_action(db)
    outcome = await site.outcome(delete)
    assert (outcome.result, outcome.status) == (ActionResult.SUCCEEDED, "DELETED")
    assert await site.hypervisor.list_carried_out_verbs(db) == ["create", "stop"]


async def test_what_cannot_be_undone_any_more_is_called_what_it_is(site: MachineSite) -> None:
    await site.with_machine()
    db, disk = site.machine(), site.disk()
    await site.seed(db, "add-disk", disk="d1")
    await site.fault("lose-answer", db, verb="destroy")  # done, but nobody hears of it
    destroy = await site.admitted(db, "destroy")
    async with asyncio.timeout(PATIENCE):
        while "destroy" not in await site.hypervisor.list_carried_out_verbs(db):
            await asyncio.sleep(0.02)
    await site.asking.cancel_action(db)
    outcome = await site.outcome(destroy)
    assert (outcome.result, outcome.status) == (ActionResult.CANCELLED, "DESTROYED")
    assert await site.status(disk) == "DESTROYED"
    await site.heal_faults()
    await site.at_rest()


async def test_what_a_creation_made_that_was_cut_off_goes_with_its_record(site: MachineSite) -> None:
    await site.with_machine("other")
    db = site.machine()
    await site.fault("lose-answer", db, verb="create")
    await site.admitted(db, "create", image=site.name, node=f"{site.name}-1")
    async with asyncio.timeout(PATIENCE):
        while "create" not in await site.hypervisor.list_carried_out_verbs(db):
            await asyncio.sleep(0.02)
    await site.asking.client.get_workflow_handle(db).terminate("an operator")
    await swept(site)
    await site.heal_faults()
    assert await site.status(db) == "VIRTUAL"
    assert await site.to(site.account, "destroy", cascade=True) == "DESTROYED"
    assert await site.hypervisor.list_existing_objects(site.account, "") == []
    await site.at_rest()


async def test_a_forced_action_takes_over_a_running_one(site: MachineSite) -> None:
    await site.with_machine()
    db = site.machine()
    await site.hang(db, "pause")
    await site.admitted(db, "pause")
    await site.hanging(db)
    assert await site.to(db, "stop", force=True) == "HALTED"
    await site.at_rest()


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
    site: MachineSite, action: str, hung: str, verb: str, during: str, outside: str
) -> None:
    await site.with_machine()
    db, disk = site.machine(), site.disk()
    await site.seed(db, "add-disk", disk="d1")
    stuck = {"machine": db, "disk": disk}[hung]
    await site.hang(stuck, verb)
    await site.admitted(db, action)
    await site.hanging(stuck)
    [slow] = await swept(site)  # it lives: reported, and left alone
    assert (slow.finding, slow.status, await site.status(db)) == (HealFinding.SLOW, during, during)
    await site.asking.client.get_workflow_handle(db).terminate("an operator, in the Web UI")
    [found] = await swept(site)
    assert (found.path, found.action, found.finding, found.to) == (db, action, HealFinding.HEALED, "RUNNING")
    assert found.provider == outside  # what became of the work is said, not guessed
    assert await site.status(disk) in ("ASSIGNED", "DESTROYED")
    holds = [hold for hold in await site.service.inventory.list_locks() if site.name in hold.path]
    assert holds == []
    assert await swept(site) == []
    await site.heal_faults()
    assert await site.to(db, "destroy") == "DESTROYED"  # and goes on from wherever it was
    await site.at_rest()


async def test_what_a_terminated_creation_left_outside_is_told_and_taken_up_when_asked_for_again(
    site: MachineSite,
) -> None:
    node = await left_node(site)
    [found] = await swept(site)
    assert (found.path, found.finding, found.to, found.provider) == (node, HealFinding.HEALED, "None", "enabled")
    assert await site.to(node, "create", memory=10) == "ENABLED"
    assert (await site.hypervisor.describe_object(node)).state == "enabled"


async def test_a_terminated_migration_is_healed_and_no_status_ever_showed_it(site: MachineSite) -> None:
    await site.with_machine(nodes=2)
    db = site.machine()
    await site.hang(db, "migrate")
    await site.admitted(db, "migrate", node=f"{site.name}-2")
    await site.hanging(db)
    await site.asking.client.get_workflow_handle(f"{db}::migrate").terminate("an operator")
    [found] = await swept(site)
    assert (found.path, found.action, found.finding, found.to) == (db, "migrate", HealFinding.HEALED, "RUNNING")
    await site.at_rest()


async def test_a_terminated_cascade_is_healed_with_everything_that_went_along(site: MachineSite) -> None:
    await site.with_machine("a", "b")
    await site.hang(site.machine("b"), "delete")
    await site.admitted(site.space(), "delete", cascade=True)
    await site.hanging(site.machine("b"))
    await site.asking.client.get_workflow_handle(site.space()).terminate("an operator")
    [found] = await swept(site)
    assert (found.path, found.finding, found.to) == (site.space(), HealFinding.HEALED, "DEPLOYED")
    for name in "ab":
        assert await site.status(site.machine(name)) == "RUNNING"
    await site.heal_faults()
    assert await site.to(site.space(), "delete", cascade=True) == "DELETED"
    await site.at_rest()


ALWAYS_POSSIBLE = ("reboot", "reset", "migrate")  # of a machine that runs, and they leave it running
ANYTHING = (*ALWAYS_POSSIBLE, "start", "pause", "resume", "stop", "delete", "restore")


@pytest.mark.parametrize("actions", [ALWAYS_POSSIBLE, ANYTHING], ids=["always possible", "anything"])
async def test_two_hundred_users_hammer_one_machine(site: MachineSite, actions: tuple[str, ...]) -> None:
    """A request during another action gets a 409; other refusals come only from the state table."""
    await site.with_machine(nodes=2)
    db, table = site.machine(), TABLES["machine"]
    chance = random.Random(7)
    forbidden = {Category.NOT_ALLOWED} if actions is ANYTHING else set()

    async def one(action: str) -> tuple[str, object]:
        await asyncio.sleep(chance.random() * 2)
        ticket = await site.ask(db, action)
        if ticket.admission.refusal:
            return "refused", ticket.admission.refusal
        return "ran", await site.outcome(ticket)

    ends = await asyncio.gather(*(one(chance.choice(actions)) for _ in range(200)))
    refusals = [end for word, end in ends if word == "refused"]
    assert len(refusals) + len([word for word, _ in ends if word == "ran"]) == 200
    assert refusals
    for refusal in refusals:
        assert refusal.category in {Category.CONFLICT, *forbidden}  # type: ignore[attr-defined]
        if refusal.category is Category.CONFLICT:  # type: ignore[attr-defined]
            assert refusal.message.startswith("409 Conflict")  # type: ignore[attr-defined]
    assert await site.status(db) in table.stable_statuses
    lines = [line for line in await site.history(db) if line.action not in table.hidden_actions]
    for earlier, later in pairwise(lines):  # one after the other, never two at once
        assert earlier.to == later.source
    await site.at_rest()
