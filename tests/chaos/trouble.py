"""Faults other than a killed worker: each tells stories with the trouble in them, and keeps the score."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from temporalio.service import RPCError

from domain.model import Outcome, Result
from tests.chaos.killing import Score, judge, see_the_end, told
from tests.chaos.stories import Story
from tests.chaos.world import PATIENCE, World

Trouble = Callable[[World, random.Random], Awaitable[None]]


async def tell(
    place: World, story: Story, score: Score, trouble: Trouble, chance: random.Random, ends: Sequence[str] = ()
) -> None:
    """One story, with trouble somewhere in its middle. `ends`: results that are as good as the story's own."""
    async with told(place, story) as path:
        acting = asyncio.create_task(story.act(place, path))
        await asyncio.sleep(chance.uniform(0, 0.3))  # anywhere in the action: chance is the point
        await trouble(place, chance)
        score.injected += 1
        score.actions += 1
        await see_the_end(place, story, path, acting, score, f"{score.fault}: {story}", ends)


async def server_killed(place: World, chance: random.Random) -> None:
    await place.restart_server()


async def worker_killed(place: World, chance: random.Random) -> None:
    await place.kill_worker()
    await place.start_worker()


async def store_locked(place: World, chance: random.Random) -> None:
    """Somebody else holds the inventory's file for longer than a transaction waits."""
    other = sqlite3.connect(place.home / "inventory.db", isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        await asyncio.sleep(6)  # the fault itself: SQLite gives up after five
    finally:
        other.close()


def stopped_from_outside(path_of: Callable[[], str], how: str) -> Trouble:
    async def stop(place: World, chance: random.Random) -> None:
        handle = place.client.get_workflow_handle(path_of())
        with suppress(RPCError):  # it has ended already
            await (handle.cancel() if how == "cancel" else handle.terminate("by an operator"))

    return stop


async def cancelled(place: World, story: Story, score: Score, chance: random.Random) -> None:
    """Cancelled somewhere: it ends stable, and says the truth about each thing."""
    async with told(place, story) as path:
        acting = asyncio.create_task(story.act(place, path))
        await asyncio.sleep(chance.uniform(0, 0.4))
        await stopped_from_outside(lambda: story.object(path), "cancel")(place, chance)
        score.injected += 1
        score.actions += 1
        try:
            outcome: Outcome | None = await asyncio.wait_for(acting, PATIENCE)
        except TimeoutError:
            score.stuck.append(f"cancel of {story}: no end within {PATIENCE} s")
            return
        except Exception:  # it was cancelled before it was admitted: the one who asked hears that
            outcome = None
        ends = (story.result, Result.CANCELLED, Result.PARTIAL, Result.FAILED)
        if outcome is None or outcome.result not in ends:
            outcome = Outcome(path=path, action="", result=Result.CANCELLED, status="")
        await judge(place, story, path, outcome, score, f"cancel of {story}", ends)
