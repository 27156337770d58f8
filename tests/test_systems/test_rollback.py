"""Deploys that are cut off in the middle: the records say what the backend has, whichever step it was."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest
from temporalio import activity
from temporalio.exceptions import ApplicationError

from domain.model import ActionResult, Step, StepResult
from domain.services.rollout import ServiceFacts
from domain.statetable import NONE
from providers.services.supervisor import _ChangeFeed
from tests.patience import PATIENCE, progress_of, within
from tests.test_systems.kit import RUN, Shop, growing, service, system
from workflows import summary

pytestmark = pytest.mark.stores("postgres")

TREE = system(system(service("b"), service("bc"), service("c"), name="a"))
TWO = {**RUN, "command": ["two"]}
NEVER = {"environment": {"SIMULATED": "unhealthy"}}
CRASH = {"environment": {"SIMULATED": "crash"}}


async def rolled_out_services(shop: Shop) -> set[str]:
    return {facts.path for facts in await shop.supervisor.describe_services(shop.path) if facts.is_rolled_out()}


@pytest.mark.parametrize("cancelled", [False, True])
async def test_what_was_removed_before_the_rollback_runs_again_after_it(shop: Shop, cancelled: bool) -> None:
    """Of two services that the new definition has no more, one is gone and one does not go: the rollback is due."""

    async def one_is_gone() -> bool:
        there = {facts.path for facts in await shop.supervisor.describe_services(shop.path)}
        return shop.at("/a/bc") not in there or running.done()

    async def former_is_back() -> bool:
        return (await shop.see("/a/b")).spec == former

    for deadline in [PATIENCE] if cancelled else growing(4):
        await shop.deploy("/", TREE)
        former = (await shop.see("/a/b")).spec
        shop.hold("/a/c")
        running = await shop.begin("/a", system({"name": "b", **TWO}), deadline=deadline, rollback=True)
        await shop.until(one_is_gone)
        if cancelled:
            await shop.asking.cancel_action(shop.at("/a"))
        await shop.until(former_is_back)
        shop.let_go()
        outcome = await running
        if "instance left" in outcome.message and "could not be rolled back" not in outcome.message:  # both in time
            break
    assert outcome.result is (ActionResult.CANCELLED if cancelled else ActionResult.FAILED)
    assert "rolled back to the former definition" in outcome.message
    assert cancelled or "/a/c has 1 instance left" in outcome.message
    assert set((await shop.states()).values()) == {"stable"}
    assert await rolled_out_services(shop) == {shop.at(tree) for tree in ("/a/b", "/a/bc", "/a/c")}


async def test_a_rollback_whose_deadline_passes_while_parts_are_removed_leaves_the_truth(shop: Shop) -> None:
    """The rollback removes two new services; one of them does not go in time."""
    tree = system(service("b", **NEVER), service("bc"), service("c"), service("quick"), service("slow"))

    async def too_late() -> bool:
        progress = await progress_of(shop.asking, shop.at("/a"))
        return running.done() or progress.step.startswith("finding out")

    for deadline in growing(1):
        await shop.deploy("/", TREE)
        shop.hold("/a/slow")
        running = await shop.begin("/a", tree, deadline=deadline, rollback=True)
        await shop.until(too_late)
        if not running.done():  # else the deadline passed before anything was started
            break
    shop.let_go()
    outcome = await running
    assert (outcome.result, outcome.status) == (ActionResult.FAILED, "stable")
    assert "could not be rolled back" in outcome.message
    assert sorted(await shop.states()) == ["/", "/a", "/a/b", "/a/bc", "/a/c"]


async def test_a_deploy_whose_removals_were_written_before_its_deadline_passed_is_done(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker may die between the last write of the roll-out and its answer: what is gone needs no rollback."""
    inventory = shop.service.inventory
    advance, written = inventory.apply_step, asyncio.Event()

    async def write_and_hang(step: Step) -> StepResult:
        stepped = await advance(step)
        if step.path == shop.at("/a") and any(move.to == NONE for move in step.moves):
            written.set()
            await asyncio.Event().wait()  # until it is told that it is too late
        return stepped

    monkeypatch.setattr(inventory, "apply_step", write_and_hang)
    for deadline in growing(4):
        await shop.deploy("/", TREE)
        outcome = await shop.deploy("/a", system({"name": "b", **TWO}), deadline=deadline, rollback=True)
        if written.is_set():
            break
    name = f"d{len(await shop.records())}"
    assert (outcome.result, outcome.message) == (ActionResult.SUCCEEDED, f"{name}: 1 service rolled out")
    assert await shop.states() == {"/": "stable", "/a": "stable", "/a/b": "stable"}


async def test_a_service_that_never_started_and_is_deployed_again_in_vain_has_failed(shop: Shop) -> None:
    waiting = system(service("first", **NEVER), service("second", after=["first"]))
    for _ in range(2):
        assert (await shop.deploy("/a", waiting, deadline=0.7)).result is ActionResult.FAILED
        assert (await shop.states())["/a/second"] == "failed"
        assert "never started" in (await shop.see("/a/second")).error
        await shop.all_promises_are_kept()


async def test_a_system_that_becomes_a_service_and_never_starts_has_failed(shop: Shop) -> None:
    await shop.deploy("/", system(system(service("first"), system(service("x"), name="second"), name="a")))
    waiting = system(service("first", **NEVER), service("second", after=["first"]))
    assert (await shop.deploy("/a", waiting, deadline=0.7)).result is ActionResult.FAILED
    assert (await shop.states())["/a/second"] == "failed"
    await shop.all_promises_are_kept()


@pytest.mark.parametrize("rollback", [False, True])
async def test_a_deploy_whose_end_cannot_be_found_out_is_on_record_with_its_reason(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, rollback: bool
) -> None:
    await shop.deploy("/", TREE)
    shop.hold("/a/new")  # neither the new definition nor the former one can be reached
    facts = shop.supervisor.describe_services

    async def cannot_settle(prefix: str = "") -> list[ServiceFacts]:
        if activity.in_activity() and activity.info().activity_type == "settle_parts":
            raise ApplicationError("the backend cannot be asked", non_retryable=True)
        return await facts(prefix)

    monkeypatch.setattr(shop.supervisor, "describe_services", cannot_settle)
    tree = system(service("b", **NEVER), service("bc"), service("c"), service("new"))
    for deadline in growing(1):
        outcome = await shop.deploy("/a", tree, deadline=deadline, rollback=rollback)
        if "rolled back to" not in outcome.message:  # else the deadline passed before anything was started
            break
    assert outcome.result is ActionResult.FAILED
    assert f"not stable within {deadline:g} s: " in outcome.message
    assert f"{summary.UNKNOWN_MESSAGE}: the backend cannot be asked" in outcome.message
    assert await shop.locks() == set()
    record = await shop.service.inventory.read_object(f"{shop.at('/a')}::deploy:d{len(await shop.records())}")
    assert record.status == "failed"
    assert f"not stable within {deadline:g} s: " in record.error
    monkeypatch.undo()
    shop.let_go()
    assert (await shop.deploy("/a", system(service("b")))).result is ActionResult.SUCCEEDED


async def test_a_teardown_whose_end_cannot_be_found_out_is_on_record_with_its_reason(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop.deploy("/", TREE)
    shop.hold("/a/c")
    facts, record = shop.supervisor.describe_services, f"{shop.path}::teardown:t1"

    async def cannot_settle(prefix: str = "") -> list[ServiceFacts]:
        if activity.in_activity() and activity.info().activity_type == "settle_removal":
            raise ApplicationError("the backend cannot be asked", non_retryable=True)
        return await facts(prefix)

    monkeypatch.setattr(shop.supervisor, "describe_services", cannot_settle)
    outcome = await shop.do("/", "teardown", {"deadline": 1})
    assert outcome.result is ActionResult.FAILED
    assert "not gone within 1 s" in outcome.message
    assert f"{summary.UNKNOWN_MESSAGE}: the backend cannot be asked" in outcome.message
    assert "not gone within 1 s" in (await shop.service.inventory.read_object(record)).error
    monkeypatch.undo()
    shop.let_go()
    assert (await shop.do("/", "teardown")).result is ActionResult.SUCCEEDED


async def test_delete_takes_over_from_a_rollback(shop: Shop) -> None:
    await shop.deploy("/", TREE)
    shop.hold("/a/new")  # the rollback cannot remove it
    tree = system(service("b", **CRASH), service("bc"), service("c"), service("new"))
    running = await shop.begin("/", system({"name": "a", **tree}), deadline=3_600, rollback=True)

    async def rolls_back() -> bool:
        return (await shop.states()).get("/a/new") == "deleting"

    await shop.until(rolls_back)
    deleting = asyncio.create_task(shop.do("/", "delete"))
    async with within(PATIENCE, "the rollback does not make way by itself"):
        assert (await running).result in (ActionResult.CANCELLED, ActionResult.FAILED)
    shop.let_go()
    assert (await deleting).status == "None"
    assert (await shop.states(), await shop.locks()) == ({}, set())


@pytest.mark.parametrize("turns", range(5))
async def test_a_cancel_that_comes_with_a_change_is_not_lost(turns: int) -> None:
    """Else the deploy goes on until its deadline. `turns` of the event loop lie between the two."""
    with closing(_ChangeFeed("system:s", set())) as feed:
        waiting = asyncio.create_task(feed.wait_for_change())
        await asyncio.sleep(0)
        feed.notify_changed(["system:s:web"])
        for _ in range(turns):
            await asyncio.sleep(0)
        if waiting.cancel():
            with pytest.raises(asyncio.CancelledError):
                await waiting
