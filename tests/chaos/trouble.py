"""Faults other than a killed worker: each runs stories with the fault in them and counts the results."""

from __future__ import annotations

import asyncio
import random
import resource
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from temporalio.service import RPCError

from domain.errors import Category, Refused
from domain.healing import ANY_ACTION, SweepOptions
from domain.model import ActionResult, Outcome
from tests.chaos.killing import Score, judge, see_the_end, told
from tests.chaos.stories import Story
from tests.chaos.world import World
from tests.patience import PATIENCE

Trouble = Callable[[World, random.Random], Awaitable[None]]
STORM = "storm"  # the mark of faults that go again
HOURS = 3600.0
UNKNOWN = ("in hypervisor as", "no record knows it")
GRACE = 5.0  # seconds; calls of what was terminated are over by then
GONE = ("None", "DESTROYED", "DECOMMISSIONED", "TERMINATED")


async def tell(
    place: World, story: Story, score: Score, trouble: Trouble, chance: random.Random, ends: Sequence[str] = ()
) -> None:
    """Run one story with a fault in its middle. `ends`: results that are accepted besides the story's own."""
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
    """Another process locks the inventory for longer than a transaction waits."""
    other = sqlite3.connect(place.home / "inventory.db", isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        await asyncio.sleep(6)  # the fault itself: SQLite gives up after five
    finally:
        other.close()


async def disk_full(place: World, chance: random.Random) -> None:
    """The worker cannot write to any file for a while."""
    assert place.worker
    before = resource.prlimit(place.worker.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(place.worker.pid, resource.RLIMIT_FSIZE, (1, before[1]))
    await asyncio.sleep(2)  # the fault itself
    resource.prlimit(place.worker.pid, resource.RLIMIT_FSIZE, before)


async def clock_jumps(place: World, chance: random.Random) -> None:
    """The worker's clock goes hours ahead, hours back, and right again."""
    for hours in (chance.uniform(1, 30), -chance.uniform(1, 30), 0):
        place.set_clock(hours * HOURS)
        await asyncio.sleep(0.4)  # something happens meanwhile


# What the world outside does wrong. `ends`: what else may become of a story then.


@asynccontextmanager
async def weather(place: World, **fault: Any) -> AsyncIterator[None]:
    """All providers have this fault meanwhile."""
    await place.fault(message=STORM, **fault)
    try:
        yield
    finally:
        await place.calm(STORM)


def for_a_while(seconds: float, **fault: Any) -> Trouble:
    async def storm(place: World, chance: random.Random) -> None:
        async with weather(place, **fault):
            await asyncio.sleep(seconds)  # the fault itself

    return storm


async def beset(
    place: World,
    story: Story,
    score: Score,
    fault: dict[str, Any],
    ends: Sequence[str] = (),
) -> None:
    """A fault for this many calls of a story, at any time."""
    async with told(place, story) as path:
        async with weather(place, **fault):
            outcome = asyncio.create_task(story.act(place, path))
            await asyncio.wait({outcome}, timeout=PATIENCE)
            left = sum(fault.times or 0 for fault in await place.cloud.list_faults() if fault.message == STORM)
        score.injected += fault["times"] - left
        score.actions += 1
        await see_the_end(place, story, path, outcome, score, f"{score.fault}: {story}", ends)


# Stopped from outside.


async def stop(place: World, workflow: str, how: str, chance: random.Random, acting: asyncio.Task[Outcome]) -> bool:
    """Stop the workflow at a random moment. False: it had ended."""
    while not acting.done() and not await place.is_running(workflow):
        await asyncio.sleep(0.01)
    await asyncio.sleep(chance.uniform(0, 0.3))
    handle = place.client.get_workflow_handle(workflow)
    with suppress(RPCError):
        await (handle.cancel() if how == "cancel" else handle.terminate("by an operator"))
        return True
    return False


async def cancelled(place: World, story: Story, score: Score, chance: random.Random) -> None:
    """Cancel at a random moment: the action ends stable, with the true status of each object."""
    label = f"cancel of {story}"
    async with told(place, story) as path:
        acting = asyncio.create_task(story.act(place, path))
        score.injected += await stop(place, story.object(path), "cancel", chance, acting)
        score.actions += 1
        try:
            outcome = await _however(acting, path)
        except TimeoutError:
            score.stuck.append(f"{label}: no end within {PATIENCE} s")
            return
        ends = (story.result, ActionResult.CANCELLED, ActionResult.PARTIAL, ActionResult.FAILED)
        await judge(place, story, path, outcome, score, label, ends)


async def terminated(place: World, story: Story, score: Score, chance: random.Random) -> None:
    """Terminate at a random moment: the next request or a sweep restores everything, and all can be removed."""
    label = f"termination of {story}"
    async with told(place, story) as path:
        acting = asyncio.create_task(story.act(place, path))
        score.injected += await stop(place, story.object(path), "terminate", chance, acting)
        score.actions += 1
        try:
            await _however(acting, path)
            if chance.random() < 0.5:
                await asyncio.wait_for(place.asking.run_sweep(SweepOptions(limits={ANY_ACTION: 0})), PATIENCE)
                await asyncio.wait_for(_nothing_unknown(place, story, path), PATIENCE)
                await _at_rest(place, story, path, score, f"{label}, healed", outside=False)
            await _however(asyncio.create_task(story.act(place, path)), path)  # asked for again
            await asyncio.wait_for(everything_goes(place, story, path), PATIENCE)
        except TimeoutError:
            score.stuck.append(f"{label}: no end within {PATIENCE} s")
        except Exception as error:
            score.lost.append(f"{label}: {error!r}")
        else:
            await _at_rest(place, story, path, score, label)
            live = [vm.path for vm in await place.books(path) if vm.state != "terminated"]
            score.lost += [f"{label}: {each} is left behind" for each in live if story.effects is not None]


async def _nothing_unknown(place: World, story: Story, path: str) -> None:
    """Later sweeps remove what was created without a record, in families where that can happen."""
    while any(all(word in violation.what for word in UNKNOWN) for violation in await place.verify(*story.paths(path))):
        await place.asking.run_sweep(SweepOptions(limits={ANY_ACTION: 0}, grace=GRACE))
        await asyncio.sleep(0.2)


async def _however(acting: asyncio.Task[Outcome], path: str) -> Outcome:
    """The end of a stopped story; the caller may also learn that it was stopped before it was admitted."""
    try:
        return await asyncio.wait_for(acting, PATIENCE)
    except TimeoutError:
        raise
    except Exception:
        return Outcome(path=path, action="", result=ActionResult.CANCELLED, status="")


async def everything_goes(place: World, story: Story, path: str) -> None:
    """Remove everything by normal requests. Objects that are gone, or need no request, refuse it."""
    while True:
        for each, action, spec in story.ending:
            await _ask_until_free(place, each.format(ns=path.split(":")[1]), action, spec)
        try:
            if (await place.see(story.object(path))).status in GONE:
                return
        except Refused:  # there is no such object any more
            return
        await asyncio.sleep(0.5)  # a cloudlet on its way up refuses until it is there, or Offline


async def _ask_until_free(place: World, path: str, action: str, spec: dict[str, Any] | None) -> None:
    while True:
        try:
            outcome = await place.request(path, action, spec=spec)
            assert outcome.result in (ActionResult.SUCCEEDED, ActionResult.ALREADY), outcome
            return
        except Refused as refused:
            if refused.category is not Category.CONFLICT:
                return
        await asyncio.sleep(0.2)  # somebody whom it had started is at work yet


async def _at_rest(place: World, story: Story, path: str, score: Score, label: str, outside: bool = True) -> None:
    """Check the promises at rest. `outside`: also against the providers, which healing alone only reports."""
    found = await place.verify(*story.paths(path))
    for finding in (violation for violation in found if outside or violation.invariant not in ("I3", "I7")):
        wrong = score.stuck if finding.invariant == "I2" else score.lost
        wrong.append(f"{label}: {finding.invariant} {finding.path} {finding.what}")
