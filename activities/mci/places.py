"""Validates, prepares and releases what a tenant's VMs share in a region, one MCI at a time per connection.

A resource is recorded before it is ordered, so that it is found by its token whatever becomes of the answer. Before it
is removed, its id is cleared by the holder of the connection, so that the next holder creates it anew.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.fence import Fence, OrderFence
from activities.heartbeat import send_heartbeats
from activities.permits import PermitPool
from activities.retry import ProviderRetry
from domain.errors import ProviderError, StoreUnavailable, format_one_line
from domain.mci.messages import (
    ConnectionLock,
    ConnectionLockRequest,
    LeavePlaceResult,
    MciAtPlace,
    MciStore,
    PlaceRequirements,
    PlaceResult,
)
from domain.model import AT_WRITE_TIME
from domain.ports import SHARED_RESOURCE_TYPES, Cloud, SharedResource
from domain.registry import tenant_of
from domain.wire import split_placement

T = TypeVar("T")

HOLD_DURATION = timedelta(seconds=30)  # how long others wait for a holder that died
RENEW_SECONDS = 10.0
HOLD_POLL_SECONDS = 0.2  # seconds between looks at a connection that another process holds
QUICK_CHECK_SECONDS = 5.0  # seconds that a request waits for the validation


@dataclass(eq=False)
class PlaceActivities:
    """Activities on places. One instance per worker process, so that all activities share its permits."""

    store: MciStore
    clouds: Mapping[str, Cloud]
    permits: PermitPool
    fence: Fence
    patience: ProviderRetry
    turns: defaultdict[tuple[str, str], asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    @activity.defn
    async def validate_place(self, wants: PlaceRequirements) -> PlaceResult:
        """Checks that the cloud offers the specs and images. A cloud that cannot be asked now is no refusal."""
        try:
            async with send_heartbeats():
                return await self._validate_needs(wants, min(QUICK_CHECK_SECONDS, self.patience.call_seconds))
        except ProviderError as error:
            return PlaceResult(problems=[f"{wants.place}: {format_one_line(error)}"], clear=False)

    @activity.defn
    async def prepare_place(self, visit: MciAtPlace) -> PlaceResult:
        """Validates the specs and images, then creates the missing shared resources in their order."""
        wants = visit.wants
        try:
            async with self.fence.right_to_order(visit.path, visit.epoch) as right:
                if await self.store.list_unverified_requirements([wants], AT_WRITE_TIME):
                    findings = await self._validate_needs(wants, self.patience.total_seconds)
                    if findings.problems:
                        return findings
                async with self.turns[_connection_key(visit)]:
                    acquire = partial(self.store.acquire_connection_lock, _hold_request(visit))
                    async with self._hold_connection(await self._wait_for_hold(right, acquire)) as held:
                        await self._make_missing_resources(right, held)
        except ProviderError as error:
            return PlaceResult(problems=[f"{wants.place}: {format_one_line(error)}"])
        return PlaceResult()

    @activity.defn
    async def release_place(self, visit: MciAtPlace) -> PlaceResult:
        """Ends the MCI's use of a place; the last MCI of its tenant removes the shared resources."""
        place = visit.wants.place
        try:
            # The local lock first: a hold acquired while waiting for it would block other processes.
            async with (
                self.fence.right_to_order(visit.path, visit.epoch) as right,
                self.turns[_connection_key(visit)],
            ):
                leave = partial(self.store.leave_place, _hold_request(visit))
                leaving = await self._wait_for_hold(right, leave)
                if isinstance(leaving, ConnectionLock):
                    async with self._hold_connection(leaving) as held:
                        await self._remove_resources(right, held, visit)
        except ProviderError as error:
            return PlaceResult(
                problems=[f"{place}: what is shared there could not be removed: {format_one_line(error)}"]
            )
        if leaving is LeavePlaceResult.OCCUPIED:
            return PlaceResult(problems=[f"{place}: there are VMs yet"])
        return PlaceResult()

    async def _validate_needs(self, wants: PlaceRequirements, seconds: float) -> PlaceResult:
        csp, region = split_placement(wants.place)
        async with self.permits.take_region_permit(csp, region):
            ask = partial(self.clouds[csp].list_missing_offers, region, wants.specs, wants.images)
            problems = await self._call_cloud(wants.place, ask, seconds)
        if not problems:
            await self.store.record_verified_requirements(wants, AT_WRITE_TIME)
        return PlaceResult(problems=problems)

    async def _make_missing_resources(self, right: OrderFence, held: ConnectionLock) -> None:
        place, made = held.place, held.resources
        csp, region = split_placement(place)
        for what in SHARED_RESOURCE_TYPES:
            if made.get(what):
                continue
            resource = SharedResource(what, resource_token(held, what), held.tenant, epoch=held.epoch)
            await self._record_resource(held, what, "")
            async with self.permits.take_region_permit(csp, region):
                order = partial(self.clouds[csp].prepare_resource, region, resource, made)
                made[what] = await self._call_cloud(place, partial(right.prove_then_call, order))
            await self._record_resource(held, what, made[what])

    async def _remove_resources(self, right: OrderFence, held: ConnectionLock, visit: MciAtPlace) -> None:
        """Removes shared resources in reverse order, clearing each id first, so that nobody relies on it."""
        place, made = held.place, held.resources
        csp, region = split_placement(place)
        for what in reversed(SHARED_RESOURCE_TYPES):
            if what not in made:
                continue
            resource = SharedResource(what, resource_token(held, what), held.tenant, made[what], held.epoch)
            await self._record_resource(held, what, "")
            async with self.permits.take_region_permit(csp, region):
                order = partial(self.clouds[csp].release_resource, region, resource)
                await self._call_cloud(place, partial(right.prove_then_call, order))
            await self._record_resource(held, what, None)
        _check_hold_not_lost(held, await self.store.finish_leaving_place(held, _hold_request(visit)))

    async def _record_resource(self, held: ConnectionLock, what: str, cloud_id: str | None) -> None:
        _check_hold_not_lost(held, await self.store.record_shared_resource(held, HOLD_DURATION, what, cloud_id))

    async def _wait_for_hold(self, right: OrderFence, acquire: Callable[[], Awaitable[T | None]]) -> T:
        """Asks the store for a connection's hold until no other process has it.

        A worker that lost its right takes none: it would keep others waiting. The store checks the action once more in
        the transaction, as a worker may freeze after its proof. A transaction commits even if whoever waits for it is
        cancelled, so its hold is given back.
        """
        while True:
            await right.prove()
            acquiring = asyncio.ensure_future(acquire())
            try:
                if (found := await asyncio.shield(acquiring)) is not None:
                    return found
            except asyncio.CancelledError:
                (late,) = await asyncio.gather(acquiring, return_exceptions=True)
                if isinstance(late, ConnectionLock):
                    await self.store.release_connection_lock(late)
                raise
            await asyncio.sleep(HOLD_POLL_SECONDS)

    @asynccontextmanager
    async def _hold_connection(self, held: ConnectionLock) -> AsyncIterator[ConnectionLock]:
        """Holds a place's connection exclusively for the block, by a hold in the store that is renewed and expires by
        itself.
        """
        renewing = asyncio.create_task(self._renew_hold_loop(held))
        try:
            yield held
        finally:
            renewing.cancel()
            await self.store.release_connection_lock(held)

    async def _renew_hold_loop(self, held: ConnectionLock) -> None:
        """Renews the hold. A lost hold is not taken again, as another holder may have changed the resources."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            with suppress(StoreUnavailable):
                await self.store.renew_connection_lock(held, HOLD_DURATION)

    async def _call_cloud(self, place: str, call: Callable[[], Awaitable[T]], seconds: float | None = None) -> T:
        """Calls the cloud with retries, within its permits."""
        csp, region = split_placement(place)
        return await self.patience.call_with_retry(call, seconds, lambda: self.permits.take_vm_slots(csp, region))


def _hold_request(visit: MciAtPlace) -> ConnectionLockRequest:
    return ConnectionLockRequest(tenant_of(visit.path), visit.wants.place, visit.path, visit.epoch, HOLD_DURATION)


def _connection_key(visit: MciAtPlace) -> tuple[str, str]:
    return tenant_of(visit.path), visit.wants.place


def _check_hold_not_lost(held: ConnectionLock, still: bool) -> None:
    if not still:
        raise ApplicationError(f"{held.place} was taken over by another one; again", type="TakenOver")


def resource_token(held: ConnectionLock, what: str) -> str:
    """Returns the token of a shared resource: one of each sort per tenant, place and generation."""
    return f"{held.tenant}@{held.place}#{held.generation}:{what}"
