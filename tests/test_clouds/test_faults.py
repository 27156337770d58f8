"""The contract with faults: every fault, on every provider."""

from __future__ import annotations

import asyncio
import time

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


async def ready_for(subject: Subject, verb: str) -> VmOrder:
    """The order that this verb is tried with."""
    await prepare(subject.cloud)
    if verb == "create":
        return orders("a")[0]
    [vm] = await create(subject.cloud, "a")
    if verb == "resume":
        good([await do(subject.cloud, "suspend", on(vm, "before"))])
    return on(vm, verb)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("kind", "error"),
    [(FaultKind.FAIL, Rejected), (FaultKind.THROTTLE, Throttled), (FaultKind.UNAVAILABLE, Unavailable)],
)
async def test_a_call_that_is_not_taken_changes_nothing_and_works_the_next_time(
    subject: Subject, verb: str, kind: FaultKind, error: type[ProviderError]
) -> None:
    order = await ready_for(subject, verb)
    await subject.fault(Fault(kind=kind, verb=verb, times=1, retry_after=1.5, message="not today"))
    answer = await do(subject.cloud, verb, order)
    assert type(answer) is error or isinstance(answer, error)
    assert "not today" in str(answer)
    assert not isinstance(answer, Throttled) or answer.retry_after == 1.5
    assert good([await do(subject.cloud, verb, order)]).state is AFTER[verb]
    assert await subject.made() == 1


@pytest.mark.parametrize("verb", VERBS)
async def test_after_a_lost_answer_the_same_order_finds_what_the_first_did(subject: Subject, verb: str) -> None:
    order = await ready_for(subject, verb)
    await subject.fault(Fault(kind=FaultKind.LOSE_ANSWER, verb=verb, times=1))
    assert isinstance(await do(subject.cloud, verb, order), UnknownOutcome)
    again = good([await do(subject.cloud, verb, order)])
    assert again.state is AFTER[verb]
    assert await subject.cloud.describe_vms(REGION, [orders("a")[0]]) == [again]
    assert await subject.made() == 1


async def test_many_lost_answers_at_once_leave_one_vm_per_order(subject: Subject) -> None:
    await prepare(subject.cloud)
    wanted = orders(*"abcdef")
    await subject.fault(Fault(kind=FaultKind.LOSE_ANSWER, verb="create", times=4))
    first = await subject.cloud.perform_orders("create", REGION, wanted)
    assert sum(isinstance(answer, UnknownOutcome) for answer in first) == 4
    both = await asyncio.gather(*(subject.cloud.perform_orders("create", REGION, wanted) for _ in range(2)))
    assert both[0] == both[1]
    assert await subject.made() == 6
    assert len(await subject.cloud.list_tagged_vms(REGION, PARENT)) == 6


async def test_no_room_is_told_apart_from_other_refusals(subject: Subject) -> None:
    order = await ready_for(subject, "create")
    await subject.fault(Fault(kind=FaultKind.CAPACITY, times=1))
    assert isinstance(await do(subject.cloud, "create", order), NoCapacity)
    assert await subject.cloud.describe_vms(REGION, [order]) == [None]
    good([await do(subject.cloud, "create", order)])


async def test_a_fault_with_one_vm_of_a_call_leaves_the_others_alone(subject: Subject) -> None:
    await prepare(subject.cloud)
    a, b, c = await create(subject.cloud, "a", "b", "c")
    await subject.fault(Fault(kind=FaultKind.FAIL, vm="b", verb="suspend"))
    answers = await subject.cloud.perform_orders("suspend", REGION, [on(vm, "s") for vm in (a, b, c)])
    assert [type(answer) for answer in answers if isinstance(answer, VmFacts)] == [VmFacts, VmFacts]
    assert isinstance(answers[1], Rejected)
    states = [await state_of(subject.cloud, vm) for vm in (a, b, c)]
    assert states == [VmState.STOPPED, VmState.RUNNING, VmState.STOPPED]


async def test_a_slow_call_is_waited_for_and_holds_up_nobody_else(subject: Subject) -> None:
    await prepare(subject.cloud)
    await subject.fault(Fault(kind=FaultKind.HANG, vm="a", verb="create", seconds=2.0, times=1))
    start = time.perf_counter()
    slow = asyncio.create_task(create(subject.cloud, "a"))
    await create(subject.cloud, "b")
    assert not slow.done()
    assert [vm.state for vm in await slow] == [VmState.RUNNING]
    assert time.perf_counter() - start >= 2.0


@pytest.mark.parametrize("kind", [FaultKind.THROTTLE, FaultKind.UNAVAILABLE])
async def test_a_read_that_fails_is_an_error_and_never_an_absence(subject: Subject, kind: FaultKind) -> None:
    order = await ready_for(subject, "create")
    good([await do(subject.cloud, "create", order)])
    await subject.fault(Fault(kind=kind, verb="describe", times=1))
    with pytest.raises((Throttled, Unavailable)):
        await subject.cloud.describe_vms(REGION, [order])
    assert await subject.cloud.describe_vms(REGION, [order]) != [None]


async def test_a_state_that_nobody_knows_is_called_unknown(subject: Subject) -> None:
    order = await ready_for(subject, "suspend")
    await subject.fault(Fault(kind=FaultKind.UNKNOWN_STATUS, vm="a", times=1))
    [seen] = await subject.cloud.describe_vms(REGION, [order])
    assert seen is not None
    assert seen.state is VmState.UNKNOWN
    assert good([await do(subject.cloud, "suspend", order)]).state is VmState.STOPPED
