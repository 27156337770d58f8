"""The contract without faults: what the activities rely on in every cloud."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from domain.errors import Rejected, Superseded
from domain.ports import Cloud, VmFacts, VmOrder, VmState
from tests.test_clouds.kit import ELSEWHERE, PARENT, REGION, SPEC, bring_to, create, do, good, on, orders, state_of


async def test_a_created_vm_runs_and_says_so_under_its_path(cloud: Cloud) -> None:
    [vm] = await create(cloud, "a")
    assert vm.path == f"{PARENT}:vm:a"
    assert vm.state is VmState.RUNNING
    assert vm.cloud_id
    assert vm.address
    assert await cloud.describe_vms(REGION, [on(vm, "")]) == [vm]


async def test_the_same_creation_token_again_gives_the_same_vm(cloud: Cloud) -> None:
    assert await create(cloud, "a") == await create(cloud, "a")
    assert len(await cloud.list_tagged_vms(REGION, PARENT)) == 1


async def test_racing_creations_with_one_token_give_one_vm(cloud: Cloud) -> None:
    answers = await asyncio.gather(*(create(cloud, "a") for _ in range(10)))
    assert len({vm.cloud_id for [vm] in answers}) == 1
    assert len(await cloud.list_tagged_vms(REGION, PARENT)) == 1


async def test_a_creation_token_stays_used_after_the_vm_is_gone(cloud: Cloud) -> None:
    vm = await bring_to(cloud, VmState.TERMINATED)
    [again] = await create(cloud, "a")
    assert (again.cloud_id, again.state) == (vm.cloud_id, VmState.TERMINATED)


async def test_another_generation_of_the_same_path_is_another_vm(cloud: Cloud) -> None:
    old = await bring_to(cloud, VmState.TERMINATED)
    [order] = orders("a", token="second")
    new = good([await do(cloud, "create", order)])
    assert new.path == old.path
    assert new.cloud_id != old.cloud_id


@pytest.mark.parametrize(
    ("verb", "before", "after"),
    [
        ("suspend", VmState.RUNNING, VmState.STOPPED),
        ("suspend", VmState.STOPPED, VmState.STOPPED),
        ("resume", VmState.STOPPED, VmState.RUNNING),
        ("resume", VmState.RUNNING, VmState.RUNNING),
        ("reboot", VmState.RUNNING, VmState.RUNNING),
        ("terminate", VmState.RUNNING, VmState.TERMINATED),
        ("terminate", VmState.STOPPED, VmState.TERMINATED),
        ("terminate", VmState.TERMINATED, VmState.TERMINATED),
    ],
)
async def test_a_possible_verb_leads_to_its_state(cloud: Cloud, verb: str, before: VmState, after: VmState) -> None:
    vm = await bring_to(cloud, before)
    answer = good([await do(cloud, verb, on(vm, "now"))])
    assert (answer.cloud_id, answer.path, answer.state) == (vm.cloud_id, vm.path, after)
    assert await state_of(cloud, vm) is after


@pytest.mark.parametrize(
    ("verb", "before"),
    [
        ("suspend", VmState.TERMINATED),
        ("resume", VmState.TERMINATED),
        ("reboot", VmState.TERMINATED),
        ("reboot", VmState.STOPPED),
    ],
)
async def test_an_impossible_verb_is_rejected_and_changes_nothing(cloud: Cloud, verb: str, before: VmState) -> None:
    vm = await bring_to(cloud, before)
    assert isinstance(await do(cloud, verb, on(vm, "now")), Rejected)
    assert await state_of(cloud, vm) is before


@pytest.mark.parametrize("verb", ["suspend", "resume", "reboot", "terminate"])
async def test_a_vm_that_is_not_there_is_rejected_by_name(cloud: Cloud, verb: str) -> None:
    [order] = orders("a")
    for unknown in (order, VmOrder(order.path, "t", "no-such-id")):
        answer = await do(cloud, verb, unknown)
        assert isinstance(answer, Rejected)
        assert "no such VM" in str(answer)


async def test_an_unknown_verb_is_rejected(cloud: Cloud) -> None:
    [vm] = await create(cloud, "a")
    assert isinstance(await do(cloud, "explode", on(vm, "now")), Rejected)


async def test_a_vm_is_found_in_its_own_region_only(cloud: Cloud) -> None:
    [vm] = await create(cloud, "a")
    assert await cloud.describe_vms(ELSEWHERE, [on(vm, "")]) == [None]
    assert await cloud.list_tagged_vms(ELSEWHERE, PARENT) == []
    assert isinstance(await do(cloud, "suspend", on(vm, "now"), region=ELSEWHERE), Rejected)


async def test_a_vm_is_described_by_its_creation_token_when_its_id_was_lost(cloud: Cloud) -> None:
    [vm] = await create(cloud, "a")
    assert await cloud.describe_vms(REGION, orders("a", "b")) == [vm, None]


async def test_many_vms_are_described_in_the_order_asked(cloud: Cloud) -> None:
    a, b, c = await create(cloud, "a", "b", "c")
    nobody = VmOrder(f"{PARENT}:vm:x", "", "no-such-id")
    assert await cloud.describe_vms(REGION, [on(c, ""), nobody, on(a, ""), on(b, "")]) == [c, None, a, b]
    assert await cloud.describe_vms(REGION, []) == []


async def test_a_tag_covers_what_is_below_it_and_nothing_that_only_begins_like_it(cloud: Cloud) -> None:
    names = ["ns:d:mci:a:vm:x", "ns:d:mci:ab:vm:x", "ns:d:mci:A:vm:x", "ns:d:mci:a.b:vm:x", "ns:d:mci:a"]
    for name in names:
        good([await do(cloud, "create", VmOrder(name, name, spec=SPEC))])
    assert {vm.path for vm in await cloud.list_tagged_vms(REGION, "ns:d:mci:a")} == {names[0], names[4]}
    assert {vm.path for vm in await cloud.list_tagged_vms(REGION, "ns:d")} == set(names)
    assert {vm.path for vm in await cloud.list_tagged_vms(REGION, "")} == set(names)
    assert await cloud.list_tagged_vms(REGION, "ns:d:mci:%") == []
    assert await cloud.list_tagged_vms(REGION, "ns:d:mci:_") == []


async def test_living_vms_are_listed_in_the_order_of_their_keys_from_any_key_on(cloud: Cloud) -> None:
    made = await create(cloud, "c", "a-1", "a", "b")
    gone = next(vm for vm in made if vm.path.endswith("b"))
    good([await do(cloud, "terminate", on(gone, "end"))])
    living = sorted((vm for vm in made if vm != gone), key=lambda vm: vm.key)
    assert await cloud.list_tagged_vms(REGION, PARENT) == living
    for number, vm in enumerate(living, 1):
        for prefix in ("", "ns", PARENT):
            assert await cloud.list_tagged_vms(REGION, prefix, vm.key) == living[number:]
    assert await cloud.list_tagged_vms(REGION, PARENT, (living[0].path, "")) == living, "a key without an id"
    assert await cloud.list_tagged_vms(REGION, PARENT, (gone.path, "")) == living[-1:], "of one that is gone"


async def test_a_failure_with_one_vm_leaves_the_others_of_the_call_alone(cloud: Cloud) -> None:
    if cloud.orders_per_call < 3:
        pytest.skip("this cloud takes fewer VMs in one call")
    a, b = await create(cloud, "a", "b")
    answers = await cloud.perform_orders(
        "suspend", REGION, [on(a, "s"), VmOrder(a.path, "t", "no-such-id"), on(b, "s")]
    )
    assert [type(answer) for answer in answers] == [VmFacts, Rejected, VmFacts]
    assert [await state_of(cloud, vm) for vm in (a, b)] == [VmState.STOPPED] * 2


async def test_an_order_of_an_earlier_action_comes_too_late(cloud: Cloud) -> None:
    """A worker that was frozen gives its order when later actions have come and gone."""
    [vm] = await create(cloud, "a")
    good([await do(cloud, "suspend", on(vm, "s", epoch=5))])
    good([await do(cloud, "resume", on(vm, "r", epoch=8))])
    for verb in ("suspend", "resume", "reboot", "terminate"):
        late = await do(cloud, verb, on(vm, f"late {verb}", epoch=7))
        assert isinstance(late, Superseded)
        assert late.final
    assert await state_of(cloud, vm) is VmState.RUNNING
    good([await do(cloud, "suspend", on(vm, "again", epoch=8))])
    good([await do(cloud, "terminate", on(vm, "end", epoch=9))])


async def test_a_creation_of_an_earlier_action_comes_too_late(cloud: Cloud) -> None:
    [first], [late], [then] = orders("a"), orders("a", token="late"), orders("a", token="next")
    vm = good([await do(cloud, "create", replace(first, epoch=5))])
    assert isinstance(await do(cloud, "reboot", on(vm, "early", epoch=4)), Superseded), "it was made since"
    good([await do(cloud, "terminate", on(vm, "end", epoch=9))])
    assert isinstance(await do(cloud, "create", replace(late, epoch=8)), Superseded), "its place has another owner"
    assert isinstance(await do(cloud, "create", replace(first, epoch=5)), Superseded)
    good([await do(cloud, "create", replace(then, epoch=10))])
