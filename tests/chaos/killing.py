"""Kill the worker at every step: each point that a story passes is the end of one worker, and another goes on."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from domain.model import Outcome
from tests.chaos.stories import Story
from tests.chaos.world import PATIENCE, World, world

WORLDS = 4


@dataclass(frozen=True)
class Death:
    """One worker killed at one point of one story."""

    story: Story
    point: str


@dataclass
class Score:
    """What became of many stories with one kind of fault in them."""

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


async def points_of(place: World, story: Story) -> list[str]:
    """The points that the story passes when nothing goes wrong."""
    path = story.at(place.ns())
    for before in story.before:
        await before(place, path)
    score = Score("nothing")
    async with place.traced() as points:
        outcome = await story.act(place, path)
    await judge(place, story, path, outcome, score, story.name)
    assert score.clean, score
    return points


async def die(place: World, death: Death, score: Score) -> None:
    """Kill the worker at the point, start another one, and see what became of the story."""
    story, label = death.story, f"{death.story.family} {death.story.name} at {death.point}"
    path = story.at(place.ns())
    for before in story.before:
        await before(place, path)
    place.arm(death.point)
    acting = asyncio.create_task(story.act(place, path))
    died = asyncio.create_task(place.worker_died())
    await asyncio.wait({acting, died}, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)
    place.arm("")
    if died.done():
        score.injected += 1
        await place.start_worker()
    else:
        died.cancel()
    score.actions += 1
    try:
        outcome = await asyncio.wait_for(acting, PATIENCE)
    except TimeoutError:
        score.stuck.append(f"{label}: no end within {PATIENCE} s")
    else:
        await judge(place, story, path, outcome, score, label)


async def judge(
    place: World, story: Story, path: str, outcome: Outcome, score: Score, label: str, ends: Sequence[str] = ()
) -> None:
    """Hold the end of the story against what must be true then. `ends`: results as good as the story's own."""
    as_told = outcome.result == story.result
    if not as_told and outcome.result not in ends:
        score.lost.append(f"{label}: {outcome.result} instead of {story.result}: {outcome.message} {outcome.troubles}")
    if as_told and story.status and outcome.status != story.status:
        score.lost.append(f"{label}: {outcome.status} instead of {story.status}")
    for finding in (await place.verify(path)).findings:
        wrong = score.stuck if finding.invariant == "I2" else score.lost
        wrong.append(f"{label}: {finding.invariant} {finding.path} {finding.what}")
    books = await place.books(path)
    if story.effects is not None and any(vm.effects > story.effects for vm in books):
        score.doubled.append(f"{label}: {[(vm.path, vm.effects) for vm in books if vm.effects > story.effects]}")
    live = [vm.path for vm in books if vm.state != "terminated"]
    if len(live) != len(set(live)):
        score.doubled.append(f"{label}: more than one VM for a record")


@asynccontextmanager
async def worlds(folder: Path, number: int = WORLDS) -> AsyncIterator[list[World]]:
    async with AsyncExitStack() as stack:
        made = [stack.enter_async_context(world(folder / f"world{n}")) for n in range(number)]
        yield await asyncio.gather(*made)


async def kill_at(places: list[World], deaths: Iterable[Death]) -> Score:
    """Every one of these deaths, in several worlds at once."""
    score = Score("worker killed at a step")
    todo = iter(list(deaths))

    async def live(place: World) -> None:
        for death in todo:
            await die(place, death, score)

    await asyncio.gather(*map(live, places))
    return score


def seed() -> int:
    """The seed of this run; RATCHET_SEED repeats another one."""
    return int(os.environ.get("RATCHET_SEED", random.SystemRandom().randrange(10**6)))
