"""What is particular to EC2: slow transitions, lagging reads, client tokens, tags, errors."""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import replace

import pytest

from activities.permits import PermitPool
from domain.errors import Rejected, Superseded, Unavailable, UnknownOutcome
from domain.faults import Fault, FaultKind
from domain.limits import ConcurrencyCaps
from domain.ports import VmFacts, VmOrder, VmState
from providers.aws import AwsCloud
from providers.aws.ratelimit import RateLimiter
from providers.steps import VERBS, NextOrderStep, next_order_step
from tests.faulty import Moto
from tests.localpermits import LocalPermitStore
from tests.patience import PATIENCE
from tests.test_aws.conftest import REGION, CloudMaker
from tests.test_clouds.kit import PARENT, SPEC, create, do, good, on, orders, prepare

ACCOUNT = "123456789012"  # moto's


async def test_an_order_returns_when_ec2_has_done_it_not_when_it_has_taken_note(cloud: CloudMaker, moto: Moto) -> None:
    ec2 = cloud()
    vm = VmFacts("", "", VmState.PENDING)
    moto.ec2.settle_seconds = 0.3
    for verb, state in (
        ("create", VmState.RUNNING),
        ("suspend", VmState.STOPPED),
        ("resume", VmState.RUNNING),
        ("terminate", VmState.TERMINATED),
    ):
        start = time.perf_counter()
        order = orders("a")[0] if verb == "create" else on(vm, verb)
        vm = good([await do(ec2, verb, order)])
        assert vm.state is state
        assert time.perf_counter() - start >= 0.3


async def test_what_takes_too_long_is_unknown_and_the_next_order_goes_on_waiting(cloud: CloudMaker, moto: Moto) -> None:
    impatient, patient = cloud(wait_seconds=0.1), cloud()
    [vm] = await create(patient, "a")
    moto.ec2.settle_seconds = PATIENCE
    answer = await do(impatient, "suspend", on(vm, "now"))
    assert isinstance(answer, UnknownOutcome)
    assert "is still stopping after 0.1 s" in str(answer)
    waiting = asyncio.create_task(do(patient, "suspend", on(vm, "now")))
    moto.ec2.settle()
    assert good([await waiting]).state is VmState.STOPPED
    assert moto.ec2.calls_for("StopInstances", vm.cloud_id) == 1


async def test_a_vm_on_its_way_is_waited_for_before_it_is_told_the_opposite(cloud: CloudMaker, moto: Moto) -> None:
    ec2 = cloud()
    [vm] = await create(ec2, "a")
    moto.ec2.settle_seconds = 0.4
    stopping = asyncio.create_task(do(ec2, "suspend", on(vm, "stop")))
    async with asyncio.timeout(PATIENCE):
        while (await ec2.describe_vms(REGION, [on(vm, "")])) == [vm]:
            await asyncio.sleep(0.02)
    assert good([await do(ec2, "resume", on(vm, "start"))]).state is VmState.RUNNING
    await stopping


async def test_a_vm_that_reads_do_not_show_yet_is_not_made_again(cloud: CloudMaker, moto: Moto) -> None:
    ec2 = cloud()
    moto.ec2.lag_seconds = PATIENCE
    moto.ec2.add_fault(Fault(kind=FaultKind.LOSE_ANSWER, verb="create", times=1))
    [order] = orders("a")
    assert isinstance(await do(ec2, "create", order), UnknownOutcome)
    assert await ec2.describe_vms(REGION, [order]) == [None], "it is there, and EC2 does not show it"
    before = moto.ec2.calls["RunInstances"]
    again = asyncio.create_task(do(ec2, "create", order))
    await _called(moto, "RunInstances", before)
    moto.ec2.lag_seconds = 0
    assert good([await again]).state is VmState.RUNNING
    assert len(await ec2.list_tagged_vms(REGION, PARENT)) == 1


async def test_an_order_whose_words_changed_on_the_way_adopts_what_the_first_made(
    cloud: CloudMaker, moto: Moto
) -> None:
    ec2 = cloud()
    moto.ec2.lag_seconds = 0.3
    [order] = orders("a")
    moto.ec2.add_fault(Fault(kind=FaultKind.LOSE_ANSWER, verb="create", times=1))
    await do(ec2, "create", order)
    changed = replace(order, spec={**SPEC, "label": {"team": "red"}})
    adopted = good([await do(ec2, "create", changed)])
    assert await ec2.list_tagged_vms(REGION, PARENT) == [adopted]


async def test_a_terminate_that_only_says_so_is_never_believed(cloud: CloudMaker, moto: Moto) -> None:
    ec2 = cloud(wait_seconds=0.3)
    [vm] = await create(ec2, "a")
    moto.ec2.add_fault(Fault(kind=FaultKind.LIE))
    answer = await do(ec2, "terminate", on(vm, "end"))
    assert isinstance(answer, UnknownOutcome)
    assert "is still running" in str(answer)


async def test_a_vm_that_is_not_seen_for_a_moment_is_not_taken_for_gone(cloud: CloudMaker, moto: Moto) -> None:
    ec2 = cloud()
    [vm] = await create(ec2, "a")
    moto.ec2.settle_seconds = PATIENCE
    stopping = asyncio.create_task(do(ec2, "suspend", on(vm, "stop")))
    await _stop_arrived(moto, vm)
    moto.ec2.hide(vm.cloud_id, PATIENCE)
    await _called(moto, "DescribeInstances", moto.ec2.calls["DescribeInstances"], times=2)  # one was answered
    assert not stopping.done()
    moto.ec2.lag_seconds = 0
    moto.ec2.settle()
    assert good([await stopping]).state is VmState.STOPPED


async def test_a_vm_that_ends_while_it_is_made_is_rejected_with_ec2s_reason(cloud: CloudMaker, moto: Moto) -> None:
    ec2 = cloud()
    moto.ec2.settle_seconds = PATIENCE  # it ends before
    making = asyncio.create_task(do(ec2, "create", orders("a")[0]))
    async with asyncio.timeout(PATIENCE):
        while not (found := await ec2.list_tagged_vms(REGION, PARENT)):
            await asyncio.sleep(0.02)
    moto.ec2.end(found[0].cloud_id, "Client.VolumeLimitExceeded: too many volumes")
    answer = await making
    assert isinstance(answer, Rejected)
    assert "too many volumes" in str(answer)


async def test_a_vm_without_our_tag_is_never_touched(cloud: CloudMaker, moto: Moto) -> None:
    ec2 = cloud()
    [vm] = await create(ec2, "a")
    stranger = VmOrder(f"{PARENT}:vm:b", "t", vm.cloud_id)
    answer = await do(ec2, "terminate", stranger)
    assert isinstance(answer, Rejected)
    assert "not touched" in str(answer)
    assert moto.ec2.calls_for("TerminateInstances", vm.cloud_id) == 0


async def test_installations_with_different_owners_do_not_see_or_adopt_each_others_vms(cloud: CloudMaker) -> None:
    ours, theirs = cloud(), cloud(owner="somebody else")
    [mine], [other] = await create(ours, "a"), await create(theirs, "a")
    assert mine.cloud_id != other.cloud_id
    assert await ours.list_tagged_vms(REGION, PARENT) == [mine]
    assert await theirs.describe_vms(REGION, orders("a")) == [other]


async def test_many_vms_are_told_and_looked_at_in_few_calls(cloud: CloudMaker, moto: Moto) -> None:
    ec2 = cloud()
    made = await ec2.perform_orders("create", REGION, orders(*(f"vm{number}" for number in range(20))))
    vms = [good([answer]) for answer in made]
    moto.ec2.calls.clear()
    answers = await ec2.perform_orders("suspend", REGION, [on(vm, "s") for vm in vms])
    assert {good([answer]).state for answer in answers} == {VmState.STOPPED}
    assert moto.ec2.calls["StopInstances"] == 1
    assert moto.ec2.calls["DescribeInstances"] <= 3


async def test_an_order_signs_all_its_vms_in_one_call_and_once(cloud: CloudMaker, moto: Moto) -> None:
    ec2 = cloud(owner="signed")
    made = await ec2.perform_orders("create", REGION, [replace(order, epoch=3) for order in orders("a", "b", "c")])
    vms = [good([answer]) for answer in made]
    moto.ec2.calls.clear()
    for verb in ("suspend", "resume"):
        answers = await ec2.perform_orders(verb, REGION, [on(vm, verb, epoch=4) for vm in vms])
        assert all(isinstance(answer, VmFacts) for answer in answers)
    assert moto.ec2.calls["CreateTags"] == 1
    tagged = [{tag["key"]: tag["value"] for tag in vm.get_tags()} for vm in moto.ec2.instances("signed")]
    assert [tags["ratchet:epoch"] for tags in tagged] == ["4"] * 3


async def test_one_vm_with_a_later_action_leaves_the_others_of_a_call_alone(cloud: CloudMaker, moto: Moto) -> None:
    ec2 = cloud()
    a, b = await create(ec2, "a", "b")
    good([await do(ec2, "reboot", on(a, "later", epoch=9))])
    answers = await ec2.perform_orders("suspend", REGION, [on(a, "s", epoch=5), on(b, "s", epoch=5)])
    assert [type(answer) for answer in answers] == [Superseded, VmFacts]
    assert moto.ec2.calls_for("StopInstances", a.cloud_id) == 0


async def test_an_action_that_waits_to_order_notices_a_later_one(cloud: CloudMaker, moto: Moto) -> None:
    """A VM that is still stopping cannot be started yet; when it can, the right to start it is gone."""
    ec2 = cloud()
    [vm] = await create(ec2, "a")
    moto.ec2.settle_seconds = PATIENCE
    stopping = asyncio.create_task(do(ec2, "suspend", on(vm, "stop", epoch=5)))
    async with asyncio.timeout(PATIENCE):
        while await ec2.describe_vms(REGION, [on(vm, "")]) == [vm]:
            await asyncio.sleep(0.02)
    starting = asyncio.create_task(do(ec2, "resume", on(vm, "start", epoch=6)))
    moto.ec2.settle_seconds = 0
    good([await do(ec2, "terminate", on(vm, "end", epoch=7))])
    moto.ec2.settle()
    assert isinstance(await starting, Superseded)
    assert isinstance(await stopping, Superseded)
    assert moto.ec2.calls_for("StartInstances", vm.cloud_id) == 0


async def test_labels_become_tags_unless_they_pretend_to_be_ours(cloud: CloudMaker, moto: Moto) -> None:
    ec2 = cloud(owner="labels")
    labels = {"team": "blue", "ratchet:path": "ns:other", "aws:x": "y"} | {f"k{number}": "v" for number in range(60)}
    [order] = orders("a")
    good([await do(ec2, "create", replace(order, spec={**SPEC, "label": labels}))])
    [instance] = moto.ec2.instances("labels")
    tags = {tag["key"]: tag["value"] for tag in instance.get_tags()}
    assert len(tags) <= 50
    assert (tags["Name"], tags["ratchet:path"]) == ("a", order.path)
    assert "aws:x" not in tags


async def test_a_path_that_no_tag_can_hold_is_rejected(cloud: CloudMaker) -> None:
    answer = await do(cloud(), "create", VmOrder("ns:" + "x" * 260, "t", spec=SPEC))
    assert isinstance(answer, Rejected)
    assert "255 characters" in str(answer)


async def test_the_security_group_lets_in_only_who_was_named(cloud: CloudMaker, moto: Moto) -> None:
    rules = [{"port": 22, "from": "203.0.113.0/24"}, {"port": 80, "to_port": 81, "from": "2001:db8::/32"}]
    given = {"subnet": "", "security_groups": [], "key_name": "", "ingress": rules}
    ec2 = cloud(**given)
    made = await prepare(ec2)
    assert await prepare(ec2) == made
    [group] = [group for group in moto.ec2.groups() if group.id == made["securityGroup"]]
    opened = [(rule.from_port, rule.to_port, *rule.ip_range.values()) for rule in group.ingress_rules]
    assert sorted(opened) == [(22, 22, "203.0.113.0/24"), (80, 81, "2001:db8::/32")]


async def test_what_ec2_does_not_know_everywhere_yet_is_tried_again(cloud: CloudMaker, moto: Moto) -> None:
    ec2 = cloud(subnet="", security_groups=[], key_name="", lag_seconds=PATIENCE)
    moto.ec2.lag_seconds = PATIENCE
    preparing = asyncio.create_task(prepare(ec2))
    await _called(moto, "CreateSubnet", moto.ec2.calls["CreateSubnet"], times=2)
    moto.ec2.lag_seconds = 0.3
    made = await preparing
    [order] = orders("a")
    assert good([await do(ec2, "create", replace(order, spec={**SPEC, "network": made}))]).state is VmState.RUNNING


async def test_nobody_home_is_unavailable_and_a_mute_server_is_unknown(cloud: CloudMaker) -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        port = mute.getsockname()[1]
        refusing = cloud(endpoint_url=f"http://127.0.0.1:{port}")
        with pytest.raises(Unavailable, match="cannot be reached"):
            await refusing.describe_vms(REGION, orders("a"))
        mute.listen()
        silent = cloud(endpoint_url=f"http://127.0.0.1:{port}", read_seconds=0.2)
        with pytest.raises(Unavailable, match="no answer"):
            await silent.describe_vms(REGION, orders("a"))
        with pytest.raises(UnknownOutcome):
            await silent._ec2.call_change_operation("stop_instances", InstanceIds=["i-0123"])


async def test_credentials_of_another_account_are_never_used(cloud: CloudMaker, moto: Moto) -> None:
    ours, theirs = cloud(account=ACCOUNT), cloud(account="210987654321")
    (made,) = await create(ours, "a")
    assert made.state is VmState.RUNNING
    before = dict(moto.ec2.calls)
    told = f"of the AWS account {ACCOUNT}, not of 210987654321: they are not used"
    with pytest.raises(Rejected, match=told):
        await theirs.describe_vms(REGION, orders("a"))
    (answer,) = await theirs.perform_orders("create", REGION, orders("b"))
    assert isinstance(answer, Rejected)
    assert told in str(answer)
    asked = {word for word, times in moto.ec2.calls.items() if times != before.get(word)}
    assert asked == {"GetCallerIdentity"}, "EC2 was not asked at all"


async def test_an_account_that_cannot_be_asked_for_is_unavailable_not_another_one(cloud: CloudMaker) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        ec2 = cloud(account=ACCOUNT, endpoint_url=f"http://127.0.0.1:{nobody.getsockname()[1]}")
        with pytest.raises(Unavailable, match="cannot be reached"):
            await ec2.describe_vms(REGION, orders("a"))


async def test_calls_that_hang_hold_up_no_other_vm(cloud: CloudMaker, moto: Moto) -> None:
    ec2 = cloud()
    moto.ec2.add_fault(Fault(kind=FaultKind.HANG, verb="create", vm="slow-*", seconds=PATIENCE))
    hanging = asyncio.create_task(ec2.perform_orders("create", REGION, orders(*(f"slow-{n}" for n in range(10)))))
    await create(ec2, "quick")
    assert not hanging.done()
    moto.ec2.end_hangs()
    assert all(isinstance(answer, VmFacts) for answer in await hanging)


@pytest.mark.parametrize("cancels", [1, 2])
async def test_whoever_is_cancelled_waits_for_the_end_of_the_call_under_way(
    cloud: CloudMaker, moto: Moto, cancels: int
) -> None:
    ec2, permits = cloud(), PermitPool(ConcurrencyCaps(), LocalPermitStore())
    [vm] = await create(ec2, "a")
    moto.ec2.add_fault(Fault(kind=FaultKind.HANG, verb="suspend", seconds=PATIENCE))

    async def suspend() -> None:
        async with permits.take_region_permit("aws", REGION), permits.take_vm_slots("aws", REGION):
            await do(ec2, "suspend", on(vm, "now"))

    work = asyncio.create_task(suspend())
    await _stop_arrived(moto, vm)
    for _ in range(cancels):
        work.cancel()
        await asyncio.sleep(0.02)
        assert permits.slots_in_use() == {f"aws/{REGION}": 1}, "the call counts as long as it runs"
    moto.ec2.end_hangs()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert real_state(moto, vm) == "stopped", "nothing is in flight any more"
    assert permits.slots_in_use() == {}
    await permits.return_all_permits()


async def test_whoever_runs_out_of_time_waits_for_the_end_of_the_call_under_way(cloud: CloudMaker, moto: Moto) -> None:
    ec2 = cloud()
    [vm] = await create(ec2, "a")
    moto.ec2.add_fault(Fault(kind=FaultKind.HANG, verb="suspend", seconds=PATIENCE))

    async def suspend() -> None:
        async with asyncio.timeout(None) as limit:
            running.set_result(limit)
            await do(ec2, "suspend", on(vm, "now"))

    running: asyncio.Future[asyncio.Timeout] = asyncio.get_running_loop().create_future()
    work = asyncio.create_task(suspend())
    await _stop_arrived(moto, vm)
    (await running).reschedule(0)
    await asyncio.sleep(0.05)  # its time is over within
    moto.ec2.end_hangs()
    with pytest.raises(TimeoutError):
        await work
    assert real_state(moto, vm) == "stopped", "nothing is in flight any more"


async def test_a_mute_server_holds_nobody_longer_than_a_part_of_the_time_of_a_call(moto: Moto) -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        silent = AwsCloud(moto.furnished(REGION, "mute", endpoint_url=url), call_seconds=2.0)
        with pytest.raises(Unavailable, match="no answer"):
            async with asyncio.timeout(PATIENCE):  # its own seconds would be more
                await silent.describe_vms(REGION, orders("a"))
        await silent.close()


async def _stop_arrived(moto: Moto, vm: VmFacts) -> None:
    await _called(moto, f"StopInstances {vm.cloud_id}", 0)


async def _called(moto: Moto, operation: str, before: int, times: int = 1) -> None:
    """Until EC2 was called so many times more."""
    async with asyncio.timeout(PATIENCE):
        while moto.ec2.calls[operation] < before + times:
            await asyncio.sleep(0.005)


def real_state(moto: Moto, vm: VmFacts) -> str:
    [found] = [each for each in moto.ec2._all() if each.id == vm.cloud_id]
    return str(found._state.name)


def test_every_verb_has_a_way_in_every_state_or_is_refused() -> None:
    """The states and verbs in which nothing is possible, written down apart from the table."""
    refused = {
        (verb, state) for verb in VERBS for state in VmState if next_order_step(verb, state) is NextOrderStep.REFUSE
    }
    dead = {VmState.TERMINATING, VmState.TERMINATED}
    expected = {(verb, state) for verb in ("suspend", "resume", "reboot") for state in dead}
    assert refused == expected | {("reboot", VmState.STOPPED), ("reboot", VmState.STOPPING)}


async def test_launches_keep_to_their_pace_after_a_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    pace, waits = RateLimiter(per_second=0.01, burst=5), list[float]()

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("providers.aws.ratelimit.asyncio.sleep", wait)
    for _ in range(5):
        await pace.wait_for_turn()
    assert waits == []
    for _ in range(3):
        await pace.wait_for_turn()
    assert waits == pytest.approx([100, 200, 300], abs=50)  # seconds from now: nobody moves the clock
