"""Chaos stories of machines, disks, cloudspaces, accounts, images and nodes. The hypervisor is not killed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from domain import wire
from domain.machines.ports import HypervisorOrder
from domain.model import ActionResult, Outcome
from domain.waitqueue import QueueCommand
from providers.machines import PROVIDER_NAME
from tests.chaos.stories import Act, Story, Told
from tests.chaos.world import World
from tests.patience import PATIENCE

ROOT = "account:{ns}"
BESIDE = ("image:{ns}", "node:{ns}-1", "node:{ns}-2")
SPACE, DISK = ":cloudspace:dev", ":disk:d1"
MACHINE = f"{SPACE}:machine:db"
MOMENT = 1 / 86_400  # a second, in days


def _name(path: str) -> str:
    return path.split(":")[1]


def at(path: str, below: str) -> str:
    """`:cloudspace:dev` is below the account; `image` and `node-1` are beside it."""
    if below.startswith("node"):
        return f"node:{_name(path)}{below.removeprefix('node')}"
    return f"image:{_name(path)}" if below == "image" else f"{path}{below}"


def act(below: str, action: str, **spec: Any) -> Act:
    async def do(world: World, path: str) -> Outcome:
        named = {key: value.format(ns=_name(path)) if isinstance(value, str) else value for key, value in spec.items()}
        return await world.do(at(path, below), action, spec=named or None)

    return do


def done(below: str, action: str, **spec: Any) -> Told:
    async def do(world: World, path: str) -> None:
        outcome = await act(below, action, **spec)(world, path)
        assert outcome.result == "succeeded", outcome

    return do


def trouble(below: str, verb: str, kind: str = "fail", seconds: float = 2) -> Told:
    """What the hypervisor does wrong with orders of this kind."""

    async def tell(world: World, path: str) -> None:
        await world.fault(kind=kind, csp=PROVIDER_NAME, vm=at(path, below), verb=verb, seconds=seconds)

    return tell


async def ledger(world: World, path: str) -> list[str]:
    return await world.hypervisor.list_carried_out_verbs(path)


NEW_MACHINE = {"image": "{ns}", "memory": 1, "node": "{ns}-1"}


async def space(world: World, path: str) -> None:
    """What a machine needs: an account with a cloudspace, an image, two nodes."""
    nodes = [done(node, "create", memory=64) for node in ("node-1", "node-2")]
    await asyncio.gather(*(make(world, path) for make in (done("", "create"), done("image", "create"), *nodes)))
    await done(SPACE, "create")(world, path)


async def machine(world: World, path: str) -> None:
    await space(world, path)
    await done(MACHINE, "create", **NEW_MACHINE)(world, path)


async def cancel(world: World, path: str) -> Outcome:
    """A destroy that hangs at its end, and is cancelled: back to where it was, here and outside."""
    return await _cut_short(world, at(path, MACHINE), "destroy")


async def _cut_short(world: World, path: str, action: str) -> Outcome:
    ticket = await world.ask(path, action)
    await world.cancel(path)
    return await world.end(ticket)


async def take_over(world: World, path: str) -> Outcome:
    """A forced stop takes over from a pause that hangs."""
    await world.ask(at(path, MACHINE), "pause")
    return await world.do(at(path, MACHINE), "stop", force=True)


async def behind(world: World, path: str) -> Outcome:
    """A migration that nobody sees, and a destroy that waits for its end."""
    migrating = await world.ask(at(path, MACHINE), "migrate", spec={"node": f"{_name(path)}-2"})
    outcome = await world.do(at(path, MACHINE), "destroy")
    assert (await world.end(migrating)).result == "succeeded"
    return outcome


async def drain(world: World, path: str) -> Outcome:
    """A line is stopped: who stands in it comes through, and it is gone."""
    db = at(path, MACHINE)
    migrating = await world.ask(db, "migrate", spec={"node": f"{_name(path)}-2"})
    stopping = await world.ask(db, "stop")
    order = QueueCommand(path=db, run="", at=datetime.now(UTC))
    drained = wire.companion_id(db, wire.DRAIN)
    await world.client.execute_workflow(wire.DRAIN_QUEUE, order, id=drained, task_queue=wire.ACTIONS_QUEUE)
    await world.end(migrating)
    return await world.end(stopping)


async def expire(world: World, path: str) -> Outcome:
    """Deleted for a second, then destroyed by the recycle bin."""
    db = at(path, MACHINE)
    assert (await world.do(db, "delete", spec={"retention_days": MOMENT})).result == "succeeded"
    async with asyncio.timeout(PATIENCE):
        while (seen := await world.see(db)).status != "DESTROYED" or await world.is_running(db):
            await asyncio.sleep(0.1)
    return Outcome(path=db, action="destroy", result=ActionResult.SUCCEEDED, status=seen.status)


async def orphan_removed(world: World, path: str) -> Outcome:
    """A disk that no record knows, because its order was late: an action of its own removes it."""
    late = at(path, DISK)
    await world.hypervisor.perform_order("create", HypervisorOrder(late, "disk", f"late {late}", {}, 1))
    return await world.do(late, "discard", spec={"place": "hypervisor"})


ENDING = (
    (ROOT, "destroy", {"cascade": True}),
    ("image:{ns}", "deploy", None),  # one that was never made cannot go
    ("image:{ns}", "destroy", None),
    ("node:{ns}-2", "create", {"memory": 64}),  # the last node must stay
    *((f"node:{{ns}}-{n}", "decommission", None) for n in (1, 2)),
)


def story(name: str, on: str, act: Act, *before: Told, **more: Any) -> Story:
    return Story(
        name, ROOT, act, before, on=at(ROOT, on), beside=BESIDE, ledger=ledger, ending=ENDING, family="machines", **more
    )


STOPPED = done(MACHINE, "stop")
DELETED = done(MACHINE, "delete")
WITH_DISK = done(MACHINE, "add-disk", disk="d1")

# fmt: off
STORIES = (
    story("account create", "", act("", "create"), status="CONFIRMED"),
    story("cloudspace create", SPACE, act(SPACE, "create"), done("", "create"), status="DEPLOYED", told=("create",)),
    story("image create", "image", act("image", "create"), status="CREATED"),
    story("image destroy", "image", act("image", "destroy"), done("image", "create"), status="DESTROYED"),
    story("node create", "node-1", act("node-1", "create", memory=64), status="ENABLED"),
    story("machine create", MACHINE, act(MACHINE, "create", **NEW_MACHINE), space, status="RUNNING", told=("create",)),
    story("machine create fails", MACHINE, act(MACHINE, "create", **NEW_MACHINE), space, trouble(MACHINE, "create"),
          result="failed", status="VIRTUAL"),
    story("machine deploy", MACHINE, act(MACHINE, "deploy"), space,
          done(MACHINE, "create", **NEW_MACHINE, virtual=True), status="RUNNING", told=("create",)),
    story("machine stop", MACHINE, act(MACHINE, "stop"), machine, status="HALTED", told=("create", "stop")),
    story("machine stop fails", MACHINE, act(MACHINE, "stop"), machine, trouble(MACHINE, "stop"), result="failed",
          status="RUNNING", told=("create",)),
    story("machine start", MACHINE, act(MACHINE, "start"), machine, STOPPED, status="RUNNING",
          told=("create", "stop", "start")),
    story("machine pause", MACHINE, act(MACHINE, "pause"), machine, status="PAUSED", told=("create", "pause")),
    story("machine resume", MACHINE, act(MACHINE, "resume"), machine, done(MACHINE, "pause"), status="RUNNING",
          told=("create", "pause", "resume")),
    story("machine reboot", MACHINE, act(MACHINE, "reboot"), machine, status="RUNNING", told=("create", "reboot")),
    story("machine reset", MACHINE, act(MACHINE, "reset"), machine, status="RUNNING", told=("create", "reset")),
    story("machine delete", MACHINE, act(MACHINE, "delete"), machine, status="DELETED",
          told=("create", "stop", "delete")),
    story("machine restore", MACHINE, act(MACHINE, "restore"), machine, DELETED, status="HALTED",
          told=("create", "stop", "delete", "restore")),
    story("machine destroy", MACHINE, act(MACHINE, "destroy"), machine, WITH_DISK, status="DESTROYED",
          told=("create", "stop", "delete", "destroy")),
    story("machine expires", MACHINE, expire, machine, status="DESTROYED",
          told=("create", "stop", "delete", "destroy"), plain=False),
    story("machine cancel", MACHINE, cancel, machine, trouble(MACHINE, "stop", "hang", PATIENCE), result="cancelled",
          status="RUNNING", plain=False),
    story("machine takeover", MACHINE, take_over, machine, trouble(MACHINE, "pause", "hang"), status="HALTED",
          plain=False),
    story("migrate", MACHINE, act(MACHINE, "migrate", node="{ns}-2"), machine, status="RUNNING",
          told=("create", "migrate"), plain=False),
    story("migrate with one waiting", MACHINE, behind, machine, trouble(MACHINE, "migrate", "hang", 1.5),
          status="DESTROYED", told=("create", "migrate", "stop", "delete", "destroy"), plain=False),
    story("line stopped", MACHINE, drain, machine, trouble(MACHINE, "migrate", "hang", 1.5), status="HALTED",
          told=("create", "migrate", "stop"), plain=False),
    story("disk create", DISK, act(DISK, "create"), space, status="CREATED", told=("create",)),
    story("disk attach", DISK, act(DISK, "attach", machine="dev/db"), machine, done(DISK, "create"),
          status="ASSIGNED", told=("create", "attach")),
    story("disk added", MACHINE, act(MACHINE, "add-disk", disk="d1"), machine, status="RUNNING"),
    story("disk detach", DISK, act(DISK, "detach"), machine, WITH_DISK, status="CREATED",
          told=("create", "attach", "detach")),
    story("cloudspace delete with all in it", SPACE, act(SPACE, "delete", cascade=True), machine, WITH_DISK,
          status="DELETED", told=("create", "delete")),
    story("account disable", "", act("", "disable"), machine, status="DISABLED"),
    story("account enable", "", act("", "enable"), machine, done("", "disable"), status="CONFIRMED"),
    story("account destroy with all in it", "", act("", "destroy", cascade=True), machine, WITH_DISK,
          status="DESTROYED"),
    story("node maintain", "node-1", act("node-1", "maintain"), machine, status="MAINTENANCE"),
    story("node maintain by stopping", "node-1", act("node-1", "maintain", mode="stop"), machine,
          status="MAINTENANCE"),
    story("node enable", "node-1", act("node-1", "enable"), machine, done("node-1", "maintain", mode="stop"),
          status="ENABLED"),
    story("orphan removed", DISK, orphan_removed, done("", "create"), status="None", plain=False),
    story("node decommission", "node-1", act("node-1", "decommission"), machine, status="DECOMMISSIONED"),
)
# fmt: on
# Together these pass through every activity of the family.
COVERING = {"machine expires", "line stopped", "machine takeover", "node maintain"}
