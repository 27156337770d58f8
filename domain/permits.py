"""How the workers of a deployment share a cloud's rate limits: each gets permits for calls in flight, per region.

Pure arithmetic over the shares of one cloud; the PermitStore calls `compute_permit_shares` under a lock. A region is
active while any worker has a live share of it. A share never falls below what its worker says it may be using: a
worker first lowers its own limit, and then its share at its next exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

SHARE_SECONDS = 4.0  # a share's lifetime: shorter than a heartbeat timeout, so permits are free before work is retried
REQUEST_SPACING = 1e-5  # requests of one exchange are this far apart in time: the earlier one goes first
NEW_REGION_GRACE = 0.5  # a region that has just become active is not closed: the worker it was opened for must get in


@dataclass(frozen=True, slots=True)
class PermitLimits:
    """The caps of one cloud: regions at once, and VMs at once in each region."""

    regions: int
    vms: Callable[[str], int]


@dataclass(frozen=True, slots=True)
class PermitShare:
    """One worker's permits for one region, valid until a time by the store's clock. An amount of 0 only asks."""

    region: str
    worker: str
    amount: int
    wants: int
    since: float
    until: float


@dataclass(frozen=True, slots=True)
class PermitRequest:
    """A worker's request for one region: the permits it may be using, and how many it could use."""

    region: str
    holds: int
    wants: int


@dataclass(frozen=True, slots=True)
class RegionPermits:
    """A worker's permits in an active region. `closing`: start no new calls there, as another region waits."""

    amount: int
    closing: bool = False


@dataclass(frozen=True)
class PermitReply:
    """The answer to an exchange. `contested`: some worker waits for more permits, so ask again soon."""

    leases: Mapping[str, RegionPermits] = field(default_factory=dict)
    contested: bool = False


class PermitStore(Protocol):
    """The protocol of the store of all workers' permit shares."""

    async def exchange_permits(
        self, cloud: str, worker: str, wishes: Sequence[PermitRequest], limits: PermitLimits
    ) -> PermitReply:
        """Replaces a worker's shares of a cloud. Regions that it no longer names are given back."""
        ...


def compute_permit_shares(
    shares: Collection[PermitShare], worker: str, wishes: Sequence[PermitRequest], limits: PermitLimits, now: float
) -> tuple[list[PermitShare], PermitReply]:
    """Computes a worker's new permit shares in a cloud, and the leases that they give it."""
    others = [share for share in shares if share.worker != worker and share.until > now]
    before = {share.region: share for share in shares if share.worker == worker and share.until > now}
    mine = [
        _renewed_share(wish, worker, before.get(wish.region), now + n * REQUEST_SPACING)
        for n, wish in enumerate(wishes)
    ]
    active, waiting = _active_and_waiting_regions([*others, *mine])
    free = max(0, limits.regions - len(active))
    for region in _sort_regions_by_age(waiting)[:free]:
        if any(share.region == region for share in mine):  # a slot whose turn is another worker's region stays free
            active[region] = now
            del waiting[region]
    settled = {region: since for region, since in active.items() if since + NEW_REGION_GRACE <= now}
    closing = set(_sort_regions_by_age(settled)[: len(waiting)])
    made: list[PermitShare] = []
    leases: dict[str, RegionPermits] = {}
    for wish, share in zip(wishes, mine, strict=True):
        if wish.region in active:
            there = [other for other in others if other.region == wish.region]
            amount, allowed = _compute_share(wish, worker, there, limits.vms(wish.region))
            leases[wish.region] = RegionPermits(allowed, wish.region in closing)
            share = replace(share, amount=amount, since=share.since if share.amount else now)
        made.append(replace(share, until=now + SHARE_SECONDS))
    return made, PermitReply(leases, bool(waiting) or _is_contested([*others, *made], active, limits))


def _renewed_share(wish: PermitRequest, worker: str, before: PermitShare | None, now: float) -> PermitShare:
    if before:
        return replace(before, wants=wish.wants)
    return PermitShare(wish.region, worker, 0, wish.wants, now, now)


def _active_and_waiting_regions(shares: Iterable[PermitShare]) -> tuple[dict[str, float], dict[str, float]]:
    """Returns the active regions and the waiting ones, each with the time since when."""
    active: dict[str, float] = {}
    waiting: dict[str, float] = {}
    for share in shares:
        which = active if share.amount else waiting
        which[share.region] = min(share.since, which.get(share.region, share.since))
    return active, {region: since for region, since in waiting.items() if region not in active}


def _sort_regions_by_age(regions: Mapping[str, float]) -> list[str]:
    return sorted(regions, key=lambda region: (regions[region], region))


def _compute_share(wish: PermitRequest, worker: str, there: Sequence[PermitShare], cap: int) -> tuple[int, int]:
    """Returns the worker's share of a region, and how much of it the worker may use; others keep their fair parts."""
    room = max(0, cap - sum(other.amount for other in there))
    entitled = cap
    if there:
        fair = _fair_shares([worker, *(other.worker for other in there)], cap)
        left_over = cap - sum(min(other.wants, fair[other.worker]) for other in there)
        enough = wish.wants + sum(other.wants for other in there) <= cap
        entitled = max(fair[worker], left_over) if enough else min(max(fair[worker], left_over), wish.wants)
    amount = min(room, max(wish.holds, entitled))
    return amount, min(amount, entitled)


def _fair_shares(workers: Sequence[str], cap: int) -> dict[str, int]:
    """Splits the cap into equal parts, each at least one."""
    part, rest = divmod(cap, len(workers))
    return {worker: max(1, part + (n < rest)) for n, worker in enumerate(sorted(workers))}


def _is_contested(shares: Sequence[PermitShare], active: Collection[str], limits: PermitLimits) -> bool:
    """Tells whether any worker has less than its fair part of what it wants."""
    for region in active:
        there = [share for share in shares if share.region == region]
        fair = _fair_shares([share.worker for share in there], limits.vms(region)) if there else {}
        if any(share.amount < min(share.wants, fair[share.worker]) for share in there):
            return True
    return False
