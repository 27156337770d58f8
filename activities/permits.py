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

from activities.fence import OrderRight, boot_time
from domain.errors import StoreUnavailable
from domain.limits import ConcurrencyCaps
from domain.permits import (
    SECONDS,
    PermitLease,
    PermitLimits,
    PermitRequest,
    PermitShare,
    PermitStore,
    PermitTerms,
    settle,
)

Requested = TypeVar("Requested")
_log = logging.getLogger("ratchet.permits")

RENEW_SECONDS = 1.0
CONTESTED_SECONDS = 0.25  # while a request waits for more


class Permits:
    """This worker's permits. One instance per process, shared by all activities."""

    def __init__(self, limits: ConcurrencyCaps, office: PermitStore | None = None) -> None:
        self._limits = limits
        self._office = office or LocalPermitStore()
        self._worker = uuid.uuid4().hex
        self._clouds: dict[str, _CloudLeases] = {}

    def vm_cap(self, csp: str, region: str) -> int:
        """Returns how many VMs of a region all workers together may work on at once."""
        return self._cloud(csp).limits.vms(region)

    def region(self, csp: str, region: str) -> Permit[str]:
        """Returns a permit to work in a region. An active region is entered freely, unless others are in the queue."""
        return Permit(self._cloud(csp).regions, region)

    def vms(self, csp: str, region: str, n: int = 1, right: OrderRight | None = None) -> Permit[int]:
        """Returns a permit to work on up to `n` VMs of a region; `async with` yields the number granted, at least one.

        With a right, it is proven once the permits are granted.
        """
        cap = self.vm_cap(csp, region)
        if not 1 <= n <= cap:
            raise ValueError(f"{n} VMs at once in {csp}/{region}: the cap is {cap}")
        return Permit(self._cloud(csp).place(region), n, right)

    def in_use(self) -> dict[str, int]:
        """Returns the VM permits in use, per cloud/region; empty at rest."""
        return {
            f"{csp}/{region}": place.used
            for csp, cloud in self._clouds.items()
            for region, place in cloud.places.items()
            if place.used
        }

    async def close(self) -> None:
        """Returns all leases to the store."""
        for cloud in self._clouds.values():
            await cloud.close()

    def _cloud(self, csp: str) -> _CloudLeases:
        cloud = self._clouds.get(csp)
        if cloud is None:
            cloud = self._clouds[csp] = _CloudLeases(csp, self._worker, self._limits.for_cloud(csp), self._office)
        return cloud


class _FifoQueue(ABC, Generic[Requested]):
    """Serves requests in order: a request that does not fit waits, and no later one overtakes it."""

    def __init__(self, cloud: _CloudLeases) -> None:
        self.cloud = cloud
        self.waiting: deque[tuple[Requested, asyncio.Future[int]]] = deque()

    @abstractmethod
    def _size(self, wanted: Requested) -> int:
        """Returns how much of the request can be granted now; 0 if none."""

    @abstractmethod
    def _leased(self, wanted: Requested) -> bool:
        """Tells whether the lease exists and only room in it is missing."""

    @abstractmethod
    def _take(self, wanted: Requested, size: int) -> None: ...

    @abstractmethod
    def _give(self, wanted: Requested, size: int) -> None: ...

    async def enter(self, wanted: Requested) -> int:
        while True:
            if not self.waiting and self.cloud.is_covered() and (size := self._size(wanted)):
                self._take(wanted, size)
                return size
            size = await self._turn(wanted)
            if self.cloud.is_covered():  # the lease may have expired since, if the process was frozen
                return size
            self._give(wanted, size)

    async def _turn(self, wanted: Requested) -> int:
        turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.waiting.append((wanted, turn))
        self.cloud.ask(at_once=not self._leased(wanted))
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and not turn.exception():  # granted just now: pass it on
                self._give(wanted, turn.result())
            self.serve()
            if self.waiting:
                self.cloud.ask(at_once=True)  # the next request may not have been sent to the store
            raise

    def leave(self, wanted: Requested, size: int) -> None:
        self._give(wanted, size)
        self.serve()

    def serve(self) -> None:
        """Serves the queue from its head until a request does not fit."""
        while self.waiting:
            wanted, turn = self.waiting[0]
            if not turn.done():
                size = self._size(wanted) if self.cloud.is_covered() else 0
                if not size:
                    return
                self._take(wanted, size)
                turn.set_result(size)
            self.waiting.popleft()

    def queue(self) -> Iterator[Requested]:
        """Yields the requests that are still waiting."""
        return (wanted for wanted, turn in self.waiting if not turn.done())

    def fail(self, error: BaseException) -> None:
        while self.waiting:
            _, turn = self.waiting.popleft()
            if not turn.done():
                turn.set_exception(error)


class _RegionVms(_FifoQueue[int]):
    """The VM permits of one region."""

    lease: PermitLease | None = None
    used = 0
    holders = 0  # permits of the region
    touched = False  # since the last exchange

    @property
    def idle(self) -> bool:
        return not (self.used or self.holders)

    @property
    def wanted(self) -> bool:
        """Whether a request waits for VMs of this region."""
        return any(self.queue())

    def wants(self) -> int:
        return max(1, self.used + sum(self.queue()))

    def _size(self, wanted: int) -> int:
        if not self.lease:
            return 0
        size = min(wanted, self.lease.amount)
        return size if self.used + size <= self.lease.amount else 0

    def _leased(self, wanted: int) -> bool:
        return self.lease is not None and self.cloud.is_covered()

    def _take(self, wanted: int, size: int) -> None:
        self.used += size
        self.touched = True

    def _give(self, wanted: int, size: int) -> None:
        self.used -= size


class _Regions(_FifoQueue[str]):
    """The active regions of one cloud, each with any number of holders."""

    def fits(self, wanted: str) -> bool:
        lease = self.cloud.place(wanted).lease
        return lease is not None and not lease.closing and self.cloud.is_covered()

    def _size(self, wanted: str) -> int:
        return int(self.fits(wanted))

    def _leased(self, wanted: str) -> bool:
        return self.cloud.place(wanted).lease is not None and self.cloud.is_covered()

    def _take(self, wanted: str, size: int) -> None:
        place = self.cloud.place(wanted)
        place.holders += 1
        place.touched = True

    def _give(self, wanted: str, size: int) -> None:
        place = self.cloud.place(wanted)
        place.holders -= 1
        if place.idle and self.waiting:
            self.cloud.ask(at_once=True)  # the next region may become active


class _CloudLeases:
    """The leases of one cloud, exchanged with the store while anything is held or waited for."""

    def __init__(self, csp: str, worker: str, limits: PermitLimits, office: PermitStore) -> None:
        self._csp, self._worker, self.limits, self._office = csp, worker, limits, office
        self.regions = _Regions(self)
        self.places: dict[str, _RegionVms] = {}
        self._until = 0.0  # expiry of all leases, by `boot_time`
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def place(self, region: str) -> _RegionVms:
        place = self.places.get(region)
        if place is None:
            place = self.places[region] = _RegionVms(self)
        return place

    def is_covered(self) -> bool:
        """Tells whether the leases of the last exchange have not expired."""
        return boot_time() < self._until

    def ask(self, at_once: bool) -> None:
        """Starts the exchange loop; a request that needs a new lease triggers an exchange at once."""
        if self._task is None or self._task.done():
            self._news = asyncio.Event()
            self._task = asyncio.create_task(self._exchange_loop())
        elif at_once:
            self._news.set()

    async def close(self) -> None:
        if self._task and not self._task.done():
            await self.abandon()
            with suppress(StoreUnavailable):
                await self._office.exchange(self._csp, self._worker, [], self.limits)

    async def abandon(self) -> None:
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
                wishes = self._wishes()
                pause = await self._exchange(wishes)
                if not wishes and not self._in_demand():
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._news.wait()
        except Exception as error:
            self.regions.fail(error)
            for place in self.places.values():
                place.fail(error)
            raise

    def _wishes(self) -> list[PermitRequest]:
        """Returns the leases to request: what is held, then what is waited for, in queue order. Drops the rest."""
        line = list(dict.fromkeys(self.regions.queue()))
        wishes: list[PermitRequest] = []
        given_back: set[str] = set()
        for region, place in self.places.items():
            if self._blocks_others(region, place, line):
                given_back.add(region)
                place.lease = None
            elif place.wanted or not place.idle or (place.lease and (place.touched or region in line)):
                holds = max(place.used, place.lease.amount if place.lease and self.is_covered() else 0)
                wishes.append(PermitRequest(region, holds, place.wants()))
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

    def _blocks_others(self, region: str, place: _RegionVms, line: Sequence[str]) -> bool:
        """Tells whether the region's lease is idle while another region is at the head of the queue."""
        if not line or self.regions.fits(line[0]) or not place.lease or not place.idle:
            return False
        return place.lease.closing or region != line[0]

    def _in_demand(self) -> bool:
        return any(self.regions.queue()) or any(place.wanted or not place.idle for place in self.places.values())

    async def _exchange(self, wishes: Sequence[PermitRequest]) -> float:
        """Exchanges leases with the store. Returns the seconds until the next exchange."""
        asked = boot_time()
        try:
            terms = await self._office.exchange(self._csp, self._worker, wishes, self.limits)
        except StoreUnavailable as error:
            _log.warning("permits of %s cannot be renewed: %s", self._csp, error)
            return CONTESTED_SECONDS
        self._until = asked + SECONDS
        for region, place in self.places.items():
            place.lease = terms.leases.get(region)
        self.regions.serve()
        for place in self.places.values():
            place.serve()
        return CONTESTED_SECONDS if terms.contested else RENEW_SECONDS


class LocalPermitStore:
    """Permit store in memory, for a single worker or several in one process."""

    def __init__(self) -> None:
        self._shares: dict[str, list[PermitShare]] = {}

    async def exchange(
        self, cloud: str, worker: str, wishes: Sequence[PermitRequest], limits: PermitLimits
    ) -> PermitTerms:
        shares = self._shares.get(cloud, [])
        mine, terms = settle(shares, worker, wishes, limits, boot_time())
        self._shares[cloud] = [*(share for share in shares if share.worker != worker), *mine]
        return terms


class Permit(Generic[Requested]):
    """Async context manager that holds a permit while its block runs."""

    __slots__ = ("_line", "_right", "_size", "_wanted")

    def __init__(self, line: _FifoQueue[Requested], wanted: Requested, right: OrderRight | None = None) -> None:
        self._line = line
        self._wanted = wanted
        self._right = right
        self._size = 0

    async def __aenter__(self) -> int:
        """Acquires the permits and proves the right, just before a call."""
        line = self._line
        while True:
            self._size = await line.enter(self._wanted)
            if self._right is None:
                return self._size
            try:
                await self._right.prove()
            except BaseException:
                line.leave(self._wanted, self._size)
                raise
            if line.cloud.is_covered():  # proving the right may have taken long
                return self._size
            line.leave(self._wanted, self._size)

    async def __aexit__(self, *_: object) -> None:
        self._line.leave(self._wanted, self._size)
