"""The wait queue: a hidden migration with one waiting request, disks, and queues that are drained."""

from __future__ import annotations

import asyncio

import pytest

from domain import wire
from domain.errors import Category
from domain.healing import ANY_ACTION, HealFinding, SweepOptions
from domain.model import ActionResult
from domain.waitqueue import QueueCommand
from tests.patience import PATIENCE, progress_of
from tests.test_machines.site import MachineSite

pytestmark = pytest.mark.stores("postgres")


async def migrating(site: MachineSite) -> str:
    """A machine whose migration is under way until it is released."""
    await site.with_machine(nodes=2)
    db = site.machine()
    await site.hang(db, "migrate")
    await site.admitted(db, "migrate", node=f"{site.name}-2")
    await site.hanging(db)
    return db


async def test_scenario_1_message_by_message(site: MachineSite) -> None:
    db = await migrating(site)
    # Migration is in the queue. This does not affect the status.
    seen = await site.see(db)
    assert (seen.status, seen.target_action) == ("RUNNING", "None")
    assert [hold.owner for hold in await site.service.inventory.list_locks(db)] == [f"{db}::migrate"]
    # A request to destroy is accepted; the status is DESTROYING at once; the action waits.
    destroy = await site.admitted(db, "destroy")
    assert await site.status(db) == "DESTROYING"
    assert "destroy" not in await site.hypervisor.list_carried_out_verbs(db)
    assert (await progress_of(site.asking, db)).step == "waiting for migrate to end"
    # Only one request can be accepted from the user during the migration.
    second = await site.ask(db, "stop")
    assert second.admission.refusal
    assert second.admission.refusal.category is Category.CONFLICT
    assert second.admission.refusal.message.startswith(
        f"409 Conflict: other action currently happening on {db}: destroy"
    )
    assert "Cannot execute action at this time" in second.admission.refusal.hint
    # Once the migration is finished the next one is stop, delete, destroy, in this order.
    await site.release()
    outcome = await site.outcome(destroy)
    assert (outcome.result, outcome.status) == (ActionResult.SUCCEEDED, "DESTROYED")
    assert await site.hypervisor.list_carried_out_verbs(db) == ["create", "migrate", "stop", "delete", "destroy"]
    statuses = [line.to for line in await site.history(db) if line.action == "destroy"]
    assert statuses == ["DESTROYING", "DESTROYED"]
    # Once the object is destroyed its queue is gone.
    assert await site.service.inventory.list_locks(db) == []
    await site.at_rest()


async def test_a_migration_changes_the_node_and_no_status(site: MachineSite) -> None:
    await site.with_machine(nodes=2)
    db = site.machine()
    for status, action in [("RUNNING", "pause"), ("PAUSED", "stop"), ("HALTED", "start")]:
        before = await site.see(db)
        assert before.status == status
        there = f"{site.name}-{2 if before.info['node'].endswith('1') else 1}"
        assert (await site.do(db, "migrate", node=there)).result is ActionResult.SUCCEEDED
        after = await site.see(db)
        assert (after.status, after.epoch, after.changed_at) == (status, before.epoch, before.changed_at)
        assert after.info["node"] == there
        await site.do(db, action)
    await site.at_rest()


async def test_a_request_behind_a_migration_can_be_cancelled_and_leaves_everything_as_it_was(site: MachineSite) -> None:
    db = await migrating(site)
    stop = await site.admitted(db, "stop")
    await site.asking.cancel_action(db)
    assert (await site.outcome(stop)).result is ActionResult.CANCELLED
    assert await site.status(db) == "RUNNING"
    assert "stop" not in await site.hypervisor.list_carried_out_verbs(db)
    pause = await site.admitted(db, "pause")  # the queue is free for another one
    await site.release()
    await site.outcome(pause)
    assert await site.hypervisor.list_carried_out_verbs(db) == ["create", "migrate", "pause"]
    await site.at_rest()


async def test_a_migration_waits_behind_a_users_action_and_comes_before_the_next_one(site: MachineSite) -> None:
    await site.with_machine(nodes=2)
    db = site.machine()
    await site.hang(db, "pause")
    pause = await site.admitted(db, "pause")
    await site.hanging(db)
    migrate = await site.admitted(db, "migrate")
    assert (await site.refused(db, "stop")).startswith("409 Conflict")
    await site.release()
    assert (await site.outcome(pause)).status == "PAUSED"
    stop = await site.admitted(db, "stop")
    await asyncio.gather(site.outcome(migrate), site.outcome(stop))
    assert await site.hypervisor.list_carried_out_verbs(db) == ["create", "pause", "migrate", "stop"]
    await site.at_rest()


async def test_a_migration_whose_machine_is_gone_when_its_turn_comes_fails_and_harms_nothing(site: MachineSite) -> None:
    await site.with_machine(nodes=2)
    db = site.machine()
    await site.hang(db, "destroy")
    destroy = await site.admitted(db, "destroy")
    await site.hanging(db)
    migrate = await site.admitted(db, "migrate")
    await site.release()
    assert (await site.outcome(destroy)).status == "DESTROYED"
    late = await site.outcome(migrate)
    assert (late.result, late.status) == (ActionResult.FAILED, "DESTROYED")
    assert "it is absent" in late.message
    await site.at_rest()


async def test_a_second_migration_gets_409(site: MachineSite) -> None:
    db = await migrating(site)
    assert (await site.refused(db, "migrate")).startswith(f"409 Conflict: other action currently happening on {db}")
    await site.release()
    await site.asking.wait_for_outcome(f"{db}::migrate")


async def test_a_migration_that_was_terminated_does_not_hold_up_who_waits_for_it(site: MachineSite) -> None:
    db = await migrating(site)
    stop = await site.admitted(db, "stop")
    await site.asking.client.get_workflow_handle(f"{db}::migrate").terminate("an operator")
    assert (await site.outcome(stop)).status == "HALTED"
    assert await site.service.inventory.list_locks(db) == []


async def test_deleting_a_cloudspace_waits_for_the_migration_of_a_machine_in_it(site: MachineSite) -> None:
    db = await migrating(site)
    delete = await site.admitted(site.space(), "delete", cascade=True)
    await site.release()
    assert (await site.outcome(delete)).status == "DELETED"
    assert await site.hypervisor.list_carried_out_verbs(db) == ["create", "migrate", "stop", "delete"]
    await site.at_rest()


async def test_an_attached_disk_shares_its_machines_queue(site: MachineSite) -> None:
    await site.with_machine(nodes=2)
    db, disk = site.machine(), site.disk()
    await site.seed(db, "add-disk", disk="d1")
    await site.hang(db, "migrate")
    await site.admitted(db, "migrate")
    await site.hanging(db)
    detach = await site.admitted(disk, "detach")  # accepted behind the migration, and shown at once
    assert await site.status(disk) == "DETACHING"
    assert (await site.refused(db, "stop")).startswith(f"409 Conflict: other action currently happening on {disk}")
    assert await site.hypervisor.list_carried_out_verbs(disk) == ["create", "attach"]
    await site.release()
    assert (await site.outcome(detach)).status == "CREATED"
    assert await site.status(db) == "RUNNING"
    await site.at_rest()


async def test_a_free_disk_does_not_wait_for_anybody(site: MachineSite) -> None:
    await migrating(site)
    assert await site.to(site.disk(), "create") == "CREATED"
    assert await site.to(site.disk(), "delete") == "DELETED"
    await site.asking.cancel_action(f"{site.machine()}::migrate")


async def test_a_stopped_queue_admits_nobody_and_is_gone_when_it_is_empty(site: MachineSite) -> None:
    db = await migrating(site)
    stop = await site.admitted(db, "stop")
    order = QueueCommand(path=db, run="", at=(await site.see(db)).changed_at)
    client, drain = site.asking.client, wire.companion_id(db, wire.DRAIN)
    draining = await client.start_workflow(wire.DRAIN_QUEUE, order, id=drain, task_queue=wire.ACTIONS_QUEUE)
    async with asyncio.timeout(PATIENCE):
        while not [hold for hold in await site.service.inventory.list_locks(db) if hold.action == wire.DRAIN]:
            await asyncio.sleep(0.01)
    assert (await site.refused(db, "migrate", node=f"{site.name}-1")).startswith("409 Conflict")
    swept = await site.asking.run_sweep(SweepOptions(limits={ANY_ACTION: 0}))  # it waits for hours if need be
    found = {(entry.action, entry.finding) for entry in swept.found if entry.path == db}
    assert (wire.DRAIN, HealFinding.SLOW) in found
    await site.release()
    await draining.result()
    assert (await site.outcome(stop)).status == "HALTED"
    assert await site.service.inventory.list_locks(db) == []
    assert await site.to(db, "start") == "RUNNING"  # the next request begins another
