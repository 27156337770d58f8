"""The listing of what lives in a region: EC2 is read once for all of its pages."""

from __future__ import annotations

from unittest.mock import AsyncMock

import pytest

from domain.ports import FIRST_VM, VmFacts, VmState
from providers.listings import MAX_READINGS, VmListingCache
from tests.faulty import Moto
from tests.patience import PATIENCE
from tests.test_aws.conftest import REGION, CloudMaker
from tests.test_clouds.kit import PARENT, create


async def test_a_region_is_listed_page_by_page_in_the_order_of_paths_which_ec2_does_not_have(
    cloud: CloudMaker, moto: Moto, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small pages on both sides: EC2's of five, ours of two. EC2 is read once if memory and time allow it."""
    monkeypatch.setattr("providers.aws.ec2.PAGE_SIZE", 5)
    monkeypatch.setattr("providers.listings.VMS_PER_PAGE", 2)
    monkeypatch.setattr("providers.listings.FRESH_SECONDS", PATIENCE)
    ec2 = cloud()
    made = sorted(await create(ec2, *"gbfaced"), key=lambda vm: vm.key)

    async def list_pages() -> int:
        """Lists all, and returns how many of EC2's pages were read for it."""
        before, listed = moto.ec2.calls["DescribeInstances"], list[VmFacts]()
        while page := await ec2.list_tagged_vms(REGION, PARENT, listed[-1].key if listed else FIRST_VM):
            assert len(page) <= 2
            listed += page
        assert listed == made
        return moto.ec2.calls["DescribeInstances"] - before

    assert await list_pages() == 2
    assert await list_pages() == 2  # a new listing is a new reading
    with monkeypatch.context() as little_memory:
        little_memory.setattr("providers.listings.VMS_READ_AHEAD", 4)
        assert await list_pages() == 2 * 2
    monkeypatch.setattr("providers.listings.FRESH_SECONDS", -1.0)
    assert await list_pages() == 5 * 2


async def test_many_listings_at_once_are_read_again_rather_than_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("providers.listings.VMS_PER_PAGE", 1)
    listings, vms = VmListingCache(), [VmFacts(name, f"i-{name}", VmState.RUNNING) for name in "ab"]
    read = AsyncMock(side_effect=lambda _most: vms)
    for n in range(MAX_READINGS + 1):
        assert await listings.take_page(f"p{n}", FIRST_VM, read) == vms[:1]
    assert await listings.take_page(f"p{MAX_READINGS}", vms[0].key, read) == vms[1:]
    assert read.await_count == MAX_READINGS + 1
    await listings.take_page("p0", vms[0].key, read)  # it was let go
    assert read.await_count == MAX_READINGS + 2
