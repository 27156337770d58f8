"""Permits: caps on regions of a cloud and on VMs of a region at once, over all workers of a deployment.

A worker leases its share of a cloud from the permit store for a few seconds and renews it while it works, so a call
costs no round trip. Within the worker, requests queue first come, first served. An expired lease admits no call; its
clock also runs while the process is frozen. Not re-entrant: the holder of a region must not enter it again.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from activities.fence import OrderFence, seconds_since_boot
from domain.errors import StoreUnavailable
from domain.limits import ConcurrencyCaps
from domain.permits import (
    SHARE_SECONDS,
    PermitLimits,
    PermitRequest,
    PermitStore,
    RegionPermits,
)

Requested = TypeVar("Requested")
_log = logging.getLogger("ratchet.permits")

RENEW_SECONDS = 1.0
CONTESTED_SECONDS = 0.25  # while a request waits for more


class PermitPool:
    """This worker's permits. One instance per process, shared by all activities."""

    def __init__(self, limits: ConcurrencyCaps, store: PermitStore) -> None:
        self._limits = limits
        self._store = store
        self._worker = uuid.uuid4().hex
        self._clouds: dict[str, _CloudPermits] = {}

    def vm_cap(self, csp: str, region: str) -> int:
        """Returns how many VMs of a region all workers together may work on at once."""
        return self._permits_of_cloud(csp).limits.vms(region)

    def take_region_permit(self, csp: str, region: str) -> Permit[str]:
        """Returns a permit to work in a region. An active region is entered freely, unless others are in the queue."""
        return Permit(self._permits_of_cloud(csp).regions, region)

    def take_vm_slots(self, csp: str, region: str, n: int = 1, right: OrderFence | None = None) -> Permit[int]:
        """Returns a permit to work on up to `n` VMs of a region; `async with` yields the number granted, at least one.

        With a right, it is proven once the permits are granted.
        """
        cap = self.vm_cap(csp, region)
        if not 1 <= n <= cap:
            raise ValueError(f"{n} VMs at once in {csp}/{region}: the cap is {cap}")
        return Permit(self._permits_of_cloud(csp).slots_of_region(region), n, right)

    def slots_in_use(self) -> dict[str, int]:
        """Returns the VM permits in use, per cloud/region; empty at rest."""
        return {
            f"{csp}/{region}": place.used
            for csp, cloud in self._clouds.items()
            for region, place in cloud.places.items()
            if place.used
        }

    async def return_all_permits(self) -> None:
        """Returns all leases to the store."""
        for cloud in self._clouds.values():
            await cloud.close()

    def _permits_of_cloud(self, csp: str) -> _CloudPermits:
        cloud = self._clouds.get(csp)
        if cloud is None:
            cloud = self._clouds[csp] = _CloudPermits(csp, self._worker, self._limits.limits_of_cloud(csp), self._store)
        return cloud


class _FifoQueue(ABC, Generic[Requested]):
    """Serves requests in order: a request that does not fit waits, and no later one overtakes it."""

    def __init__(self, cloud: _CloudPermits) -> None:
        self.cloud = cloud
        self.waiting: deque[tuple[Requested, asyncio.Future[int]]] = deque()

    @abstractmethod
    def _fitting_size(self, wanted: Requested) -> int:
        """Returns how much of the request can be granted now; 0 if none."""

    @abstractmethod
    def _is_leased(self, wanted: Requested) -> bool:
        """Tells whether the lease exists and only room in it is missing."""

    @abstractmethod
    def _take_slots(self, wanted: Requested, size: int) -> None: ...

    @abstractmethod
    def _return_slots(self, wanted: Requested, size: int) -> None: ...

    async def acquire_slots(self, wanted: Requested) -> int:
        while True:
            if not self.waiting and self.cloud.are_permits_valid() and (size := self._fitting_size(wanted)):
                self._take_slots(wanted, size)
                return size
            size = await self._wait_for_turn(wanted)
            if self.cloud.are_permits_valid():  # the lease may have expired since, if the process was frozen
                return size
            self._return_slots(wanted, size)

    async def _wait_for_turn(self, wanted: Requested) -> int:
        turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.waiting.append((wanted, turn))
        self.cloud.request_exchange(at_once=not self._is_leased(wanted))
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and not turn.exception():  # granted just now: pass it on
                self._return_slots(wanted, turn.result())
            self.serve_waiting_requests()
            if self.waiting:
                self.cloud.request_exchange(at_once=True)  # the next request may not have been sent to the store
            raise

    def release_slots(self, wanted: Requested, size: int) -> None:
        self._return_slots(wanted, size)
        self.serve_waiting_requests()

    def serve_waiting_requests(self) -> None:
        """Serves the queue from its head until a request does not fit."""
        while self.waiting:
            wanted, turn = self.waiting[0]
            if not turn.done():
                size = self._fitting_size(wanted) if self.cloud.are_permits_valid() else 0
                if not size:
                    return
                self._take_slots(wanted, size)
                turn.set_result(size)
            self.waiting.popleft()

    def waiting_requests(self) -> Iterator[Requested]:
        """Yields the requests that are still waiting."""
        return (wanted for wanted, turn in self.waiting if not turn.done())

    def fail_waiting_requests(self, error: BaseException) -> None:
        while self.waiting:
            _, turn = self.waiting.popleft()
            if not turn.done():
                turn.set_exception(error)


class _RegionSlots(_FifoQueue[int]):
    """The VM permits of one region."""

    lease: RegionPermits | None = None
    used = 0
    holders = 0  # permits of the region
    touched = False  # since the last exchange

    @property
    def is_idle(self) -> bool:
        return not (self.used or self.holders)

    @property
    def is_wanted(self) -> bool:
        """Whether a request waits for VMs of this region."""
        return any(self.waiting_requests())

    def _fitting_size(self, wanted: int) -> int:
        if not self.lease:
            return 0
        size = min(wanted, self.lease.amount)
        return size if self.used + size <= self.lease.amount else 0

    def _is_leased(self, wanted: int) -> bool:
        return self.lease is not None and self.cloud.are_permits_valid()

    def _take_slots(self, wanted: int, size: int) -> None:
        self.used += size
        self.touched = True

    def _return_slots(self, wanted: int, size: int) -> None:
        self.used -= size


class _ActiveRegions(_FifoQueue[str]):
    """The active regions of one cloud, each with any number of holders."""

    def has_room_for(self, wanted: str) -> bool:
        lease = self.cloud.slots_of_region(wanted).lease
        return lease is not None and not lease.closing and self.cloud.are_permits_valid()

    def _fitting_size(self, wanted: str) -> int:
        return int(self.has_room_for(wanted))

    def _is_leased(self, wanted: str) -> bool:
        return self.cloud.slots_of_region(wanted).lease is not None and self.cloud.are_permits_valid()

    def _take_slots(self, wanted: str, size: int) -> None:
        place = self.cloud.slots_of_region(wanted)
        place.holders += 1
        place.touched = True

    def _return_slots(self, wanted: str, size: int) -> None:
        place = self.cloud.slots_of_region(wanted)
        place.holders -= 1
        if place.is_idle and self.waiting:
            self.cloud.request_exchange(at_once=True)  # the next region may become active


class _CloudPermits:
    """The leases of one cloud, exchanged with the store while anything is held or waited for."""

    def __init__(self, csp: str, worker: str, limits: PermitLimits, office: PermitStore) -> None:
        self._csp, self._worker, self.limits, self._store = csp, worker, limits, office
        self.regions = _ActiveRegions(self)
        self.places: dict[str, _RegionSlots] = {}
        self._until = 0.0  # expiry of all leases, by `seconds_since_boot`
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def slots_of_region(self, region: str) -> _RegionSlots:
        place = self.places.get(region)
        if place is None:
            place = self.places[region] = _RegionSlots(self)
        return place

    def are_permits_valid(self) -> bool:
        """Tells whether the leases of the last exchange have not expired."""
        return seconds_since_boot() < self._until

    def request_exchange(self, at_once: bool) -> None:
        """Starts the exchange loop; a request that needs a new lease triggers an exchange at once."""
        if self._task is None or self._task.done():
            self._news = asyncio.Event()
            self._task = asyncio.create_task(self._exchange_loop())
        elif at_once:
            self._news.set()

    async def close(self) -> None:
        if self._task and not self._task.done():
            await self.let_permits_expire()
            with suppress(StoreUnavailable):
                await self._store.exchange_permits(self._csp, self._worker, [], self.limits)

    async def let_permits_expire(self) -> None:
        """Stops without returning the leases, like a worker that dies; they expire."""
        self._until = 0.0
        if self._task:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _exchange_loop(self) -> None:
        try:
            while True:
                await asyncio.sleep(0)  # collects requests of the same moment
                self._news.clear()
                wishes = self._permit_requests()
                pause = await self._exchange_permits(wishes)
                if not wishes and not self._is_in_demand():
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._news.wait()
        except Exception as error:
            self.regions.fail_waiting_requests(error)
            for place in self.places.values():
                place.fail_waiting_requests(error)
            raise

    def _permit_requests(self) -> list[PermitRequest]:
        """Returns the leases to request: what is held, then what is waited for, in queue order. Drops the rest."""
        line = list(dict.fromkeys(self.regions.waiting_requests()))
        wishes: list[PermitRequest] = []
        given_back: set[str] = set()
        for region, place in self.places.items():
            if self._blocks_others(region, place, line):
                given_back.add(region)
                place.lease = None
            elif place.is_wanted or not place.is_idle or (place.lease and (place.touched or region in line)):
                holds = max(place.used, place.lease.amount if place.lease and self.are_permits_valid() else 0)
                wishes.append(PermitRequest(region, holds, max(1, place.used + sum(place.waiting_requests()))))
            else:
                place.lease = None
            place.touched = False
        named = given_back | {wish.region for wish in wishes}
        if given_back:
            self._news.set()  # requests for these regions are sent again, behind earlier ones
        return [
            *wishes,
            *(PermitRequest(region, 0, 1) for region in line[: self.limits.regions] if region not in named),
        ]

    def _blocks_others(self, region: str, place: _RegionSlots, line: Sequence[str]) -> bool:
        """Tells whether the region's lease is idle while another region is at the head of the queue."""
        if not line or self.regions.has_room_for(line[0]) or not place.lease or not place.is_idle:
            return False
        return place.lease.closing or region != line[0]

    def _is_in_demand(self) -> bool:
        return any(self.regions.waiting_requests()) or any(
            place.is_wanted or not place.is_idle for place in self.places.values()
        )

    async def _exchange_permits(self, wishes: Sequence[PermitRequest]) -> float:
        """Exchanges leases with the store. Returns the seconds until the next exchange."""
        asked = seconds_since_boot()
        try:
            terms = await self._store.exchange_permits(self._csp, self._worker, wishes, self.limits)
        except StoreUnavailable as error:
            _log.warning("permits of %s cannot be renewed: %s", self._csp, error)
            return CONTESTED_SECONDS
        self._until = asked + SHARE_SECONDS
        for region, place in self.places.items():
            place.lease = terms.leases.get(region)
        self.regions.serve_waiting_requests()
        for place in self.places.values():
            place.serve_waiting_requests()
        return CONTESTED_SECONDS if terms.contested else RENEW_SECONDS


class Permit(Generic[Requested]):
    """Async context manager that holds a permit while its block runs."""

    __slots__ = ("_line", "_right", "_size", "_wanted")

    def __init__(self, line: _FifoQueue[Requested], wanted: Requested, right: OrderFence | None = None) -> None:
        self._line = line
        self._wanted = wanted
        self._right = right
        self._size = 0

    async def __aenter__(self) -> int:
        """Acquires the permits and proves the right, just before a call."""
        line = self._line
        while True:
            self._size = await line.acquire_slots(self._wanted)
            if self._right is None:
                return self._size
            try:
                await self._right.prove()
            except BaseException:
                line.release_slots(self._wanted, self._size)
                raise
            if line.cloud.are_permits_valid():  # proving the right may have taken long
                return self._size
            line.release_slots(self._wanted, self._size)

    async def __aexit__(self, *_: object) -> None:
        self._line.release_slots(self._wanted, self._size)
