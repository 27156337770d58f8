"""`starter demo leases`: two leases on three hosts; the second starts in the second in which the first ends."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from domain.leases import names
from domain.leases.dates import format_date
from domain.leases.messages import CalendarQuery, CalendarView, LeaseView
from domain.model import Outcome, ReadQuery
from starter import terminal
from starter.demo import (
    demo_client,
    find_free_demo_name,
    format_elapsed_seconds,
    print_heading,
    print_next_commands,
    request_expecting_admission,
    request_expecting_refusal,
)
from starter.errors import ExitCode
from starter.leases.calendar import draw_calendar

if TYPE_CHECKING:
    from client.actions import ActionClient

FIRST_LEASE_LASTS, SECOND_LEASE_LASTS = timedelta(seconds=6), timedelta(seconds=3)  # how long the two leases last
DEMO_TIMEOUT = 60
POLL_SECONDS = 0.05


async def demo() -> ExitCode:
    """Runs the demo: two leases, and a host that fails and recovers."""
    async with demo_client() as client:
        story = _LeaseStory(client, await find_free_demo_name(client, "host"))
        terminal.print_narration(f"\nThree hosts in the pool {story.pool}, and two leases that want them")
        await story.book_leases()
        await story.fail_host()
        await story.watch_leases()
        await story.clean_up()
        print_next_commands(
            (
                "starter up    # a stack that stays; then in another terminal:",
                "starter host add main/h1",
                "starter lease create p1/mine --hosts 1 --start now --end +2h",
                "starter lease calendar",
                f"starter history {story.lease_path('two')}",
            ),
            "Done. What to try next:",
        )
    return ExitCode.DONE


class _LeaseStory:
    def __init__(self, client: ActionClient, pool: str) -> None:
        self.client = client
        self.pool = pool
        self.began = time.monotonic()
        self.seen: dict[str, str] = {}

    def lease_path(self, name: str) -> str:
        return f"project:{self.pool}:lease:{name}"

    def host_path(self, name: str) -> str:
        return f"pool:{self.pool}:host:{name}"

    async def book_leases(self) -> None:
        print_heading(1, "book", "capacity is checked and taken for the whole term, in one transaction")
        for name in ("h1", "h2", "h3"):
            await self._run_action(self.host_path(name), "add", {"labels": "rack=7"})
        await self._run_action(
            self.lease_path("one"),
            "create",
            self._lease_spec(hosts=2, start="now", end=f"+{FIRST_LEASE_LASTS.seconds}s"),
        )
        end = (await self._read_lease("one")).end
        await self._run_action(
            self.lease_path("two"),
            "create",
            self._lease_spec(hosts=3, start=format_date(end), end=format_date(end + SECOND_LEASE_LASTS)),
        )
        too_much = self._lease_spec(hosts=2, start="+1s", end="+3s")
        await request_expecting_refusal(
            self.client, self.lease_path("three"), "create", "a host was booked twice", spec=too_much
        )
        query = CalendarQuery(
            pool=self.pool, start=format_date(end - FIRST_LEASE_LASTS), end=format_date(end + SECOND_LEASE_LASTS)
        )
        view = await self.client.run_query(names.READ_CALENDAR, query, CalendarView)
        for line in draw_calendar(view, 80):
            terminal.print_narration(f"   {line}")

    async def fail_host(self) -> None:
        print_heading(
            2, "a host fails", "its leases get others where there are any; flags say what is missing or changed"
        )
        await self._print_changes_until("one", "ACTIVE")
        await self._run_action(self.host_path("h1"), "fail")
        await self._print_lease_changes()
        await self._run_action(self.host_path("h1"), "recover")
        await self._print_lease_changes()

    async def watch_leases(self) -> None:
        print_heading(3, "wait", "the end goes first, so that its hosts are there for the start in the same second")
        await self._print_changes_until("two", "TERMINATED")

    async def clean_up(self) -> None:
        print_heading(4, "delete", "in any status: it releases everything first")
        for name in ("one", "two"):
            outcome = await self._run_action(self.lease_path(name), "delete")
            terminal.print_narration(f"   {format_elapsed_seconds(self.began)}  {name}  {outcome.result}")
        for name in ("h1", "h2", "h3"):
            await self._run_action(self.host_path(name), "remove")

    async def _run_action(self, path: str, action: str, spec: dict[str, object] | None = None) -> Outcome:
        return await self.client.wait_for_outcome(
            path, (await request_expecting_admission(self.client, path, action, spec)).run
        )

    def _lease_spec(self, **what: object) -> dict[str, object]:
        return {"pool": self.pool, "before_end": what["end"], **what}

    async def _read_lease(self, name: str) -> LeaseView:
        return await self.client.run_query(names.READ_LEASE, ReadQuery(path=self.lease_path(name)), LeaseView)

    async def _print_changes_until(self, name: str, status: str) -> None:
        """Prints every change of both leases until one of them reaches this status."""
        async with asyncio.timeout(DEMO_TIMEOUT):
            while self.seen.get(name, "").split(" ")[0] != status:
                await self._print_lease_changes()
                await asyncio.sleep(POLL_SECONDS)

    async def _print_lease_changes(self) -> None:
        for name in ("one", "two"):
            told = _describe_lease(await self._read_lease(name))
            if self.seen.get(name) != told:
                terminal.print_narration(f"   {format_elapsed_seconds(self.began)}  {name}  {told}")
            self.seen[name] = told


def _describe_lease(lease: LeaseView) -> str:
    held = lease.reservations[0]
    flags = [word for word in ("missing_resources", "resources_changed") if getattr(held, word)]
    words = [lease.status, ", ".join(held.hosts), " ".join(["degraded:", *flags]) if lease.degraded else ""]
    return "  ".join(filter(None, words))
