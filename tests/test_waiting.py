"""How long a client waits for an answer: longer while workers take work, and no longer where none does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

import pytest

from client.patience import Patience, PollWatch
from tests.patience import PATIENCE, within
from tests.virtualtime import in_virtual_time

SECONDS = 0.05  # the patience where nobody polls


class Polls:
    """A queue that somebody polls before each look, until they stop."""

    def __init__(self, on_look: Callable[[int], None] = lambda _number: None) -> None:
        self.are_made = True
        self.looks = 0
        self._moments = count(1)
        self._moment = 0
        self._on_look = on_look
        self.watch = PollWatch(self._look)

    async def _look(self) -> float:
        self.looks += 1
        self._on_look(self.looks)
        if self.are_made:
            self._moment = next(self._moments)
        return self._moment

    def patience(self, on_delay: Callable[[], None] = lambda: None, busy: float = PATIENCE) -> Patience:
        return Patience(self.watch, SECONDS, busy, on_delay)


@in_virtual_time
async def test_an_answer_is_awaited_while_workers_take_work_and_the_delay_is_told_once() -> None:
    answer = asyncio.get_running_loop().create_future()
    delays: list[float] = []
    polls = Polls(lambda number: answer.set_result("admitted") if number == 8 else None)
    patience = polls.patience(lambda: delays.append(patience.waited_seconds))
    async with within(PATIENCE, "there was no answer"):
        assert await patience.await_answer(answer) == "admitted"
    assert len(delays) == 1
    assert delays[0] >= SECONDS


@in_virtual_time
async def test_where_nobody_takes_work_the_patience_ends_soon() -> None:
    polls = Polls()
    polls.are_made = False
    patience = polls.patience(lambda: pytest.fail("nobody polls"))
    with pytest.raises(TimeoutError):
        await patience.await_answer(asyncio.get_running_loop().create_future())
    assert SECONDS <= patience.waited_seconds < PATIENCE


@in_virtual_time
async def test_workers_that_stop_taking_work_end_the_patience() -> None:
    polls = Polls()
    told: list[int] = []

    def stop() -> None:
        told.append(polls.looks)
        polls.are_made = False

    with pytest.raises(TimeoutError):
        await polls.patience(stop).await_answer(asyncio.get_running_loop().create_future())
    assert told


@in_virtual_time
async def test_a_worker_that_has_its_hands_full_since_it_took_work_is_waited_for() -> None:
    delays: list[float] = []

    def poll_in_the_first_half(_number: int) -> None:
        polls.are_made = patience.waited_seconds < 0.6 * SECONDS

    polls = Polls(poll_in_the_first_half)
    patience = polls.patience(lambda: delays.append(patience.waited_seconds))
    with pytest.raises(TimeoutError):
        await patience.await_answer(asyncio.get_running_loop().create_future())
    assert delays
    assert patience.waited_seconds < 3 * SECONDS


@in_virtual_time
async def test_even_busy_workers_are_not_waited_for_without_an_end() -> None:
    patience = Polls().patience(busy=3 * SECONDS)
    with pytest.raises(TimeoutError):
        await patience.await_answer(asyncio.get_running_loop().create_future())
    assert patience.waited_seconds >= 3 * SECONDS


@in_virtual_time
async def test_those_who_wait_share_their_looks() -> None:
    polls, answer = Polls(), asyncio.get_running_loop().create_future()
    waiting = [asyncio.create_task(polls.patience().await_answer(answer)) for _ in range(100)]
    async with within(PATIENCE, "nobody looked"):
        while polls.looks < 3:
            await asyncio.sleep(SECONDS / 10)
    looks = polls.looks
    answer.set_result("admitted")
    assert await asyncio.gather(*waiting) == ["admitted"] * 100
    assert looks <= 10


@in_virtual_time
async def test_an_error_of_the_work_is_raised_as_it_is() -> None:
    answer = asyncio.get_running_loop().create_future()
    answer.set_exception(ValueError("refused"))
    with pytest.raises(ValueError, match="refused"):
        await Polls().patience().await_answer(answer)
