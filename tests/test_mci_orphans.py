"""Orphans: VMs that live in a cloud with a path of ours, and that no record knows, are found wherever they are."""

from __future__ import annotations

from domain.mci.messages import READ_ORPHANS, Orphan, OrphanQuery, Orphans
from domain.ports import Order, VmFacts
from domain.wire import placement
from tests.user import User


async def late(user: User, path: str, token: str, csp: str = "aws", n: int = 0) -> VmFacts:
    """A VM that a cloud made after all, as its order was on the way for long."""
    (made,) = await user.service.simulated[csp].perform("create", user.region(n), [Order(path, token, epoch=10**9)])
    assert isinstance(made, VmFacts)
    return made


async def orphans(user: User, path: str, limit: int = 500) -> list[Orphan]:
    """All of them, page by page."""
    found: list[Orphan] = []
    after: Orphan | None = Orphan()
    while after is not None:
        query = OrphanQuery(path=path, after=after, limit=limit)
        page = await user.asking.read(READ_ORPHANS, query, Orphans)
        assert len(page.orphans) <= limit
        found, after = found + page.orphans, page.after
    return found


async def test_vms_of_an_mci_that_is_gone_are_found_in_places_without_a_record(user: User) -> None:
    gone = f"ns:{user.ns}:mci:gone"
    made = [await late(user, f"{gone}:vm:g-{n}", f"{gone} {n}", csp) for n in range(3) for csp in ("aws", "gcp")]
    found = await orphans(user, gone)
    assert {(each.path, each.cloud_id) for each in found} == {(vm.path, vm.cloud_id) for vm in made}
    assert {each.record for each in found} == {"none"}
    assert {each.place for each in found} == {placement(csp, user.region()) for csp in ("aws", "gcp")}
    assert await orphans(user, gone, limit=1) == found, "in pages of any size"
    cloud = user.service.simulated["aws"]
    for vm in made[::2]:
        await cloud.perform(
            "terminate", user.region(), [Order(vm.path, f"end {vm.cloud_id}", vm.cloud_id, epoch=10**9)]
        )
    assert {each.place for each in await orphans(user, gone)} == {placement("gcp", user.region())}


async def test_a_second_vm_of_a_record_is_an_orphan_and_the_records_own_is_none(user: User) -> None:
    path = f"ns:{user.ns}:mci:web"
    await user.do(path, "create", spec=user.groups("aws"))
    assert await orphans(user, path) == []
    double = await late(user, f"{path}:vm:aws-1", "of another life")
    (found,) = await orphans(user, path)
    own = (await user.service.inventory.get(f"{path}:vm:aws-1")).info["cloud_id"]
    assert (found.cloud_id, found.record) == (double.cloud_id, f"Running as {own}")
