"""verify compares 10,000 records with what lives outside, and holds a page of each in memory."""

from __future__ import annotations

import asyncio
import tracemalloc
from bisect import bisect_right
from typing import Any

import sqlalchemy as sa

from activities.access import Authorizer
from activities.mci.listing import VmListing
from activities.mci.vms import order_token
from activities.orphans import OrphanActivities
from activities.permits import PermitPool
from activities.retry import ProviderRetry
from domain.limits import ConcurrencyCaps
from domain.ports import VMS_PER_PAGE, VmFacts, VmKey, VmState
from store.engine import Database
from store.inventory import SqlInventory
from tests.localpermits import LocalPermitStore
from tests.test_store.crowd import MEMBERS
from tests.test_store.driver import NS
from workers.families import FAMILIES, merge_hooks

PLACE = "aws/eu-1"
GROUPS = 100  # of the crowded store's: ten pages, each several times what may be held
MISSING = [f"{NS}:mci:m{group}:vm:front-{member}" for group, member in ((0, 1), (7, 100), (99, 99))]
STRAY = f"{NS}:mci:m12:vm:front-5x"
KILOBYTES_PER_THING = 8  # of a page: a record with its documents, and the VM; measured: about 4


class Generated:
    """A cloud that has nearly every VM of the crowded store, and makes its answers up as it is asked."""

    def __init__(self) -> None:
        paths = {f"{NS}:mci:m{group}:vm:front-{member + 1}" for group in range(GROUPS) for member in range(MEMBERS)}
        self.paths = sorted(paths - set(MISSING) | {STRAY})
        self.largest = 0

    async def list_tagged_vms(self, region: str, prefix: str, after: VmKey) -> list[VmFacts]:
        await asyncio.sleep(0)
        start = bisect_right(self.paths, after[0])
        page = [
            VmFacts(path, f"i-{path}", VmState.RUNNING, token=order_token(path, 1, "create", 0))
            for path in self.paths[start : start + VMS_PER_PAGE]
        ]
        self.largest = max(self.largest, len(page))
        return page


def leave_groups(connection: sa.Connection) -> None:
    """Remove the VMs of the other groups: to measure memory takes long."""
    connection.execute(sa.text("DELETE FROM objects WHERE kind = 'vm' AND epoch > :last"), {"last": GROUPS})


async def test_verify_of_a_large_store_keeps_a_page_in_memory_and_finds_what_differs(crowded: Database) -> None:
    cloud = Generated()
    clouds: dict[str, Any] = {"aws": cloud}

    async def places() -> list[str]:
        return [PLACE]

    listing = VmListing(clouds, PermitPool(ConcurrencyCaps(), LocalPermitStore()), ProviderRetry(), places)
    inventory = SqlInventory(crowded, merge_hooks(FAMILIES), Authorizer())
    activities = OrphanActivities(inventory, [listing], None)  # type: ignore[arg-type]
    crowded.run_transaction_blocking(leave_groups)
    tracemalloc.start()
    try:
        findings, size = await activities.find_violations("")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size == len(cloud.paths)
    assert sorted(finding.path for finding in findings) == sorted([*MISSING, STRAY])
    assert cloud.largest == VMS_PER_PAGE
    assert peak < VMS_PER_PAGE * KILOBYTES_PER_THING * 1024, f"{peak / 1e6:.1f} MB"
