"""Trouble of every kind in the middle of an action: nothing is lost, nothing done twice, nothing stuck."""

from __future__ import annotations

import random

import pytest

from tests.chaos.families import STORIES
from tests.chaos.killing import Score, in_worlds, seed
from tests.chaos.stories import Story
from tests.chaos.trouble import Trouble, cancelled, server_killed, store_locked, tell, worker_killed
from tests.chaos.world import World

PLAIN = [story for story in STORIES if story.result == "succeeded" and story.plain]
FAULTS: dict[str, tuple[Trouble, int]] = {  # and how often in the short run
    "server killed and restarted": (server_killed, 2),
    "worker killed at any moment": (worker_killed, 2),
    "store locked for six seconds": (store_locked, 1),
}


def chosen(chance: random.Random, few: int, all_of_them: bool) -> list[Story]:
    return PLAIN if all_of_them else chance.sample(PLAIN, few)


def assert_clean(score: Score, number: int) -> None:
    told = [f"RATCHET_SEED={number} repeats this run", *score.lost, *score.doubled, *score.stuck]
    assert score.clean, "\n".join(told)


@pytest.mark.parametrize("fault", FAULTS)
async def test_an_action_survives(fault: str, places: list[World], chaos: bool, scores: list[Score]) -> None:
    number = seed()
    chance, score = random.Random(number), Score(fault)
    trouble, few = FAULTS[fault]
    scores.append(score)
    await in_worlds(places, chosen(chance, few, chaos), lambda place, story: tell(place, story, score, trouble, chance))
    assert_clean(score, number)


async def test_a_cancel_at_any_moment_ends_stable_and_with_the_truth(
    places: list[World], chaos: bool, scores: list[Score]
) -> None:
    number = seed()
    chance, score = random.Random(number), Score("cancelled at any moment")
    scores.append(score)
    await in_worlds(places, chosen(chance, 4, chaos), lambda place, story: cancelled(place, story, score, chance))
    assert_clean(score, number)
