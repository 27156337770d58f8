"""Kills the worker at every point that a story passes, one point per run, and starts another worker."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from time import monotonic
from typing import TypeVar

from domain.model import Outcome
from tests.chaos.stories import Story
from tests.chaos.world import World, forkserver, world
from tests.patience import PATIENCE, within

T = TypeVar("T")

WORLDS = 6  # of the long run: mostly somebody waits in each of them until a death is noticed
MINUTES = float(os.environ.get("RATCHET_CHAOS_MINUTES", "15"))  # of the long run; what comes in them is left to chance
# Seconds that a point may come later than the answer. On a busy machine one is too few: a later try waits longer.
AFTERWARDS, LONGER = 1.0, (1.0, 10.0, 60.0)
TRIES = len(LONGER)


@dataclass(frozen=True)
class Death:
    """One worker killed at one point of one story."""

    story: Story
    point: str
    after: str = ""  # another point, which comes first

    def __str__(self) -> str:
        return f"{self.story} at {self.point}{f' after {self.after}' if self.after else ''}"


@dataclass
class Score:
    """Counts the results of stories with one kind of fault."""

    fault: str
    injected: int = 0
    actions: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.stuck)

    def row(self) -> tuple[str, ...]:
        numbers = (self.injected, self.actions, len(self.lost), len(self.doubled), len(self.stuck))
        return (self.fault, *map(str, numbers))


@asynccontextmanager
async def told(place: World, story: Story) -> AsyncIterator[str]:
    """The path of a story that is about to run; afterwards its helpers are stopped."""
    path = story.at(place.ns())
    for before in story.before:
        await before(place, path)
    try:
        yield path
    finally:
        await place.fault_free(path)
        for after in story.after:
            await after(place, path)


async def points_of(place: World, story: Story) -> list[str]:
    """The points that an undisturbed story passes, in order; some more than once."""
    score = Score("nothing")
    async with told(place, story) as path:
        async with place.traced() as points:
            outcome = await story.act(place, path)
        await judge(place, story, path, outcome, score, str(story))
    assert score.clean, score
    return points


async def die(place: World, death: Death, score: Score, afterwards: float = AFTERWARDS) -> bool:
    """Kill the worker at the point, start another, and judge the story. False: the point was not reached."""
    story, label = death.story, str(death)
    async with told(place, story) as path:
        place.arm(*filter(None, (death.after, death.point)))
        acting = asyncio.create_task(story.act(place, path))
        died = asyncio.create_task(place.worker_died())
        await asyncio.wait({acting, died}, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)
        await asyncio.wait({died}, timeout=afterwards)  # what is done when the answer is known
        place.arm()
        reached = died.done()
        if reached:
            score.injected += 1
            await place.start_worker()
        died.cancel()
        score.actions += 1
        await see_the_end(place, story, path, acting, score, label)
    return reached


async def see_the_end(
    place: World,
    story: Story,
    path: str,
    acting: asyncio.Task[Outcome],
    score: Score,
    label: str,
    ends: Sequence[str] = (),
) -> None:
    """Wait for the end of a story, and judge it."""
    try:
        outcome = await asyncio.wait_for(acting, PATIENCE)
    except TimeoutError:
        score.stuck.append(f"{label}: no end within {PATIENCE} s")
    except Exception as error:
        score.lost.append(f"{label}: {error!r}")
    else:
        await judge(place, story, path, outcome, score, label, ends)


async def judge(
    place: World, story: Story, path: str, outcome: Outcome, score: Score, label: str, ends: Sequence[str] = ()
) -> None:
    """Compare the end of the story with what is expected. `ends`: results that are accepted besides the story's own."""
    as_told = outcome.result == story.result
    if not as_told and outcome.result not in ends:
        score.lost.append(f"{label}: {outcome.result} instead of {story.result}: {outcome.message} {outcome.troubles}")
    if as_told and story.status and outcome.status != story.status:
        score.lost.append(f"{label}: {outcome.status} instead of {story.status}")
    for finding in await place.verify(*story.paths(path)):
        wrong = score.stuck if finding.invariant == "I2" else score.lost
        wrong.append(f"{label}: {finding.invariant} {finding.path} {finding.what}")
    if as_told and story.ledger and story.told:
        really = await story.ledger(place, story.object(path))
        wrong = score.doubled if len(really) > len(story.told) else score.lost
        wrong += [f"{label}: {really} instead of {story.told}"] if tuple(really) != story.told else []
    books = await place.books(path)
    if story.effects is not None and any(vm.effects > story.effects for vm in books):
        score.doubled.append(f"{label}: {[(vm.path, vm.effects) for vm in books if vm.effects > story.effects]}")
    live = [vm.path for vm in books if vm.state != "terminated"]
    if len(live) != len(set(live)):
        score.doubled.append(f"{label}: more than one VM for a record")


@asynccontextmanager
async def worlds(folder: Path, number: int) -> AsyncIterator[list[World]]:
    async with forkserver() as workers, AsyncExitStack() as stack:
        made = [stack.enter_async_context(world(folder / f"world{n}", workers)) for n in range(number)]
        yield await asyncio.gather(*made)


def time_for(share: float) -> float:
    """The time at which this share of the long run is over, counted from now."""
    return monotonic() + 60 * MINUTES * share


async def in_worlds(
    places: list[World],
    each: Iterable[T],
    one: Callable[[World, T], Awaitable[None]],
    score: Score,
    until: float = inf,
) -> None:
    """Run each once, in several worlds at once, until the time is over. One that cannot be run counts as lost."""
    todo = iter(list(each))

    async def live(place: World) -> None:
        for item in todo:
            if monotonic() > until:
                return
            try:
                async with within(5 * PATIENCE, "it was not over"):
                    await one(place, item)
            except Exception as error:
                score.lost.append(f"{score.fault}: {item} could not be told: {error!r}")

    await asyncio.gather(*map(live, places))


async def kill_at(places: list[World], deaths: Iterable[Death], score: Score, until: float = inf) -> list[Death]:
    """Run these deaths in several worlds at once, until the time is over. Returns those that were not reached."""
    missed = []

    async def one(place: World, death: Death) -> None:
        for longer in LONGER:  # what else happens in a moment is not always the same
            # The long run may miss some, and its time is better spent on others.
            if await die(place, death, score, longer if until == inf else AFTERWARDS):
                return
        missed.append(death)

    await in_worlds(places, deaths, one, score, until)
    return missed


def seed() -> int:
    """The seed of this run; RATCHET_CHAOS_SEED repeats another one."""
    return int(os.environ.get("RATCHET_CHAOS_SEED", random.SystemRandom().randrange(10**6)))
