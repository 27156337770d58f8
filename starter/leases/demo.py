"""`starter demo leases`: two leases on three hosts; the second starts in the second in which the first ends."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from domain.leases import names
from domain.leases.dates import stamp
from domain.leases.messages import CalendarQuery, CalendarView, LeaseView
from domain.model import Outcome, Query
from starter import terminal
from starter.demo import admitted, clock, free_name, heading, refused, somewhere, what_next
from starter.errors import Exit
from starter.leases.calendar import drawn

if TYPE_CHECKING:
    from client.actions import ActionClient

FIRST, SECOND = timedelta(seconds=6), timedelta(seconds=3)  # how long the two leases last
PATIENCE = 60
GLANCE = 0.05


async def demo() -> Exit:
    """Runs the demo: two leases, and a host that fails and recovers."""
    async with somewhere() as asking:
        story = _Story(asking, await free_name(asking, "host"))
        terminal.story(f"\nThree hosts in the pool {story.pool}, and two leases that want them")
        await story.book()
        await story.lose_a_host()
        await story.watch()
        await story.forget()
        what_next(
            (
                "starter up    # a stack that stays; then in another terminal:",
                "starter host add main/h1",
                "starter lease create p1/mine --hosts 1 --start now --end +2h",
                "starter lease calendar",
                f"starter history {story.lease('two')}",
            ),
            "Done. What to try next:",
        )
    return Exit.DONE


class _Story:
    def __init__(self, asking: ActionClient, pool: str) -> None:
        self.asking = asking
        self.pool = pool
        self.began = time.monotonic()
        self.seen: dict[str, str] = {}

    def lease(self, name: str) -> str:
        return f"project:{self.pool}:lease:{name}"

    def host(self, name: str) -> str:
        return f"pool:{self.pool}:host:{name}"

    async def book(self) -> None:
        heading(1, "book", "capacity is checked and taken for the whole term, in one transaction")
        for name in ("h1", "h2", "h3"):
            await self._do(self.host(name), "add", {"labels": "rack=7"})
        await self._do(self.lease("one"), "create", self._spec(hosts=2, start="now", end=f"+{FIRST.seconds}s"))
        end = (await self._see("one")).end
        await self._do(self.lease("two"), "create", self._spec(hosts=3, start=stamp(end), end=stamp(end + SECOND)))
        too_much = self._spec(hosts=2, start="+1s", end="+3s")
        await refused(self.asking, self.lease("three"), "create", "a host was booked twice", spec=too_much)
        query = CalendarQuery(pool=self.pool, start=stamp(end - FIRST), end=stamp(end + SECOND))
        view = await self.asking.read(names.READ_CALENDAR, query, CalendarView)
        for line in drawn(view, 80):
            terminal.story(f"   {line}")

    async def lose_a_host(self) -> None:
        heading(2, "a host fails", "its leases get others where there are any; flags say what is missing or changed")
        await self._until("one", "ACTIVE")
        await self._do(self.host("h1"), "fail")
        await self._tell()
        await self._do(self.host("h1"), "recover")
        await self._tell()

    async def watch(self) -> None:
        heading(3, "wait", "the end goes first, so that its hosts are there for the start in the same second")
        await self._until("two", "TERMINATED")

    async def forget(self) -> None:
        heading(4, "delete", "in any status: it releases everything first")
        for name in ("one", "two"):
            outcome = await self._do(self.lease(name), "delete")
            terminal.story(f"   {clock(self.began)}  {name}  {outcome.result}")
        for name in ("h1", "h2", "h3"):
            await self._do(self.host(name), "remove")

    async def _do(self, path: str, action: str, spec: dict[str, object] | None = None) -> Outcome:
        return await self.asking.outcome(path, (await admitted(self.asking, path, action, spec)).run)

    def _spec(self, **what: object) -> dict[str, object]:
        return {"pool": self.pool, "before_end": what["end"], **what}

    async def _see(self, name: str) -> LeaseView:
        return await self.asking.read(names.READ_LEASE, Query(path=self.lease(name)), LeaseView)

    async def _until(self, name: str, status: str) -> None:
        """Prints every change of both leases until one of them reaches this status."""
        async with asyncio.timeout(PATIENCE):
            while self.seen.get(name, "").split(" ")[0] != status:
                await self._tell()
                await asyncio.sleep(GLANCE)

    async def _tell(self) -> None:
        for name in ("one", "two"):
            told = _told(await self._see(name))
            if self.seen.get(name) != told:
                terminal.story(f"   {clock(self.began)}  {name}  {told}")
            self.seen[name] = told


def _told(lease: LeaseView) -> str:
    held = lease.reservations[0]
    flags = [word for word in ("missing_resources", "resources_changed") if getattr(held, word)]
    words = [lease.status, ", ".join(held.hosts), " ".join(["degraded:", *flags]) if lease.degraded else ""]
    return "  ".join(filter(None, words))
