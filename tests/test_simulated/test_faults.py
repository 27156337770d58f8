"""The fault script: every kind of fault, which calls it hits, and how often."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import ValidationError

from domain.errors import ProviderError, Rejected, Throttled, Unavailable, UnknownOutcome
from domain.ports import VmFacts, VmOrder, VmState
from providers.simulated import Fault, FaultKind, SimulatedCloud
from store.engine import Database
from tests.cases import every_case
from tests.test_clouds.kit import PARENT, REGION, create, do, good, on, orders, state_of


@pytest.mark.parametrize(("kind", "error"), [("fail", Rejected), ("throttle", Throttled), ("unavailable", Unavailable)])
async def test_a_refusing_fault_strikes_as_often_as_told_and_does_nothing(
    aws: SimulatedCloud, kind: FaultKind, error: type[ProviderError]
) -> None:
    [vm] = await create(aws, "a")
    await aws.set_faults([Fault(kind=kind, times=2, retry_after=1.5, message="not today")])
    for _ in range(2):
        answer = await do(aws, "suspend", on(vm, "now"))
        assert type(answer) is error
        assert str(answer) == "not today"
        assert not isinstance(answer, Throttled) or answer.retry_after == 1.5
    assert await aws.list_faults() == []
    good([await do(aws, "suspend", on(vm, "now"))])
    assert (await aws.list_all_vms())[0].effects == 2


async def test_a_lost_answer_did_the_work_and_the_same_token_finds_it(aws: SimulatedCloud) -> None:
    await aws.set_faults([Fault(kind=FaultKind.LOSE_ANSWER, verb="create", times=1)])
    [order] = orders("a")
    assert isinstance(await do(aws, "create", order), UnknownOutcome)
    [found] = await aws.describe_vms(REGION, [order])
    assert found == good([await do(aws, "create", order)])
    assert [vm.effects for vm in await aws.list_all_vms()] == [1]


async def test_a_lie_says_terminated_while_the_vm_lives(aws: SimulatedCloud) -> None:
    [vm] = await create(aws, "a")
    await aws.set_faults([Fault(kind=FaultKind.LIE, times=1)])
    assert good([await do(aws, "terminate", on(vm, "now"))]).state is VmState.TERMINATED
    assert await state_of(aws, vm) is VmState.RUNNING
    good([await do(aws, "terminate", on(vm, "now"))])
    assert await state_of(aws, vm) is VmState.TERMINATED


async def test_a_lie_about_nothing_is_rejected(aws: SimulatedCloud) -> None:
    await aws.set_faults([Fault(kind=FaultKind.LIE)])
    assert isinstance(await do(aws, "terminate", VmOrder("x:y", "t", "no-such-id")), Rejected)


async def test_an_unknown_status_is_what_describe_finds(aws: SimulatedCloud) -> None:
    a, b = await create(aws, "a", "b")
    await aws.set_faults([Fault(kind=FaultKind.UNKNOWN_STATUS, vm="a")])
    found = await aws.describe_vms(REGION, [on(a, ""), on(b, "")])
    assert [facts and facts.state for facts in found] == [VmState.UNKNOWN, VmState.RUNNING]
    good([await do(aws, "suspend", on(a, "now"))])


@pytest.mark.parametrize("kind", [FaultKind.HANG, FaultKind.SLOW])
async def test_a_delayed_call_takes_its_time_and_then_meets_the_later_rules(
    aws: SimulatedCloud, kind: FaultKind
) -> None:
    delay = Fault(kind=kind, seconds=0.05, vm="a", times=1)
    await aws.set_faults([delay, Fault(kind=FaultKind.FAIL, vm="a", times=1)])
    start = time.perf_counter()
    answers = await aws.perform_orders("create", REGION, orders("a", "b"))
    assert time.perf_counter() - start >= 0.05
    assert [type(answer) for answer in answers] == [Rejected, VmFacts]
    await create(aws, "a")


async def test_a_hanging_call_does_not_hold_the_others(aws: SimulatedCloud) -> None:
    await aws.set_faults([Fault(kind=FaultKind.HANG, seconds=3600, vm="a")])
    hanging = asyncio.create_task(create(aws, "a"))
    await create(aws, "b", "c")
    assert not hanging.done()
    assert {path[-1] for path in aws.delayed_paths()} == {"a"}
    hanging.cancel()
    await asyncio.wait([hanging])
    assert aws.delayed_paths() == set()
    assert {vm.path[-1] for vm in await aws.list_all_vms()} == {"b", "c"}


@pytest.mark.parametrize(
    ("rule", "struck"),
    [
        ({}, True),
        ({"csp": "aws", "region": REGION, "vm": "front-1", "verb": "create"}, True),
        ({"vm": "front-*"}, True),
        ({"vm": "ns:default:mci:web:*"}, True),
        ({"region": "eu-*"}, True),
        ({"csp": "gcp"}, False),
        ({"region": "us-1"}, False),
        ({"vm": "front"}, False),
        ({"vm": "front-1?"}, False),
        ({"verb": "suspend"}, False),
    ],
)
async def test_a_rule_strikes_where_everything_in_it_fits(
    aws: SimulatedCloud, rule: dict[str, Any], struck: bool
) -> None:
    await aws.add_fault(Fault(kind=FaultKind.FAIL, **rule))
    assert isinstance(await do(aws, "create", orders("front-1")[0]), Rejected) is struck


async def test_rules_are_tried_in_order_and_can_be_added_listed_and_cleared(aws: SimulatedCloud) -> None:
    first, second = Fault(kind=FaultKind.THROTTLE, times=3), Fault(kind=FaultKind.FAIL, vm="a*")
    await aws.set_faults([first])
    await aws.add_fault(second)
    assert await aws.list_faults() == [first, second]
    assert isinstance(await do(aws, "create", orders("a")[0]), Throttled)
    assert await aws.list_faults() == [first.model_copy(update={"times": 2}), second]
    await aws.set_faults([second])
    assert isinstance(await do(aws, "create", orders("a")[0]), Rejected)
    await aws.clear_faults()
    assert await aws.list_faults() == []
    await create(aws, "a")


async def test_reads_meet_outages_of_a_region_but_not_faults_of_single_vms(aws: SimulatedCloud) -> None:
    [vm] = await create(aws, "a")
    await aws.set_faults([Fault(kind=FaultKind.FAIL), Fault(kind=FaultKind.UNAVAILABLE, vm="a")])
    assert await state_of(aws, vm) is VmState.RUNNING
    assert await aws.list_tagged_vms(REGION, PARENT) == [vm]
    await aws.set_faults([Fault(kind=FaultKind.UNAVAILABLE, region=REGION, times=2)])
    with pytest.raises(Unavailable):
        await aws.describe_vms(REGION, [on(vm, "")])
    with pytest.raises(Unavailable):
        await aws.list_tagged_vms(REGION, PARENT)
    assert await state_of(aws, vm) is VmState.RUNNING
    await aws.set_faults([Fault(kind=FaultKind.FAIL, verb="describe")])
    with pytest.raises(Rejected):
        await aws.describe_vms(REGION, [on(vm, "")])


async def test_every_cloud_and_process_sees_the_script_and_uses_it_up_together(
    aws: SimulatedCloud, other: Database
) -> None:
    clouds = [aws, SimulatedCloud("aws", other), SimulatedCloud("gcp", other)]
    for number, cloud in enumerate(clouds):
        await create(cloud, f"first{number}")  # each has seen that there is no fault
    await aws.set_faults([Fault(kind=FaultKind.UNAVAILABLE, times=7)])
    wanted = orders(*(f"vm{number}" for number in range(10)))
    answers = await asyncio.gather(*(do(cloud, "create", order) for order in wanted for cloud in clouds))
    assert sum(isinstance(answer, Unavailable) for answer in answers) == 7
    assert await aws.list_faults() == []


async def test_a_cloud_without_faults_does_not_read_the_script(aws: SimulatedCloud, database: Database) -> None:
    await create(aws, "a")
    read: list[str] = []
    sa.event.listen(database.engine, "before_cursor_execute", lambda *args: read.append(args[2]))
    await create(aws, "b")
    assert read
    assert not any("sim_faults" in statement for statement in read)


@every_case(
    "rule",
    [
        {"kind": "explode"},
        {"kind": "fail", "surprise": 1},
        {"kind": "fail", "times": 0},
        {"kind": "hang", "seconds": -1},
        {"kind": "lie", "verb": "suspend"},
        {"kind": "unknown-status", "verb": "create"},
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(rule: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Fault.model_validate(rule)
