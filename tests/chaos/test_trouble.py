"""Faults of every kind during an action: nothing is lost, doubled or stuck."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from domain.healing import SweepOptions
from domain.model import ActionResult
from tests.chaos.crms import PATIENT, SHORT
from tests.chaos.families import STORIES, leases, machines
from tests.chaos.killing import Score, in_worlds, see_the_end, seed, time_for, told
from tests.chaos.stories import Story
from tests.chaos.trouble import (
    HOURS,
    Trouble,
    beset,
    cancelled,
    clock_jumps,
    disk_full,
    for_a_while,
    server_killed,
    store_locked,
    tell,
    terminated,
    worker_killed,
)
from tests.chaos.world import World, world
from tests.patience import PATIENCE
from tests.test_platform.postgres import Postgres
from workers.families import FAMILIES
from workers.family import Family

ALL = tuple(dict.fromkeys(story.family for story in STORIES))
# Families whose provider follows the fault script.
WITH_FAULTS = tuple(family.name for family in FAMILIES if family.fault_verbs is not Family.fault_verbs)
SHARE = 0.025  # of the long run's time, for each of these faults
PLAIN = [story for story in STORIES if story.result == "succeeded" and story.plain]

# A fault, whom it hits, and how many stories have it in the short run.
FAULTS: dict[str, tuple[Trouble, tuple[str, ...], int]] = {
    "server killed and restarted": (server_killed, ALL, 2),
    "worker killed at any moment": (worker_killed, ALL, 2),
    "store locked for six seconds": (store_locked, ALL, 1),
    "disk full for two seconds": (disk_full, ALL, 2),
    "clock of the worker hours ahead, and back": (clock_jumps, ALL, 2),
    "throttling storm": (for_a_while(2, kind="throttle"), WITH_FAULTS, 2),
    "throttling storm that says how long": (for_a_while(2, kind="throttle", retry_after=0.5), WITH_FAULTS, 1),
    "everything outside unavailable for a while": (for_a_while(2, kind="unavailable"), WITH_FAULTS, 1),
}

# Faults that meet some of a story's calls, whom they hit, what else may become of it, and how many in the short run.
PART = (ActionResult.PARTIAL, ActionResult.FAILED)
CALLS: dict[str, tuple[dict[str, Any], tuple[str, ...], tuple[str, ...], int]] = {
    "answer lost after the work was done": ({"kind": "lose-answer", "times": 4}, WITH_FAULTS, (), 3),
    "some of a batch fail": ({"kind": "fail", "times": 2}, ("mci", "machines"), PART, 3),
    "no room, or the quota used up": ({"kind": "capacity", "times": 2}, ("mci",), PART, 1),
    "reads that make no sense": ({"kind": "unknown-status", "times": 3}, ("mci",), PART, 1),
    "terminate that says done and is not": ({"kind": "lie", "times": 1}, ("mci",), PART, 2),
}
REMOVING = ("delete", "scale-in", "delete beside another")
ABOUT = {"capacity": ("create", "scale-out"), "lie": REMOVING, "unknown-status": REMOVING}


def chosen(
    chance: random.Random, few: int, all_of_them: bool, families: Collection[str] = ALL, names: Collection[str] = ()
) -> list[Story]:
    """In random order: the long run continues until its time is over."""
    some = [story for story in PLAIN if story.family in families and (not names or story.name in names)]
    return chance.sample(some, len(some) if all_of_them else few)


def assert_clean(score: Score, number: int) -> None:
    told = [f"RATCHET_CHAOS_SEED={number} repeats this run", *score.lost, *score.doubled, *score.stuck]
    assert score.clean, "\n".join(told)


@pytest.mark.parametrize("fault", FAULTS)
async def test_an_action_survives(fault: str, places: list[World], chaos: bool, scores: list[Score]) -> None:
    number = seed()
    chance, score = random.Random(number), Score(fault)
    trouble, families, few = FAULTS[fault]
    scores.append(score)
    stories = chosen(chance, few, chaos, families)
    await in_worlds(
        places, stories, lambda place, story: tell(place, story, score, trouble, chance), score, time_for(SHARE)
    )
    assert_clean(score, number)


@pytest.mark.parametrize("fault", CALLS)
async def test_an_action_that_meets_faults_outside_ends_with_the_truth(
    fault: str, places: list[World], chaos: bool, scores: list[Score]
) -> None:
    number = seed()
    chance, score = random.Random(number), Score(fault)
    rule, families, ends, few = CALLS[fault]
    scores.append(score)
    stories = chosen(chance, few, chaos, families, ABOUT.get(rule["kind"], ()))
    await in_worlds(
        places, stories, lambda place, story: beset(place, story, score, rule, ends), score, time_for(SHARE)
    )
    assert_clean(score, number)
    assert score.injected


@asynccontextmanager
async def told_in_haste(place: World, story: Story) -> AsyncIterator[str]:
    """The controller hardly waits for CRMs, not in the preparation either: on a busy machine that needs more."""
    async with AsyncExitStack() as stack:
        for times in (1, 4, 16):
            place.crms.patience = {what: times * seconds for what, seconds in SHORT.items()}
            try:
                path = await stack.enter_async_context(told(place, story))
                break
            except AssertionError:
                if times == 16:
                    raise
        yield path


async def test_answers_of_crms_that_go_astray_end_in_a_known_state(
    places: list[World], chaos: bool, scores: list[Score]
) -> None:
    number = seed()
    chance, score = random.Random(number), Score("answers of a CRM lost, late, doubled, out of order")
    scores.append(score)

    async def one(place: World, story: Story) -> None:
        try:
            async with told_in_haste(place, story) as path:
                place.crms.chance, place.crms.mishaps = chance, 0
                acting = asyncio.create_task(story.act(place, path))
                await asyncio.wait({acting}, timeout=PATIENCE)
                place.crms.chance = None
                score.injected += place.crms.mishaps
                score.actions += 1
                ends = (ActionResult.FAILED,)  # silence is an error, and undone
                await see_the_end(place, story, path, acting, score, f"{score.fault}: {story}", ends)
        finally:
            place.crms.patience, place.crms.chance = PATIENT, None

    about = [story for story in PLAIN if story.family == "edge" and story.name.startswith(("cluster", "app"))]
    await in_worlds(places, about * 10 if chaos else chance.sample(about, 4), one, score, time_for(SHARE))
    assert_clean(score, number)


@pytest.mark.parametrize(("how", "what"), [("cancelled", cancelled), ("terminated", terminated)])
async def test_stopped_from_outside_at_any_moment_everything_comes_to_rest(
    how: str, what: Any, places: list[World], chaos: bool, scores: list[Score]
) -> None:
    number = seed()
    chance, score = random.Random(number), Score(f"{how} at any moment")
    scores.append(score)
    stories = [story for story in chosen(chance, 4, chaos) if not story.waits]
    await in_worlds(places, stories, lambda place, story: what(place, story, score, chance), score, time_for(SHARE))
    assert_clean(score, number)


async def test_nothing_happens_early_because_a_clock_is_ahead(places: list[World]) -> None:
    place = places[0]
    due, waiting = (f"project:{place.ns()}:lease:l1" for _ in range(2))
    pool = due.split(":")[1]
    for host in ("h1", "h2"):
        await place.do(f"pool:{pool}:host:{host}", "add", spec={})
    await place.do(waiting, "create", spec={"hosts": 1, "pool": pool, "start": "+1h", "end": "+2h"})
    account = f"account:{place.ns()}"
    await machines.space(place, account)
    await place.do(f"{account}:cloudspace:dev", "delete")  # for seven days
    place.set_clock(30 * 24 * HOURS)
    try:
        await place.do(due, "create", spec={"hosts": 1, "pool": pool, "start": "now", "end": "+2h"})
        await leases.until(place, due, lambda seen: seen.status == "ACTIVE")  # the clock of the pool has looked
        assert (await place.asking.run_sweep(SweepOptions())).found == []
        assert (await place.see(waiting)).status == "PENDING"
        assert (await place.see(f"{account}:cloudspace:dev")).status == "DELETED"
    finally:
        place.set_clock(0)


async def test_postgresql_stopped_for_a_while_fails_nothing(
    tmp_path: Path, chaos: bool, scores: list[Score], monkeypatch: pytest.MonkeyPatch
) -> None:
    number, seconds = seed(), 60 if chaos else 3
    chance, score = random.Random(number), Score(f"PostgreSQL stopped for {seconds} s")
    scores.append(score)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # the server runs as another user
        postgres = Postgres(Path(folder) / "postgres")

        async def away(place: World, chance: random.Random) -> None:
            await asyncio.to_thread(postgres.crash)
            await asyncio.sleep(seconds)  # the fault itself
            await asyncio.to_thread(postgres.start)

        async with world(tmp_path / "world", RATCHET_STORE_URL=postgres.url) as place:
            for story in chosen(chance, 2 if chaos else 1, False):
                await tell(place, story, score, away, chance)
            assert not (place.home / "inventory.db").exists(), "the inventory was never on PostgreSQL"
        postgres.close()
    assert_clean(score, number)
