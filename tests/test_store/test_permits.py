"""Permits in the store: workers that lease at the same moment never exceed the caps, on both databases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import sqlalchemy as sa

from domain.permits import PermitLimits, PermitReply, PermitRequest
from store import permits
from store.schema import permits as shares
from tests.test_store.driver import StoreDriver
from tests.test_store.test_races import together

LIMITS = PermitLimits(2, lambda _region: 6)


def leasing(worker: int) -> Callable[[sa.Connection], PermitReply]:
    wishes = (
        [PermitRequest(f"r{worker % 3}", 0, 4), PermitRequest("r0", 0, 4)]
        if worker % 3
        else [PermitRequest("r0", 0, 4)]
    )
    return partial(permits.exchange_permits, cloud="aws", worker=f"w{worker}", wishes=wishes, limits=LIMITS)


async def test_workers_that_lease_in_the_same_moment_never_get_more_than_the_caps(
    driver: StoreDriver, rival: StoreDriver
) -> None:
    for _ in range(2):  # the second time they have shares already
        together([driver, rival], [leasing(worker) for worker in range(12)])
        rows = await driver.database.run_transaction(
            lambda connection: connection.execute(sa.select(shares)).mappings().all()
        )
        amounts: Counter[str] = Counter()
        for row in rows:
            amounts[row["region"]] += row["amount"]
        assert 1 <= max(amounts.values()) <= 6
        assert 1 <= len(+amounts) <= 2


async def test_a_worker_that_names_nothing_gives_everything_back(driver: StoreDriver) -> None:
    await driver.database.run_transaction(leasing(1))
    nothing = partial(permits.exchange_permits, cloud="aws", worker="w1", wishes=[], limits=LIMITS)
    await driver.database.run_transaction(nothing)
    left = sa.select(shares.c.worker).where(shares.c.worker != "")
    assert await driver.database.run_transaction(lambda connection: connection.execute(left).all()) == []
