"""Validates, prepares and releases what the VMs of a region share, one MCI at a time per connection.

A resource is recorded before it is ordered, so that it is found by its token whatever becomes of the answer. Before it
is removed, its id is cleared by the holder of the connection, so that the next holder creates it anew.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.fence import Fence, OrderRight
from activities.heartbeat import heartbeat
from activities.permits import Permits
from activities.retry import ProviderRetry
from domain.errors import ProviderError, StoreUnavailable, one_line
from domain.mci.messages import (
    ConnectionHold,
    Findings,
    HeldConnection,
    LeaveResult,
    MciStore,
    PlaceNeeds,
    PlaceVisit,
)
from domain.ports import SHARED, Cloud, SharedResource
from domain.wire import split_placement

T = TypeVar("T")

HELD_FOR = timedelta(seconds=30)  # how long others wait for a holder that died
RENEW_SECONDS = 10.0
LOOK_AGAIN = 0.2  # seconds between looks at a connection that another process holds
AT_ONCE = 5.0  # seconds that a request waits for the validation


class PlaceActivities:
    """Activities on places. One instance per worker process, so that all activities share its permits."""

    def __init__(
        self,
        book: MciStore,
        clouds: Mapping[str, Cloud],
        permits: Permits,
        fence: Fence,
        patience: ProviderRetry | None = None,
    ) -> None:
        self._book = book
        self._clouds = clouds
        self._permits = permits
        self._fence = fence
        self._patience = patience or ProviderRetry()
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @activity.defn
    async def validate_place(self, wants: PlaceNeeds) -> Findings:
        """Checks that the cloud offers the specs and images. A cloud that cannot be asked now is no refusal."""
        try:
            async with heartbeat():
                return await self._validate(wants, min(AT_ONCE, self._patience.call))
        except ProviderError as error:
            return Findings(problems=[f"{wants.place}: {one_line(error)}"], clear=False)

    @activity.defn
    async def prepare_place(self, visit: PlaceVisit) -> Findings:
        """Validates the specs and images, then creates the missing shared resources in their order."""
        wants = visit.wants
        try:
            async with self._fence.right(visit.path, visit.epoch) as right:
                if await self._book.unverified([wants], datetime.now(UTC)):
                    found = await self._validate(wants, self._patience.total)
                    if found.problems:
                        return found
                async with self._turns[wants.place], self._holding(visit) as held:
                    await self._make(right, held)
        except ProviderError as error:
            return Findings(problems=[f"{wants.place}: {one_line(error)}"])
        return Findings()

    @activity.defn
    async def release_place(self, visit: PlaceVisit) -> Findings:
        """Ends the MCI's use of a place; the last MCI removes the shared resources."""
        place = visit.wants.place
        try:
            # The local lock first: a hold acquired while waiting for it would block other processes.
            async with self._fence.right(visit.path, visit.epoch) as right, self._turns[place]:
                while (leaving := await self._book.leave_place(_wish(visit), visit.path)) is LeaveResult.BUSY:  # noqa: ASYNC110
                    await asyncio.sleep(LOOK_AGAIN)
                if leaving is LeaveResult.LAST:
                    async with self._holding(visit) as held:
                        await self._remove(right, held, visit.path)
        except ProviderError as error:
            return Findings(problems=[f"{place}: what is shared there could not be removed: {one_line(error)}"])
        if leaving is LeaveResult.OCCUPIED:
            return Findings(problems=[f"{place}: there are VMs yet"])
        return Findings()

    async def _validate(self, wants: PlaceNeeds, seconds: float) -> Findings:
        csp, region = split_placement(wants.place)
        async with self._permits.region(csp, region):
            ask = partial(self._clouds[csp].validate, region, wants.specs, wants.images)
            problems = await self._call(wants.place, ask, seconds)
        if not problems:
            await self._book.mark_verified(wants, datetime.now(UTC))
        return Findings(problems=problems)

    async def _make(self, right: OrderRight, held: HeldConnection) -> None:
        place, made = held.place, held.resources
        csp, region = split_placement(place)
        for what in SHARED:
            if made.get(what):
                continue
            resource = SharedResource(what, token_of(place, held.generation, what), epoch=held.epoch)
            await self._keep(held, what, "")
            async with self._permits.region(csp, region):
                order = partial(self._clouds[csp].prepare, region, resource, made)
                made[what] = await self._call(place, partial(right.order, order))
            await self._keep(held, what, made[what])

    async def _remove(self, right: OrderRight, held: HeldConnection, path: str) -> None:
        """Removes shared resources in reverse order, clearing each id first, so that nobody relies on it."""
        place, made = held.place, held.resources
        csp, region = split_placement(place)
        for what in reversed(SHARED):
            if what not in made:
                continue
            resource = SharedResource(what, token_of(place, held.generation, what), made[what], held.epoch)
            await self._keep(held, what, "")
            async with self._permits.region(csp, region):
                order = partial(self._clouds[csp].release, region, resource)
                await self._call(place, partial(right.order, order))
            await self._keep(held, what, None)
        _must_hold(held, await self._book.finish_leaving(held, path))

    async def _keep(self, held: HeldConnection, what: str, cloud_id: str | None) -> None:
        _must_hold(held, await self._book.record_resource(held, HELD_FOR, what, cloud_id))

    @asynccontextmanager
    async def _holding(self, visit: PlaceVisit) -> AsyncIterator[HeldConnection]:
        """Holds a connection exclusively: within the process by a lock, between processes by a hold that expires."""
        while (held := await self._book.hold_connection(_wish(visit))) is None:  # noqa: ASYNC110  another process's
            await asyncio.sleep(LOOK_AGAIN)
        renewing = asyncio.create_task(self._renew(held))
        try:
            yield held
        finally:
            renewing.cancel()
            await self._book.release_hold(held)

    async def _renew(self, held: HeldConnection) -> None:
        """Renews the hold. A lost hold is not taken again, as another holder may have changed the resources."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            with suppress(StoreUnavailable):
                await self._book.renew_hold(held, HELD_FOR)

    async def _call(self, place: str, call: Callable[[], Awaitable[T]], seconds: float | None = None) -> T:
        """Calls the cloud with retries, within its permits."""
        csp, region = split_placement(place)
        return await self._patience.call_with_retry(call, seconds, lambda: self._permits.vms(csp, region))


def _wish(visit: PlaceVisit) -> ConnectionHold:
    return ConnectionHold(visit.wants.place, f"{visit.path}#{visit.epoch}", HELD_FOR, visit.epoch)


def _must_hold(held: HeldConnection, still: bool) -> None:
    if not still:
        raise ApplicationError(f"{held.place} was taken over by another one; again", type="TakenOver")


def token_of(place: str, generation: int, what: str) -> str:
    """Returns the token of a shared resource: one of each sort per connection and generation."""
    return f"{place}#{generation}:{what}"
