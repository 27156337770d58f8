"""Shared resources are made once per token, in order, and removed when nobody needs them. Offers of a region."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from domain.errors import Rejected, UnknownOutcome
from domain.faults import Fault, FaultKind
from domain.ports import SHARED_RESOURCE_TYPES, Cloud, VmFacts, VmOrder
from tests.test_clouds.kit import ELSEWHERE, REGION, Subject, do, on, orders, prepare, shared


def within(made: dict[str, str]) -> VmOrder:
    """A VM in what was prepared."""
    [order] = orders("a")
    return replace(order, spec={**order.spec, "network": made})


pytestmark = pytest.mark.bare


async def test_what_is_offered_passes_and_what_is_not_is_named(cloud: Cloud) -> None:
    assert await cloud.list_missing_offers(REGION, ["small"], ["ubuntu-24.04"]) == []
    problems = await cloud.list_missing_offers(REGION, ["small", "huge"], ["ubuntu-24.04", "beos-5"])
    assert len(problems) == 2
    assert "huge" in problems[0]
    assert "beos-5" in problems[1]
    assert await cloud.list_missing_offers(REGION, [], []) == []


async def test_a_shared_resource_is_there_once_however_often_it_is_made(subject: Subject) -> None:
    first = await prepare(subject.cloud)
    assert set(first) == set(SHARED_RESOURCE_TYPES)
    assert len(set(first.values())) == 3
    assert await prepare(subject.cloud) == first
    assert await prepare(subject.cloud, token="second") != first


@pytest.mark.parametrize("what", SHARED_RESOURCE_TYPES)
async def test_a_lost_answer_does_not_make_it_twice(subject: Subject, what: str) -> None:
    await subject.fault(Fault(kind=FaultKind.LOSE_ANSWER, verb="prepare", vm=what, times=1))
    made: dict[str, str] = {}
    for each in SHARED_RESOURCE_TYPES:
        try:
            made[each] = await subject.cloud.prepare_resource(REGION, shared(each), made)
        except UnknownOutcome:  # a cloud may find out by itself
            made[each] = await subject.cloud.prepare_resource(REGION, shared(each), made)
    assert await prepare(subject.cloud) == made


async def test_what_comes_later_needs_what_comes_before(subject: Subject) -> None:
    with pytest.raises(Rejected):
        await subject.cloud.prepare_resource(REGION, shared("securityGroup"), {"vnet": "vpc-0123456789abcdef0"})


async def test_everything_is_released_by_its_id_or_by_its_token_and_may_be_gone(subject: Subject) -> None:
    made = await prepare(subject.cloud)
    for what in reversed(SHARED_RESOURCE_TYPES):
        by_id = what != "securityGroup"
        await subject.cloud.release_resource(REGION, shared(what, cloud_id=made[what] if by_id else ""))
        await subject.cloud.release_resource(REGION, shared(what, cloud_id=made[what]))
    await subject.cloud.release_resource(ELSEWHERE, shared("vnet", token="never made"))
    again = await prepare(subject.cloud, token="second")
    assert set(again) == set(SHARED_RESOURCE_TYPES)


async def test_a_vm_lives_and_dies_in_what_was_prepared_and_its_network_is_not_removed_before(subject: Subject) -> None:
    made = await prepare(subject.cloud)
    with pytest.raises(Rejected):
        await subject.cloud.release_resource(REGION, shared("vnet", cloud_id=made["vnet"]))
    vm = await do(subject.cloud, "create", within(made))
    assert isinstance(vm, VmFacts)
    assert isinstance(await do(subject.cloud, "terminate", on(vm, "end")), VmFacts)
    for what in reversed(SHARED_RESOURCE_TYPES):
        await subject.cloud.release_resource(REGION, shared(what, cloud_id=made[what]))


OTHERS = "ns:others"


async def test_two_tenants_share_nothing_in_one_region_and_make_no_vm_in_what_the_other_has(subject: Subject) -> None:
    ours, theirs = await prepare(subject.cloud), await prepare(subject.cloud, tenant=OTHERS, token="others")
    assert not set(ours.values()) & set(theirs.values())
    assert await prepare(subject.cloud) == ours
    for what in SHARED_RESOURCE_TYPES:
        answer = await do(subject.cloud, "create", within({**ours, what: theirs[what]}))
        assert isinstance(answer, Rejected), (what, answer)
        assert await subject.made() == 0, what
    assert isinstance(await do(subject.cloud, "create", within(ours)), VmFacts)


async def test_a_tenant_builds_and_removes_nothing_of_another_tenant(subject: Subject) -> None:
    theirs = await prepare(subject.cloud, tenant=OTHERS, token="others")
    with pytest.raises(Rejected):
        await subject.cloud.prepare_resource(REGION, shared("securityGroup"), {"vnet": theirs["vnet"]})
    for by_id in (True, False):  # or by its token
        for what in reversed(SHARED_RESOURCE_TYPES):
            aimed = shared(what, "others", theirs[what] if by_id else "")
            with suppress(Rejected):  # or it finds nothing that it could remove
                await subject.cloud.release_resource(REGION, aimed)
        assert await prepare(subject.cloud, tenant=OTHERS, token="others") == theirs, by_id
    vm = replace(within(theirs), path=f"{OTHERS}:mci:web:vm:a")
    assert isinstance(await do(subject.cloud, "create", vm), VmFacts)
