"""A worker that was frozen or cut off, and wakes after later actions have ended, changes nothing."""

from __future__ import annotations

import random

import pytest

from tests.chaos.killing import TRIES, Score, in_worlds, points_of, seed, time_for
from tests.chaos.overtaking import Lapsing, cut_off, frozen, overtaken
from tests.chaos.stories import Story
from tests.chaos.test_kill import is_apart
from tests.chaos.test_trouble import PLAIN, assert_clean
from tests.chaos.world import World

SAMPLE = 2
SHARE = 0.1  # of the long run's time, for each
LAPSES: dict[str, Lapsing] = {
    "worker frozen, and continued when later actions were done": frozen,
    "worker cut off from Temporal only, and back when later actions were done": cut_off,
}


def can_stop(point: str) -> bool:
    """Not inside a transaction: a worker that freezes there holds the database, and everybody waits, as they should."""
    return not is_apart(point) and not point.endswith(":before-commit")


@pytest.mark.parametrize("lapse", LAPSES)
async def test_a_worker_that_was_lost_for_a_while_changes_nothing_afterwards(
    lapse: str, places: list[World], chaos: bool, scores: list[Score]
) -> None:
    number, score = seed(), Score(lapse)
    scores.append(score)
    chance = random.Random(number)
    stories = chance.sample(PLAIN, len(PLAIN) if chaos else SAMPLE)

    async def one(place: World, story: Story) -> None:
        points = [point for point in dict.fromkeys(await points_of(place, story)) if can_stop(point)]
        for _ in range(TRIES):
            if await overtaken(place, story, chance.choice(points), LAPSES[lapse], score):
                return

    await in_worlds(places, stories, one, score, time_for(SHARE))
    assert_clean(score, number)
    assert score.injected
