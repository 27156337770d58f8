"""Permits that workers share: fair shares, none lost with a dead worker, none used after it expired."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from activities import permits as module
from activities.fence import seconds_since_boot
from activities.permits import PermitPool
from domain.errors import StoreUnavailable, Superseded
from domain.limits import CAPS_BY_CLOUD, CloudCaps, ConcurrencyCaps
from domain.permits import (
    NEW_REGION_GRACE,
    SHARE_SECONDS,
    PermitLimits,
    PermitReply,
    PermitRequest,
    PermitShare,
    compute_permit_shares,
)
from tests.localpermits import LocalPermitStore
from tests.patience import PATIENCE
from tests.test_permits import Visitor, leave_all
from workers.connections import parse_connections

CAPS = ConcurrencyCaps({"aws": CloudCaps(regions=2, vms=6), "other": CloudCaps(regions=10, vms=30)})
LIMITS = PermitLimits(2, lambda _region: 6)


class Clock:
    """A clock that only a test moves, as time goes on while a process is frozen: no lease runs out by itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = seconds_since_boot()
        monkeypatch.setattr(module, "seconds_since_boot", lambda: self._now)

    def jump(self, seconds: float) -> None:
        self._now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Counting(LocalPermitStore):
    """An office that knows who has asked how often."""

    def __init__(self) -> None:
        super().__init__()
        self._asked: Counter[str] = Counter()

    async def exchange_permits(self, cloud: str, worker: str, wishes: object, limits: PermitLimits) -> PermitReply:
        terms = await super().exchange_permits(cloud, worker, wishes, limits)  # type: ignore[arg-type]
        self._asked[worker] += 1
        return terms

    async def heard(self, workers: int) -> None:
        """Until so many have asked, and every one of them once more after all the others."""
        async with asyncio.timeout(PATIENCE):
            while len(self._asked) < workers:
                await asyncio.sleep(0.01)
            before = Counter(self._asked)
            while any(self._asked[worker] < times + 2 for worker, times in before.items()):
                await asyncio.sleep(0.01)


async def until(number: int, visitors: list[Visitor]) -> None:
    async with asyncio.timeout(PATIENCE):
        while sum(visitor.inside for visitor in visitors) != number:
            await asyncio.sleep(0.01)


async def test_one_worker_alone_has_all_of_it_and_two_have_halves(clock: Clock) -> None:
    office = Counting()
    one, two = PermitPool(CAPS, office), PermitPool(CAPS, office)
    first = [Visitor(one.take_vm_slots("aws", "r1")) for _ in range(8)]
    await until(6, first)
    second = [Visitor(two.take_vm_slots("aws", "r1")) for _ in range(8)]
    await office.heard(2)  # the first hears of it when it renews
    for visitor in [visitor for visitor in first if visitor.inside][:3]:
        await visitor.leave()
    await until(3, second)
    assert sum(visitor.inside for visitor in first) == 3, "two wait, and it has its half"
    await leave_all(*first, *second)
    await asyncio.gather(one.return_all_permits(), two.return_all_permits())


async def test_what_one_worker_does_not_need_another_one_gets(clock: Clock) -> None:
    office = LocalPermitStore()
    one, two = PermitPool(CAPS, office), PermitPool(CAPS, office)
    few, many = [Visitor(one.take_vm_slots("aws", "r1"))], [Visitor(two.take_vm_slots("aws", "r1")) for _ in range(8)]
    await until(1, few)
    await until(5, many)
    await leave_all(*few)
    await until(6, many)
    await leave_all(*many)
    await asyncio.gather(one.return_all_permits(), two.return_all_permits())


async def test_a_region_of_another_worker_gets_its_turn(clock: Clock) -> None:
    office = Counting()
    one, two = PermitPool(CAPS, office), PermitPool(CAPS, office)
    active = [Visitor(one.take_region_permit("aws", region)) for region in ("r1", "r2")]
    await until(2, active)
    clock.jump(2 * NEW_REGION_GRACE)
    waiting = Visitor(two.take_region_permit("aws", "r3"))
    await office.heard(2)  # the oldest of the active regions is told to close
    clock.jump(NEW_REGION_GRACE)  # who comes now is behind the one that waits
    late = Visitor(one.take_region_permit("aws", "r1"))
    await active[0].leave()
    await until(1, [waiting])
    assert not late.inside
    await leave_all(waiting)
    await until(1, [late])
    await leave_all(late, active[1])
    await asyncio.gather(one.return_all_permits(), two.return_all_permits())


async def test_a_region_that_is_active_at_another_worker_is_entered_by_this_one_too(clock: Clock) -> None:
    office = LocalPermitStore()
    one, two = PermitPool(CAPS, office), PermitPool(CAPS, office)
    active = [Visitor(one.take_region_permit("aws", region)) for region in ("r1", "r2")]
    await until(2, active)
    joined = [Visitor(two.take_region_permit("aws", region)) for region in ("r1", "r2")]
    await until(2, joined)
    await leave_all(*active, *joined)
    await asyncio.gather(one.return_all_permits(), two.return_all_permits())


async def test_a_lease_that_ran_out_while_the_process_was_frozen_admits_nobody(clock: Clock) -> None:
    office = Unsteady()
    permits = PermitPool(CAPS, office)
    holder = Visitor(permits.take_vm_slots("aws", "r1"))
    await until(1, [holder])
    office.away = True
    clock.jump(SHARE_SECONDS + 0.1)
    eager = Visitor(permits.take_vm_slots("aws", "r1"))
    await asyncio.sleep(0.1)
    assert not eager.inside, "five are free by the last lease, but that is over"
    office.away = False
    await until(1, [eager])
    await leave_all(holder, eager)
    await permits.return_all_permits()


async def test_a_lease_that_runs_out_while_the_right_is_proven_is_asked_for_again(clock: Clock) -> None:
    office = Unsteady()
    permits, right = PermitPool(CAPS, office), SlowRight(clock)
    async with permits.take_vm_slots("aws", "r1", 1, right):  # type: ignore[arg-type]
        asked = office.asked
    assert right.proofs == 2, "the first proof came too late for its permits"
    assert asked >= 2
    right.refuse = True
    with pytest.raises(Superseded):
        async with permits.take_vm_slots("aws", "r1", 6, right):  # type: ignore[arg-type]
            raise AssertionError("no right, no order")
    assert permits.slots_in_use() == {}
    await permits.return_all_permits()


async def test_what_a_dead_worker_had_is_free_when_its_time_is_over(clock: Clock) -> None:
    office = LocalPermitStore()
    dead, alive = PermitPool(CAPS, office), PermitPool(CAPS, office)
    lost = [Visitor(dead.take_vm_slots("aws", "r1")) for _ in range(6)]
    await until(6, lost)
    await dead._permits_of_cloud("aws").let_permits_expire()
    others = [Visitor(alive.take_vm_slots("aws", "r1")) for _ in range(6)]
    await asyncio.sleep(0.5)
    assert not any(visitor.inside for visitor in others)
    clock.jump(SHARE_SECONDS)
    await until(6, others)
    await leave_all(*others)
    for visitor in lost:
        await visitor.cancel()
    await alive.return_all_permits()


async def test_a_worker_that_leaves_gives_everything_back_at_once(clock: Clock) -> None:
    office = LocalPermitStore()
    one, two = PermitPool(CAPS, office), PermitPool(CAPS, office)
    async with one.take_vm_slots("aws", "r1", 6):
        pass
    await one.return_all_permits()
    async with asyncio.timeout(PATIENCE), two.take_vm_slots("aws", "r1", 6) as size:
        assert size == 6
    await two.return_all_permits()


@dataclass
class Unsteady(LocalPermitStore):
    """An office that can be away."""

    away: bool = False
    asked: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    async def exchange_permits(self, cloud: str, worker: str, wishes: object, limits: PermitLimits) -> PermitReply:
        self.asked += 1
        if self.away:
            raise StoreUnavailable("away")
        return await super().exchange_permits(cloud, worker, wishes, limits)  # type: ignore[arg-type]


@dataclass
class SlowRight:
    """The first proof takes longer than a lease lives."""

    clock: Clock
    proofs: int = 0
    refuse: bool = False

    async def prove(self) -> None:
        if self.refuse:
            raise Superseded("no")
        self.proofs += 1
        if self.proofs == 1:
            self.clock.jump(SHARE_SECONDS + 0.1)


# Of the arithmetic: whatever workers wish, hold and forget, in whatever order, the caps hold.


@dataclass
class Member:
    """A worker of the model: what it may use, and what it does use."""

    leases: dict[str, int] = field(default_factory=dict)
    used: Counter[str] = field(default_factory=Counter)
    overdue: Counter[str] = field(default_factory=Counter)  # of it, what was in flight when a lease ended
    until: float = 0.0


STEP = st.tuples(
    st.sampled_from(["exchange", "exchange", "take", "take", "give", "freeze", "wait"]),
    st.integers(0, 3),
    st.sampled_from(["r1", "r2", "r3"]),
    st.integers(1, 8),
)


LATE = [("exchange", 0, "r1", 1), ("take", 0, "r1", 6), *[("wait", 0, "r1", 8)] * 2]  # its lease ends meanwhile


@settings(max_examples=3 * settings().max_examples, deadline=None)
@example(steps=[*LATE, ("exchange", 2, "r1", 1), ("take", 2, "r1", 1), ("exchange", 0, "r1", 1), ("take", 0, "r1", 1)])
@given(steps=st.lists(STEP, min_size=20, max_size=80))
def test_no_order_of_exchanges_lets_workers_have_more_than_the_caps(steps: list[tuple[str, int, str, int]]) -> None:
    now, shares, members = 1_000.0, list[PermitShare](), [Member() for _ in range(4)]
    for what, which, region, number in steps:
        member, name = members[which], f"w{which}"
        if what == "wait":
            now += number / 4
        elif what == "freeze":
            now += SHARE_SECONDS + 1
            for one in members:
                one.used.clear()  # what was in flight has ended
                one.overdue.clear()
        elif what == "give":
            member.used[region] = max(0, member.used[region] - number)
            member.overdue &= member.used
        elif what == "take" and now < member.until:
            free = member.leases.get(region, 0) - member.used[region]
            member.used[region] += max(0, min(free, number))
        elif what == "exchange":
            shares = _exchange(shares, name, member, region, number, now)
        _check(members, now)


def _exchange(
    shares: list[PermitShare], name: str, member: Member, region: str, number: int, now: float
) -> list[PermitShare]:
    live = now < member.until
    if not live:
        member.overdue = +member.used
    held = {one: max(member.used[one], member.leases.get(one, 0) if live else 0) for one in +member.used}
    wishes = [PermitRequest(one, holds, max(1, holds)) for one, holds in held.items()]
    if region not in held:
        wishes.append(PermitRequest(region, member.leases.get(region, 0) if live else 0, number))
    mine, terms = compute_permit_shares(shares, name, wishes, LIMITS, now)
    member.leases, member.until = {one: lease.amount for one, lease in terms.leases.items()}, now + SHARE_SECONDS
    return [*(share for share in shares if share.worker != name), *mine]


def _check(members: list[Member], now: float) -> None:
    in_use: Counter[str] = Counter()
    for member in members:
        if now < member.until:  # what is in flight longer than that is what nobody can take back
            in_use.update(+member.used - member.overdue)
    assert max(in_use.values(), default=0) <= 6
    assert len(+in_use) <= 2


# Limits that connections lower.


def test_a_connection_lowers_the_caps_and_never_raises_them() -> None:
    place = {"provider": "simulated", "csp": "ncp"}
    document = {
        "low": {**place, "region": "a", "limits": {"vms": 4, "regions": 2}},
        "high": {**place, "region": "b", "limits": {"vms": 400}},
        "usual": {**place, "region": "c"},
    }
    limits = ConcurrencyCaps(lower_caps=parse_connections({"connections": document}, "file").caps_by_region())
    ncp = limits.limits_of_cloud("ncp")
    assert (ncp.regions, [ncp.vms(region) for region in "abc"]) == (2, [4, 15, 15])
    assert limits.limits_of_cloud("aws").regions == CAPS_BY_CLOUD["aws"].regions


def test_a_cloud_that_the_table_does_not_name_has_ten_regions_and_thirty_vms() -> None:
    nimbus = ConcurrencyCaps().limits_of_cloud("nimbus")
    assert (nimbus.regions, nimbus.vms("anywhere")) == (10, 30)
