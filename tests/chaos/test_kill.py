"""A worker killed with -9 at any step of any action is replaced, and the action ends as if nothing had happened."""

from __future__ import annotations

import random

from tests.chaos.families import STORIES
from tests.chaos.killing import Death, Score, kill_at, points_of, seed
from tests.chaos.world import World
from workers.service import Service

SAMPLE = 8
# Reads and self-healing: nothing of an action is lost when a worker dies in one.
NOT_PART_OF_AN_ACTION = {"verify", "cloud_faults", "heal_holders", "advance"}


# These families tell no stories here yet: workers are killed in their own tests.
UNTOLD = {
    *("crm_answered", "crm_connected", "crm_everything", "crm_ignored", "crm_lost", "crm_send"),
    *("failover_plan", "policy_facts"),
    *("operate_object", "settle_object", "machines_on", "still_held", "open_line", "close_line", "sweep"),
}


def is_read(activity: str) -> bool:
    return activity.startswith(("read_", "reading.", "facts.", "faults.")) or activity in NOT_PART_OF_AN_ACTION


async def test_a_worker_killed_at_any_step_loses_nothing(
    places: list[World], stack: Service, chaos: bool, scores: list[Score]
) -> None:
    number = seed()
    deaths = [Death(story, point) for story in STORIES for point in await points_of(places[0], story)]
    deaths = [death for death in deaths if not is_read(death.point.split(":")[0])]
    passed = {death.point.split(":")[0] for death in deaths}
    forgotten = {name for name in stack.activity_names() if not is_read(name)} - passed - UNTOLD
    assert not forgotten, f"no story passes through {forgotten}"
    chosen = deaths if chaos else random.Random(number).sample(deaths, SAMPLE)
    score = await kill_at(places, chosen)
    scores.append(score)
    told = f"RATCHET_SEED={number} repeats this run"
    assert score.clean, "\n".join([told, *score.lost, *score.doubled, *score.stuck])
    # Not every point is passed each time: a place, for one, is prepared only for the first who comes there.
    assert score.injected >= len(chosen) * 0.4, f"only {score.injected} of {len(chosen)} points were reached; {told}"
