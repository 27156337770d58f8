"""Chaos stories of leases and their hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from domain.errors import RatchetError
from domain.leases.capacity import ResourceSize
from domain.leases.messages import DesiredHolding, LeaseView
from domain.leases.names import READ_LEASE
from domain.model import ActionResult, Outcome, ReadQuery
from providers.leases.hosts import SimulatedHosts
from tests.chaos.stories import Act, Story, Told
from tests.chaos.world import World
from tests.patience import PATIENCE

ROOT = "project:{ns}:lease:l1"


def _pool(path: str) -> str:
    return path.split(":")[1]


async def with_hosts(world: World, path: str) -> None:
    for name in ("h1", "h2"):
        assert (await world.do(f"pool:{_pool(path)}:host:{name}", "add", spec={})).status == "UP"


async def _create(world: World, path: str, **dates: str) -> Outcome:
    return await world.do(path, "create", spec={"hosts": 1, "pool": _pool(path), **dates})


async def pending(world: World, path: str) -> None:
    assert (await create(world, path)).status == "PENDING"


async def active(world: World, path: str) -> None:
    await _create(world, path, start="now", end="+2h")
    await until(world, path, lambda seen: seen.status == "ACTIVE")


async def create(world: World, path: str) -> Outcome:
    return await _create(world, path, start="+1h", end="+2h")


async def start(world: World, path: str) -> Outcome:
    """The clock is woken, and starts the lease."""
    await world.ask(path, "update", spec={"start": "now"})
    return await until(world, path, lambda seen: seen.status == "ACTIVE")


async def slow_start(world: World, path: str) -> Outcome:
    """A host that takes its time: the quick try gives up, the patient one goes on."""
    await world.fault(kind="hang", csp="hosts", region=_pool(path), vm="h1", verb="create", seconds=3, times=1)
    return await start(world, path)


async def life(world: World, path: str) -> Outcome:
    """From now for a second: started, announced and ended by the clock, whatever the worker does."""
    await _create(world, path, start="now", end="+1s")
    return await until(world, path, lambda seen: seen.status == "TERMINATED")


async def update(world: World, path: str) -> Outcome:
    return await world.do(path, "update", spec={"hosts": 2})


async def end(world: World, path: str) -> Outcome:
    return await world.do(path, "end", spec={})


async def delete(world: World, path: str) -> Outcome:
    return await world.do(path, "delete")


async def lose_host(world: World, path: str) -> Outcome:
    return await world.do(f"pool:{_pool(path)}:host:h1", "fail")


async def until(world: World, path: str, true: Callable[[LeaseView], bool]) -> Outcome:
    """Until the lease is so and nothing runs on it; a worker may be away meanwhile."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with suppress(RatchetError):
                seen = await world.asking.run_query(READ_LEASE, ReadQuery(path=path), LeaseView)
                running = await world.asking.newest_run(path)
                if true(seen) and running and running.status and running.status.name != "RUNNING":
                    return Outcome(path=path, action="", result=ActionResult.SUCCEEDED, status=seen.status)
            await asyncio.sleep(0.05)


async def orders(world: World, path: str) -> list[str]:
    """What was done to the hosts of the lease's reservation: orders that had an effect."""
    done = await SimulatedHosts(world.cloud_database).count_effective_orders(f"{path}:reservation:r1")
    return ["order"] * done


async def orphan_removed(world: World, path: str) -> Outcome:
    """A host in the hands of a reservation that no record knows: an action of its own takes it back."""
    reservation = f"{path}:reservation:r1"
    holding = DesiredHolding(
        token=f"{reservation}#1",
        generation=1,
        reservation=reservation,
        version=1,
        hosts={f"pool:{_pool(path)}:host:h1": 1},
        whole=True,
        size=ResourceSize(1, 1, 1),
    )
    await SimulatedHosts(world.cloud_database).set_reservation_hosts(holding)
    return await world.do(reservation, "discard", spec={"place": "hosts"})


ENDING = ((ROOT, "delete", None), *((f"pool:{{ns}}:host:{name}", "remove", None) for name in ("h1", "h2")))


def story(name: str, act: Act, *before: Told, **more: Any) -> Story:
    return Story(name, ROOT, act, before, ending=ENDING, family="leases", **more)


STORIES = (
    story("create", create, with_hosts, status="PENDING"),
    story("start", start, with_hosts, pending, status="ACTIVE", waits=True, ledger=orders, told=("order",)),
    story("slow start", slow_start, with_hosts, pending, status="ACTIVE", waits=True),
    story("life", life, with_hosts, status="TERMINATED", waits=True),
    story("update", update, with_hosts, active, status="ACTIVE"),
    story("end", end, with_hosts, active, status="TERMINATED", ledger=orders, told=("order", "order")),
    story("delete", delete, with_hosts, active, status="None"),
    story("orphan removed", orphan_removed, with_hosts, on=f"{ROOT}:reservation:r1", status="None", plain=False),
    story(
        "host fails",
        lose_host,
        with_hosts,
        active,
        on="pool:{ns}:host:h1",
        status="DOWN",
    ),
)
# Together these pass through every activity of the family.
COVERING = {"slow start", "delete"}
