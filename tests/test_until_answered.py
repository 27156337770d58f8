"""Orders to a provider are repeated until they are answered: which, how often, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from activities.retry import ProviderRetry, jittered_pause
from domain.errors import ProviderError, Rejected, Throttled, Unavailable, UnknownOutcome
from tests.virtualtime import in_virtual_time

QUICK = ProviderRetry(call_seconds=30, total_seconds=30, first_pause=0.001, longest_pause=0.002)


class Provider:
    """Answers with these troubles, one after the other, and then well."""

    def __init__(self, *troubles: ProviderError) -> None:
        self._troubles = list(troubles)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self._troubles:
            raise self._troubles.pop(0)
        return "done"


async def test_what_was_throttled_unavailable_or_unknown_is_asked_again() -> None:
    provider = Provider(Throttled("slowly"), Unavailable("later"), UnknownOutcome("who knows"))
    assert await QUICK.call_with_retry(provider) == "done"
    assert provider.calls == 4


async def test_a_no_is_an_answer() -> None:
    provider = Provider(Rejected("never"))
    with pytest.raises(Rejected, match="never"):
        await QUICK.call_with_retry(provider)
    assert provider.calls == 1


async def test_when_patience_ends_the_last_trouble_is_told() -> None:
    provider = Provider(Unavailable("first"), Unavailable("second"))
    with pytest.raises(Unavailable, match="first"):
        await QUICK.call_with_retry(provider, total=0)
    assert provider.calls == 1


async def test_no_answer_in_time_is_an_unknown_outcome() -> None:
    async def silent() -> None:
        await asyncio.Event().wait()

    with pytest.raises(UnknownOutcome, match=r"no answer within 0\.01 s"):
        await ProviderRetry(call_seconds=0.01).call_with_retry(silent, total=0)


async def test_to_wait_for_room_does_not_count_as_waiting_for_an_answer() -> None:
    entered: list[str] = []

    @asynccontextmanager
    async def crowded() -> AsyncIterator[None]:
        await asyncio.sleep(0.1)
        entered.append("in")
        yield

    patient = ProviderRetry(call_seconds=0.05, total_seconds=30, first_pause=0.001)
    assert await patient.call_with_retry(Provider(Unavailable("later")), room=crowded) == "done"
    assert entered == ["in", "in"], "each try enters by itself"


def test_nobody_comes_back_earlier_than_the_provider_asked_for() -> None:
    for _ in range(100):
        assert 5.5 <= jittered_pause(1.0, [Throttled("slowly", 5.0), Throttled("at all"), Unavailable("later")]) <= 6.0
        assert 0.5 <= jittered_pause(1.0, [Unavailable("later")]) <= 1.0


def test_a_provider_at_work_is_looked_at_in_a_tenth_of_its_time_and_one_in_trouble_is_spared() -> None:
    patience = ProviderRetry(first_pause=0.1, longest_pause=10.0)
    pauses = patience.pauses()
    at_work, away = Unavailable("deploying", at_work=True), Unavailable("away")
    waits = [patience._pause_after(at_work, elapsed, pauses) for elapsed in (0.0, 5.0, 60.0, 600.0)]
    assert waits == [0.1, 0.5, 6.0, 10.0]
    assert [patience._pause_after(away, 600.0, pauses) for _ in range(3)] == [0.1, 0.2, 0.4]


@in_virtual_time
async def test_what_a_provider_finishes_is_noticed_within_a_share_of_its_own_time() -> None:
    clock, pauses = asyncio.get_running_loop().time, list[float]()
    done = clock() + 1.5

    async def deploy() -> str:
        pauses.append(clock())
        if clock() < done:
            raise Unavailable("deploying", at_work=True)
        return "done"

    assert await ProviderRetry(first_pause=0.05, longest_pause=60).call_with_retry(deploy) == "done"
    assert len(pauses) >= 8, "doubled pauses would have looked six times"
