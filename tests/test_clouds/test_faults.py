"""The contract with faults: every fault, on every provider."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from domain.errors import (
    NoCapacity,
    ProviderError,
    Rejected,
    Throttled,
    Unavailable,
    UnknownOutcome,
)
from domain.faults import Fault, FaultKind
from domain.ports import VmFacts, VmOrder, VmState
from tests.test_clouds.kit import PARENT, REGION, Subject, create, do, good, on, orders, prepare, state_of

VERBS = ("create", "suspend", "resume", "reboot", "terminate")
AFTER = {
    "create": VmState.RUNNING,
    "suspend": VmState.STOPPED,
    "resume": VmState.RUNNING,
    "reboot": VmState.RUNNING,
    "terminate": VmState.TERMINATED,
}


async def life(subject: Subject) -> AsyncIterator[tuple[str, VmOrder]]:
    """Every verb in turn, with its order, on one VM: whoever asks for the next has carried out the one before."""
    await prepare(subject.cloud)
    [creation] = orders("a")
    yield "create", creation
    [vm] = await subject.cloud.describe_vms(REGION, [creation])
    assert vm is not None
    for verb in VERBS[1:]:
        yield verb, on(vm, verb)


@pytest.mark.parametrize(
    ("kind", "error"),
    [(FaultKind.FAIL, Rejected), (FaultKind.THROTTLE, Throttled), (FaultKind.UNAVAILABLE, Unavailable)],
)
async def test_a_call_that_is_not_taken_changes_nothing_and_works_the_next_time(
    subject: Subject, kind: FaultKind, error: type[ProviderError]
) -> None:
    async for verb, order in life(subject):
        await subject.fault(Fault(kind=kind, verb=verb, times=1, retry_after=1.5, message="not today"))
        answer = await do(subject.cloud, verb, order)
        assert type(answer) is error or isinstance(answer, error), verb
        assert "not today" in str(answer), verb
        assert not isinstance(answer, Throttled) or answer.retry_after == 1.5, verb
        assert good([await do(subject.cloud, verb, order)]).state is AFTER[verb], verb
        assert await subject.made() == 1, verb


async def test_after_a_lost_answer_the_same_order_finds_what_the_first_did(subject: Subject) -> None:
    async for verb, order in life(subject):
        await subject.fault(Fault(kind=FaultKind.LOSE_ANSWER, verb=verb, times=1))
        assert isinstance(await do(subject.cloud, verb, order), UnknownOutcome), verb
        again = good([await do(subject.cloud, verb, order)])
        assert again.state is AFTER[verb], verb
        [seen] = await subject.cloud.describe_vms(REGION, [orders("a")[0]])
        assert seen is not None
        if verb == "terminate":  # a moment after a server is deleted, Nova forgets its metadata, which has the token
            seen = seen._replace(token=again.token)
        assert seen == again, verb
        assert await subject.made() == 1, verb


async def test_many_lost_answers_at_once_leave_one_vm_per_order_and_a_fault_with_one_of_them_leaves_the_others_alone(
    subject: Subject,
) -> None:
    await prepare(subject.cloud)
    wanted = orders(*"abcdef")
    await subject.fault(Fault(kind=FaultKind.LOSE_ANSWER, verb="create", times=4))
    first = await subject.cloud.perform_orders("create", REGION, wanted)
    assert sum(isinstance(answer, UnknownOutcome) for answer in first) == 4
    both = await asyncio.gather(*(subject.cloud.perform_orders("create", REGION, wanted) for _ in range(2)))
    assert both[0] == both[1]
    assert await subject.made() == 6
    assert len(await subject.cloud.list_tagged_vms(REGION, PARENT)) == 6

    some = [good([answer]) for answer in both[0][:3]]
    await subject.fault(Fault(kind=FaultKind.FAIL, vm="b", verb="suspend"))
    answers = await subject.cloud.perform_orders("suspend", REGION, [on(vm, "s") for vm in some])
    assert [type(answer) for answer in answers if isinstance(answer, VmFacts)] == [VmFacts, VmFacts]
    assert isinstance(answers[1], Rejected)
    states = [await state_of(subject.cloud, vm) for vm in some]
    assert states == [VmState.STOPPED, VmState.RUNNING, VmState.STOPPED]


async def test_a_slow_call_is_waited_for_and_holds_up_nobody_else(subject: Subject) -> None:
    await prepare(subject.cloud)
    for turn, seconds in enumerate((2.0, 8.0, 32.0)):  # a busy machine may take longer than that for the other one
        name = f"slow-{turn}"
        await subject.fault(Fault(kind=FaultKind.HANG, vm=name, verb="create", seconds=seconds, times=1))
        start = time.perf_counter()
        slow = asyncio.create_task(create(subject.cloud, name))
        await create(subject.cloud, f"quick-{turn}")
        was_first = not slow.done()
        assert [vm.state for vm in await slow] == [VmState.RUNNING]
        assert time.perf_counter() - start >= seconds
        if was_first:
            return
    pytest.fail("the other one always waited for the slow one")


async def test_no_room_is_told_apart_from_other_refusals_and_no_vm_from_a_read_that_fails(subject: Subject) -> None:
    await prepare(subject.cloud)
    [order] = orders("a")
    await subject.fault(Fault(kind=FaultKind.CAPACITY, times=1))
    assert isinstance(await do(subject.cloud, "create", order), NoCapacity)
    assert await subject.cloud.describe_vms(REGION, [order]) == [None]
    vm = good([await do(subject.cloud, "create", order)])

    for kind in (FaultKind.THROTTLE, FaultKind.UNAVAILABLE):
        await subject.fault(Fault(kind=kind, verb="describe", times=1))
        with pytest.raises((Throttled, Unavailable)):
            await subject.cloud.describe_vms(REGION, [order])
        assert await subject.cloud.describe_vms(REGION, [order]) != [None], kind

    await subject.fault(Fault(kind=FaultKind.UNKNOWN_STATUS, vm="a", times=1))
    [seen] = await subject.cloud.describe_vms(REGION, [on(vm, "")])
    assert seen is not None
    assert seen.state is VmState.UNKNOWN, "a state that nobody knows"
    assert good([await do(subject.cloud, "suspend", on(vm, "suspend"))]).state is VmState.STOPPED
