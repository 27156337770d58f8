"""The contract without faults: what the activities rely on in every cloud."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from domain.errors import Rejected, Superseded
from domain.ports import Cloud, VmFacts, VmOrder, VmState
from tests.test_clouds.kit import ELSEWHERE, PARENT, REGION, SPEC, create, do, good, on, orders, state_of


async def test_a_created_vm_runs_and_is_found_by_its_path_id_token_and_region_only(cloud: Cloud) -> None:
    [vm] = await create(cloud, "a")
    assert vm.path == f"{PARENT}:vm:a"
    assert vm.state is VmState.RUNNING
    assert vm.cloud_id
    assert vm.address
    assert await cloud.describe_vms(REGION, [on(vm, "")]) == [vm]
    assert await cloud.describe_vms(REGION, orders("a", "b")) == [vm, None], "its id was lost: by its creation token"
    assert await create(cloud, "a") == [vm], "the same token again"
    assert len(await cloud.list_tagged_vms(REGION, PARENT)) == 1
    assert await cloud.describe_vms(ELSEWHERE, [on(vm, "")]) == [None]
    assert await cloud.list_tagged_vms(ELSEWHERE, PARENT) == []
    assert isinstance(await do(cloud, "suspend", on(vm, "now"), region=ELSEWHERE), Rejected)
    assert isinstance(await do(cloud, "explode", on(vm, "now")), Rejected), "an unknown verb"
    assert await state_of(cloud, vm) is VmState.RUNNING


async def test_racing_creations_with_one_token_give_one_vm(cloud: Cloud) -> None:
    answers = await asyncio.gather(*(create(cloud, "a") for _ in range(10)))
    assert len({vm.cloud_id for [vm] in answers}) == 1
    assert len(await cloud.list_tagged_vms(REGION, PARENT)) == 1


RUNNING, STOPPED, TERMINATED = VmState.RUNNING, VmState.STOPPED, VmState.TERMINATED
# Every verb in every state, as one VM passes them, and the state after it; None: it is rejected, and changes nothing.
WALK: tuple[tuple[VmState, str, VmState | None], ...] = (
    (RUNNING, "reboot", RUNNING),
    (RUNNING, "resume", RUNNING),
    (RUNNING, "suspend", STOPPED),
    (STOPPED, "suspend", STOPPED),
    (STOPPED, "reboot", None),
    (STOPPED, "resume", RUNNING),
    (RUNNING, "terminate", TERMINATED),
    (TERMINATED, "terminate", TERMINATED),
    (TERMINATED, "suspend", None),
    (TERMINATED, "resume", None),
    (TERMINATED, "reboot", None),
)


async def walk(cloud: Cloud, vm: VmFacts, steps: Sequence[tuple[VmState, str, VmState | None]]) -> None:
    """Gives each order in turn, in the state that the one before has left."""
    for number, (before, verb, after) in enumerate(steps):
        step = f"{verb} of a {before} VM"
        assert await state_of(cloud, vm) is before, step
        answer = await do(cloud, verb, on(vm, f"step {number}"))
        if after is None:
            assert isinstance(answer, Rejected), f"{step}: {answer}"
        else:
            facts = good([answer])
            assert (facts.cloud_id, facts.path, facts.state) == (vm.cloud_id, vm.path, after), step
        assert await state_of(cloud, vm) is (after or before), step


async def test_every_verb_in_every_state_leads_to_its_state_or_is_rejected_and_changes_nothing(cloud: Cloud) -> None:
    """One VM through its life, and then another generation of the same path: a token stays used."""
    [vm] = await create(cloud, "a")
    await walk(cloud, vm, WALK)
    [again] = await create(cloud, "a")
    assert (again.cloud_id, again.state) == (vm.cloud_id, TERMINATED)
    [order] = orders("a", token="second")
    new = good([await do(cloud, "create", order)])
    assert new.path == vm.path
    assert new.cloud_id != vm.cloud_id
    await walk(cloud, new, [(RUNNING, "suspend", STOPPED), (STOPPED, "terminate", TERMINATED)])


async def test_a_vm_that_is_not_there_is_rejected_by_name(cloud: Cloud) -> None:
    [order] = orders("a")
    for verb in ("suspend", "resume", "reboot", "terminate"):
        for unknown in (order, VmOrder(order.path, "t", "no-such-id")):
            answer = await do(cloud, verb, unknown)
            assert isinstance(answer, Rejected), verb
            assert "no such VM" in str(answer), verb


async def test_a_tag_covers_what_is_below_it_and_nothing_that_only_begins_like_it(cloud: Cloud) -> None:
    names = ["ns:d:mci:a:vm:x", "ns:d:mci:ab:vm:x", "ns:d:mci:A:vm:x", "ns:d:mci:a.b:vm:x", "ns:d:mci:a"]
    for name in names:
        good([await do(cloud, "create", VmOrder(name, name, spec=SPEC))])
    assert {vm.path for vm in await cloud.list_tagged_vms(REGION, "ns:d:mci:a")} == {names[0], names[4]}
    assert {vm.path for vm in await cloud.list_tagged_vms(REGION, "ns:d")} == set(names)
    assert {vm.path for vm in await cloud.list_tagged_vms(REGION, "")} == set(names)
    assert await cloud.list_tagged_vms(REGION, "ns:d:mci:%") == []
    assert await cloud.list_tagged_vms(REGION, "ns:d:mci:_") == []


async def test_many_vms_are_described_in_the_order_asked_listed_in_that_of_their_keys_and_fail_alone(
    cloud: Cloud,
) -> None:
    made = await create(cloud, "c", "a-1", "a", "b")
    c, _, a, b = made
    nobody = VmOrder(f"{PARENT}:vm:x", "", "no-such-id")
    assert await cloud.describe_vms(REGION, [on(c, ""), nobody, on(a, ""), on(b, "")]) == [c, None, a, b]
    assert await cloud.describe_vms(REGION, []) == []

    good([await do(cloud, "terminate", on(b, "end"))])
    living = sorted((vm for vm in made if vm != b), key=lambda vm: vm.key)
    assert await cloud.list_tagged_vms(REGION, PARENT) == living
    for number, vm in enumerate(living, 1):
        for prefix in ("", "ns", PARENT):
            assert await cloud.list_tagged_vms(REGION, prefix, vm.key) == living[number:]
    assert await cloud.list_tagged_vms(REGION, PARENT, (living[0].path, "")) == living, "a key without an id"
    assert await cloud.list_tagged_vms(REGION, PARENT, (b.path, "")) == living[-1:], "of one that is gone"

    if cloud.orders_per_call >= 3:  # or this cloud takes fewer VMs in one call
        some = [on(a, "s"), VmOrder(a.path, "t", "no-such-id"), on(c, "s")]
        answers = await cloud.perform_orders("suspend", REGION, some)
        assert [type(answer) for answer in answers] == [VmFacts, Rejected, VmFacts]
        assert [await state_of(cloud, vm) for vm in (a, c)] == [VmState.STOPPED] * 2


async def test_an_order_of_an_earlier_action_comes_too_late(cloud: Cloud) -> None:
    """A worker that was frozen gives its order when later actions have come and gone; a creation too."""
    [first], [late], [then] = orders("a"), orders("a", token="late"), orders("a", token="next")
    vm = good([await do(cloud, "create", replace(first, epoch=5))])
    assert isinstance(await do(cloud, "reboot", on(vm, "early", epoch=4)), Superseded), "it was made since"
    good([await do(cloud, "suspend", on(vm, "s", epoch=5))])
    good([await do(cloud, "resume", on(vm, "r", epoch=8))])
    for verb in ("suspend", "resume", "reboot", "terminate"):
        answer = await do(cloud, verb, on(vm, f"late {verb}", epoch=7))
        assert isinstance(answer, Superseded)
        assert answer.final
    assert await state_of(cloud, vm) is VmState.RUNNING
    good([await do(cloud, "suspend", on(vm, "again", epoch=8))])
    good([await do(cloud, "terminate", on(vm, "end", epoch=9))])
    assert isinstance(await do(cloud, "create", replace(late, epoch=8)), Superseded), "its place has another owner"
    assert isinstance(await do(cloud, "create", replace(first, epoch=5)), Superseded)
    good([await do(cloud, "create", replace(then, epoch=10))])
