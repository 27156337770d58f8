"""The fence: checked just before each order, and closed when the action ends or Temporal is silent."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from activities import fence
from activities.fence import PROOF_VALID_SECONDS, Fence, OrderFence, seconds_since_boot
from domain.errors import Superseded
from domain.model import ActionResult
from domain.ports import Inventory
from tests.environment import activity_environment
from tests.patience import PATIENCE
from tests.user import User
from workflows.calls import HEARTBEAT

PATH, EPOCH, TIMEOUT = "ns:default:mci:web", 7, 5.0


@dataclass
class Actions:
    """What of an inventory a fence asks for."""

    open: bool = True
    asked: list[tuple[str, int]] = field(default_factory=list)

    async def is_action_open(self, path: str, epoch: int) -> bool:
        self.asked.append((path, epoch))
        await asyncio.sleep(0)
        return self.open


@dataclass
class Clock:
    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


def order_fence(actions: Actions, clock: Clock) -> OrderFence:
    return OrderFence(cast(Inventory, actions), PATH, EPOCH, TIMEOUT, clock)


async def test_an_open_action_of_a_worker_that_is_heard_may_order() -> None:
    actions = Actions()
    assert await order_fence(actions, Clock()).prove_then_call(lambda: asyncio.sleep(0, "done")) == "done"
    assert actions.asked == [(PATH, EPOCH)]


async def test_an_action_that_is_over_orders_nothing() -> None:
    ordered: list[str] = []

    async def call() -> None:
        ordered.append("stop")

    with pytest.raises(Superseded, match="is over") as lost:
        await order_fence(Actions(open=False), Clock()).prove_then_call(call)
    assert lost.value.final
    assert ordered == []


async def test_many_orders_of_one_moment_ask_the_inventory_once() -> None:
    actions, clock = Actions(), Clock()
    right = order_fence(actions, clock)
    await asyncio.gather(*(right.prove() for _ in range(100)))
    clock.now += PROOF_VALID_SECONDS / 2
    await right.prove()
    assert len(actions.asked) == 1
    clock.now += PROOF_VALID_SECONDS / 2
    await right.prove()
    assert len(actions.asked) == 2


async def test_what_was_proven_before_a_freeze_counts_no_more_after_it() -> None:
    actions, clock = Actions(), Clock()
    right = order_fence(actions, clock)
    await right.prove()
    clock.now += PROOF_VALID_SECONDS + 1  # frozen, but not for so long that Temporal would miss it
    actions.open = False
    with pytest.raises(Superseded):
        await right.prove()


async def test_a_worker_that_temporal_has_not_heard_within_the_timeout_orders_nothing() -> None:
    actions, clock = Actions(), Clock()
    right = order_fence(actions, clock)
    clock.now += TIMEOUT
    with pytest.raises(Superseded, match="not heard") as lost:
        await right.prove()
    assert not lost.value.final, "another worker may go on with the action"
    assert actions.asked == []


async def test_a_freeze_while_the_inventory_answers_is_noticed() -> None:
    clock = Clock()

    class Slow(Actions):
        async def is_action_open(self, path: str, epoch: int) -> bool:
            clock.now += TIMEOUT
            return True

    with pytest.raises(Superseded, match="not heard"):
        await order_fence(Slow(), clock).prove()


async def test_an_inventory_that_was_asked_for_something_else_proves_it_too() -> None:
    actions, clock = Actions(), Clock()
    right = order_fence(actions, clock)
    right.accept_read_as_proof(clock.now)
    await right.prove()
    assert actions.asked == []
    right.accept_read_as_proof(clock.now - 100)  # an older word takes nothing back
    await right.prove()
    assert actions.asked == []


async def test_heartbeats_that_are_acknowledged_keep_the_right_and_others_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fence, "HEARTBEAT_SECONDS", 0.001)
    clock = Clock()
    right = order_fence(Actions(), clock)
    beats = 0
    enough = asyncio.Event()

    async def beat() -> bool:
        nonlocal beats
        beats += 1
        clock.now += 1  # the answer takes a second: what counts is when it was sent
        if beats == 3:
            enough.set()
            return False
        return True

    keeping = asyncio.create_task(right.heartbeat_until_cancelled(beat))
    await enough.wait()
    await keeping
    assert right.acknowledged_at == 1_001.0
    with pytest.raises(Superseded, match="another worker"):
        await right.prove()


async def test_a_slow_answer_delays_no_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence, "HEARTBEAT_SECONDS", 0.001)
    clock, sent = Clock(), list[float]()

    async def beat() -> bool:
        sent.append(clock.now)
        monkeypatch.setattr(fence, "HEARTBEAT_SECONDS", 3_600.0)
        clock.now += 3_600  # until then, the answer took
        return len(sent) < 2

    async with asyncio.timeout(PATIENCE):
        await order_fence(Actions(), clock).heartbeat_until_cancelled(beat)
    assert sent == [1_000.0, 4_600.0]


def test_after_a_heartbeat_that_was_lost_the_next_is_in_time() -> None:
    assert fence.HEARTBEAT_SECONDS + fence.ANSWER_TIMEOUT.total_seconds() < HEARTBEAT.total_seconds()


async def run(body: Any, actions: Actions | None = None) -> Any:
    """A body in an activity with a right."""

    async def heard() -> bool:
        return True

    async def within() -> Any:
        async with Fence(cast(Inventory, actions or Actions()), heard).right_to_order(PATH, EPOCH) as right:
            return await body(right)

    return await activity_environment().run(within)


async def test_a_lost_right_ends_the_activity_and_is_not_tried_again() -> None:
    async def body(right: OrderFence) -> None:
        async with asyncio.TaskGroup() as lanes:
            for _ in range(3):
                lanes.create_task(right.prove())

    with pytest.raises(ApplicationError, match="no order was given") as failure:
        await run(body, Actions(open=False))
    assert failure.value.type == "Superseded"
    assert failure.value.non_retryable


async def test_a_worker_that_was_not_heard_leaves_the_work_to_another() -> None:
    async def body(right: OrderFence) -> None:
        right.acknowledged_at = seconds_since_boot() - 10_000
        await right.prove()

    with pytest.raises(ApplicationError) as failure:
        await run(body)
    assert not failure.value.non_retryable


async def test_other_errors_pass_through_unchanged() -> None:
    async def body(right: OrderFence) -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await run(body)


async def test_nothing_is_ordered_when_the_time_of_the_activity_is_over() -> None:
    """Temporal has told the workflow then, which goes on without it, under the same epoch."""
    actions, clock = Actions(), Clock()
    right = order_fence(actions, clock)
    right.ends_at = clock.now + 3
    await right.prove()
    clock.now += 3
    with pytest.raises(Superseded, match="time that this work was given is over"):
        await right.prove()


@pytest.mark.parametrize(
    ("start_to_close", "schedule_to_close", "waited", "given"),
    [(10, 60, 0, 10), (10, 60, 55, 5), (None, 60, 20, 40), (10, None, 99, 10)],
)
async def test_the_time_of_an_activity_is_reckoned_from_both_timeouts(
    start_to_close: int | None, schedule_to_close: int | None, waited: int, given: int
) -> None:
    environment = activity_environment()
    limits = [timedelta(seconds=each) if each else None for each in (start_to_close, schedule_to_close)]
    environment.info = replace(
        environment.info,
        start_to_close_timeout=limits[0],
        schedule_to_close_timeout=limits[1],
        started_time=environment.info.scheduled_time + timedelta(seconds=waited),
    )

    async def work() -> float:
        async with Fence(cast(Inventory, Actions()), _acknowledged).right_to_order(PATH, EPOCH) as right:
            return right.ends_at - right.acknowledged_at

    async def _acknowledged() -> bool:
        return True

    assert await environment.run(work) == pytest.approx(given)


async def test_a_call_that_takes_longer_than_two_heartbeat_timeouts_is_not_cut_off(user: User, client: Client) -> None:
    """The SDK ends an activity of which it has heard no heartbeat for the timeout and five seconds."""
    await user.do(user.mci(), "create", spec=user.groups())
    await user.fault("hang", verb="suspend", seconds=2.5 * HEARTBEAT.total_seconds())
    async with asyncio.timeout(PATIENCE):
        while True:
            gaps = [0.0]
            ticking = asyncio.create_task(measure_gaps(gaps))
            assert (await user.do(user.mci(), "suspend")).result == ActionResult.SUCCEEDED
            ticking.cancel()
            history = await client.get_workflow_handle(user.mci()).fetch_history()
            started = [event.activity_task_started_event_attributes for event in history.events]
            attempts = {each.attempt for each in started if each.attempt}
            if attempts == {1} or max(gaps) < HEARTBEAT.total_seconds() / 2:
                break
            await user.do(user.mci(), "resume")  # the machine was too busy for heartbeats: once more
    assert attempts == {1}


async def measure_gaps(gaps: list[float]) -> None:
    """Appends by how much the loop came late each time."""
    while True:
        before = time.monotonic()
        await asyncio.sleep(0.1)
        gaps.append(time.monotonic() - before - 0.1)
