"""Standing in line: hidden migration with one waiting request, the document's scenario, disks, and lines drained."""

from __future__ import annotations

import asyncio

import pytest

from domain import wire
from domain.errors import Category
from domain.model import LineOrder, Result
from tests.patience import PATIENCE
from tests.test_machines.estate import Estate

pytestmark = pytest.mark.stores("postgres")


async def migrating(estate: Estate, seconds: float = 60) -> str:
    """A machine whose migration is under way and takes its time."""
    await estate.with_machine(nodes=2)
    db = estate.machine()
    await estate.hang(db, "migrate", seconds)
    await estate.admitted(db, "migrate", node=f"{estate.name}-2")
    await estate.hanging(db)
    return db


async def test_scenario_1_message_by_message(estate: Estate) -> None:
    db = await migrating(estate, 1.5)
    # Migration is in the queue. This does not affect the status.
    seen = await estate.see(db)
    assert (seen.status, seen.target_action) == ("RUNNING", "None")
    assert [hold.owner for hold in await estate.service.inventory.holds(db)] == [f"{db}::migrate"]
    # A request to destroy is accepted; the status is DESTROYING at once; the action waits.
    destroy = await estate.admitted(db, "destroy")
    assert await estate.status(db) == "DESTROYING"
    assert "destroy" not in await estate.hypervisor.told(db)
    assert (await estate.asking.progress(db)).step == "waiting for migrate to end"
    # Only one request can be accepted from the user during the migration.
    second = await estate.ask(db, "stop")
    assert second.admission.refusal
    assert second.admission.refusal.category is Category.CONFLICT
    assert second.admission.refusal.message.startswith(
        f"409 Conflict: other action currently happening on {db}: destroy"
    )
    assert "Cannot execute action at this time" in second.admission.refusal.hint
    # Once the migration is finished the next one is stop, delete, destroy, in this order.
    outcome = await estate.outcome(destroy)
    assert (outcome.result, outcome.status) == (Result.SUCCEEDED, "DESTROYED")
    assert await estate.hypervisor.told(db) == ["create", "migrate", "stop", "delete", "destroy"]
    statuses = [line.to for line in await estate.history(db) if line.action == "destroy"]
    assert statuses == ["DESTROYING", "DESTROYED"]
    # Once the object is destroyed its queue is gone.
    assert await estate.service.inventory.holds(db) == []
    await estate.at_rest()


async def test_a_migration_changes_the_node_and_no_status(estate: Estate) -> None:
    await estate.with_machine(nodes=2)
    db = estate.machine()
    for status, action in [("RUNNING", "pause"), ("PAUSED", "stop"), ("HALTED", "start")]:
        before = await estate.see(db)
        assert before.status == status
        there = f"{estate.name}-{2 if before.info['node'].endswith('1') else 1}"
        assert (await estate.do(db, "migrate", node=there)).result is Result.SUCCEEDED
        after = await estate.see(db)
        assert (after.status, after.epoch, after.changed_at) == (status, before.epoch, before.changed_at)
        assert after.info["node"] == there
        await estate.do(db, action)
    await estate.at_rest()


async def test_a_request_behind_a_migration_can_be_cancelled_and_leaves_everything_as_it_was(estate: Estate) -> None:
    db = await migrating(estate, 1.5)
    stop = await estate.admitted(db, "stop")
    await estate.asking.cancel(db)
    assert (await estate.outcome(stop)).result is Result.CANCELLED
    assert await estate.status(db) == "RUNNING"
    assert "stop" not in await estate.hypervisor.told(db)
    await estate.outcome(await estate.admitted(db, "pause"))  # the line is free for another one
    assert await estate.hypervisor.told(db) == ["create", "migrate", "pause"]
    await estate.at_rest()


async def test_a_migration_waits_behind_a_users_action_and_comes_before_the_next_one(estate: Estate) -> None:
    await estate.with_machine(nodes=2)
    db = estate.machine()
    await estate.hang(db, "pause", 1.5)
    pause = await estate.admitted(db, "pause")
    await estate.hanging(db)
    migrate = await estate.admitted(db, "migrate")
    assert (await estate.refused(db, "stop")).startswith("409 Conflict")
    assert (await estate.outcome(pause)).status == "PAUSED"
    stop = await estate.admitted(db, "stop")
    await asyncio.gather(estate.outcome(migrate), estate.outcome(stop))
    assert await estate.hypervisor.told(db) == ["create", "pause", "migrate", "stop"]
    await estate.at_rest()


async def test_a_migration_whose_machine_is_gone_when_its_turn_comes_fails_and_harms_nothing(estate: Estate) -> None:
    await estate.with_machine(nodes=2)
    db = estate.machine()
    await estate.hang(db, "destroy", 1)
    destroy = await estate.admitted(db, "destroy")
    await estate.hanging(db)
    migrate = await estate.admitted(db, "migrate")
    assert (await estate.outcome(destroy)).status == "DESTROYED"
    late = await estate.outcome(migrate)
    assert (late.result, late.status) == (Result.FAILED, "DESTROYED")
    assert "it is absent" in late.message
    await estate.at_rest()


async def test_a_second_migration_gets_409(estate: Estate) -> None:
    db = await migrating(estate, 1)
    assert (await estate.refused(db, "migrate")).startswith(f"409 Conflict: other action currently happening on {db}")
    await estate.asking.outcome(f"{db}::migrate")


async def test_a_migration_that_was_terminated_does_not_hold_up_who_waits_for_it(estate: Estate) -> None:
    db = await migrating(estate)
    stop = await estate.admitted(db, "stop")
    await estate.asking.client.get_workflow_handle(f"{db}::migrate").terminate("an operator")
    assert (await estate.outcome(stop)).status == "HALTED"
    assert await estate.service.inventory.holds(db) == []


async def test_deleting_a_cloudspace_waits_for_the_migration_of_a_machine_in_it(estate: Estate) -> None:
    db = await migrating(estate, 1)
    assert await estate.to(estate.space(), "delete", cascade=True) == "DELETED"
    assert await estate.hypervisor.told(db) == ["create", "migrate", "stop", "delete"]
    await estate.at_rest()


async def test_an_attached_disk_shares_its_machines_queue(estate: Estate) -> None:
    await estate.with_machine(nodes=2)
    db, disk = estate.machine(), estate.disk()
    await estate.seed(db, "add-disk", disk="d1")
    await estate.hang(db, "migrate", 1.5)
    await estate.admitted(db, "migrate")
    await estate.hanging(db)
    detach = await estate.admitted(disk, "detach")  # accepted behind the migration, and shown at once
    assert await estate.status(disk) == "DETACHING"
    assert (await estate.refused(db, "stop")).startswith(f"409 Conflict: other action currently happening on {disk}")
    assert await estate.hypervisor.told(disk) == ["create", "attach"]
    assert (await estate.outcome(detach)).status == "CREATED"
    assert await estate.status(db) == "RUNNING"
    await estate.at_rest()


async def test_a_free_disk_does_not_wait_for_anybody(estate: Estate) -> None:
    await migrating(estate)
    assert await estate.to(estate.disk(), "create") == "CREATED"
    assert await estate.to(estate.disk(), "delete") == "DELETED"
    await estate.asking.cancel(f"{estate.machine()}::migrate")


async def test_a_line_that_is_stopped_takes_nobody_any_more_and_is_gone_when_it_is_empty(estate: Estate) -> None:
    db = await migrating(estate, 1.5)
    stop = await estate.admitted(db, "stop")
    order = LineOrder(path=db, run="", at=(await estate.see(db)).changed_at)
    client, drain = estate.asking.client, wire.companion(db, wire.DRAIN)
    draining = await client.start_workflow(wire.DRAIN_LINE, order, id=drain, task_queue=wire.ACTIONS_QUEUE)
    async with asyncio.timeout(PATIENCE):
        while not [hold for hold in await estate.service.inventory.holds(db) if hold.action == wire.DRAIN]:
            await asyncio.sleep(0.01)
    assert (await estate.refused(db, "migrate", node=f"{estate.name}-1")).startswith("409 Conflict")
    await draining.result()
    assert (await estate.outcome(stop)).status == "HALTED"
    assert await estate.service.inventory.holds(db) == []
    assert await estate.to(db, "start") == "RUNNING"  # the next request begins another
