"""The audit of VMs: records and clouds compared, without a server."""

from __future__ import annotations

from typing import Any

from activities.mci.listing import VmListing
from activities.orphans import OrphanActivities
from activities.permits import PermitPool
from activities.retry import ProviderRetry
from domain.limits import ConcurrencyCaps
from domain.model import TargetLanding
from domain.ports import VmFacts, VmKey, VmState
from tests.localpermits import LocalPermitStore
from tests.test_store.driver import FRONT_1, FRONT_2, StoreDriver, group
from tests.test_store.driver import WEB as MCI


class Regions:
    """A cloud that says what it was told to, by region."""

    def __init__(self, **there: list[VmFacts]) -> None:
        self.there = there

    async def list_tagged_vms(self, region: str, prefix: str, after: VmKey) -> list[VmFacts]:
        return sorted((vm for vm in self.there.get(region, []) if vm.key > after), key=lambda vm: vm.key)[:2]


async def audit(driver: StoreDriver, **there: list[VmFacts]) -> tuple[list[tuple[str, str]], int]:
    clouds: dict[str, Any] = {"aws": Regions(**there)}

    async def places() -> list[str]:
        return ["aws/eu1", "aws/eu2"]

    permits = PermitPool(ConcurrencyCaps(), LocalPermitStore())
    listing = VmListing(clouds, permits, ProviderRetry(), places)
    findings, size = await OrphanActivities(driver.inventory, [listing], None).find_violations("")  # type: ignore[arg-type]
    return [(finding.path, finding.what) for finding in findings], size


async def test_a_vm_that_is_as_its_record_says_is_counted_and_a_second_one_is_named_with_the_first(
    driver: StoreDriver,
) -> None:
    grant = await driver.grant(MCI, "create", spec={"subGroups": [group(region="eu1")]})
    for chunk in grant.chunks:
        targets = await driver.inventory.list_targets(chunk)
        landed = [TargetLanding(target.path, "Running", {"cloud_id": f"i-{target.path[-1]}"}) for target in targets]
        await driver.inventory.land_targets(chunk, landed, driver.now())
    await driver.finish(grant)
    mine, other = VmFacts(FRONT_1, "i-1", VmState.RUNNING), VmFacts(FRONT_2, "i-2", VmState.RUNNING)
    assert await audit(driver, eu1=[mine, other]) == ([], 2)
    twin = VmFacts(FRONT_1, "i-9", VmState.RUNNING)
    assert await audit(driver, eu1=[mine, other], eu2=[twin]) == (
        [(FRONT_1, "is running in aws/eu2 as i-9, but its record is Running as i-1; see: starter orphans list")],
        3,
    )
    off = VmFacts(FRONT_2, "i-2", VmState.STOPPED)
    assert await audit(driver, eu1=[off]) == (
        [
            (FRONT_2, "is Running, but stopped in its cloud"),
            (FRONT_1, "is Running, but its cloud knows no such VM"),
        ],
        1,
    )
