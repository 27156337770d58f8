"""A worker that is frozen, or cut off from Temporal, during an action, and wakes after later actions have ended.

Another worker brings the story to its end, takes down all that it made, and tells it once more: everything is there
again, under the same paths. Only then may the first worker go on, and nothing may change, here or outside.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from domain.statetable import LineEffect
from store.engine import Database
from tests.chaos.crash import STOP, TELL
from tests.chaos.killing import AFTERWARDS, Score, see_the_end, told
from tests.chaos.stories import Story
from tests.chaos.trouble import everything_goes
from tests.chaos.wire import wire_to
from tests.chaos.world import World
from tests.patience import PATIENCE, within
from tests.stack import is_locked
from tests.test_platform.forkserver import Child
from workers.settings import WorkerSettings

LOOK = 0.02  # seconds between looks at a process
# What counts calls, or tells when: a late order may be counted, but must have no effect.
COUNTERS = ("calls", "changed", "changed_at", "seq", "at", "number")


@dataclass(frozen=True)
class Lapse:
    """A way to lose a worker and to bring it back."""

    mark: str  # behind a crash point: what happens there
    happened: Callable[[], bool]
    come_back: Callable[[], None]


Lapsing = Callable[[World], AbstractAsyncContextManager[Lapse]]


@asynccontextmanager
async def frozen(place: World) -> AsyncIterator[Lapse]:
    """SIGSTOP, as when a machine is paused; SIGCONT later."""
    worker = place.worker
    assert worker

    def come_back() -> None:
        with suppress(ProcessLookupError):
            worker.send_signal(signal.SIGCONT)

    try:
        yield Lapse(STOP, lambda: _is_stopped(worker), come_back)
    finally:
        come_back()


@asynccontextmanager
async def cut_off(place: World) -> AsyncIterator[Lapse]:
    """Cut the worker off from Temporal; it still reaches the clouds and the inventory."""
    await place.kill_worker()
    reached = place.crash_file.with_suffix(".reached")
    reached.unlink(missing_ok=True)
    async with wire_to(place.server.address) as wire:
        await place.start_worker(wire.address)

        def happened() -> bool:
            if reached.exists():
                wire.cut()
            return reached.exists()

        yield Lapse(TELL, happened, wire.mend)


def _is_stopped(worker: Child) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False


async def overtaken(place: World, story: Story, point: str, lapsing: Lapsing, score: Score) -> bool:
    """Overtake the worker at a point of the story. False: the story did not reach the point."""
    label = f"{score.fault}: {story} at {point}"
    async with lapsing(place) as lapse, told(place, story) as path:
        place.arm(point + lapse.mark)
        acting = asyncio.create_task(story.act(place, path))
        reached = await _happens(lapse, acting)
        place.arm()
        if not reached or is_locked(place.home):
            lapse.come_back()
            await asyncio.wait({acting}, timeout=PATIENCE)
            return False
        score.injected += 1
        score.actions += 1
        stale = place.worker
        assert stale
        await place.start_worker()
        await see_the_end(place, story, path, acting, score, label)
        async with within(2 * PATIENCE, f"{label}: later actions did not end, or the lost worker kept their tasks"):
            await _once_more(place, story, path)
        before = _everything(place, path)
        lapse.come_back()
        with suppress(ProcessLookupError):
            stale.send_signal(signal.SIGTERM)  # it ends when whatever it was doing has
        async with within(PATIENCE, f"{label}: the worker that came back did not end at SIGTERM"):
            await stale.wait()
        score.lost += [f"{label}: woken, it changed {each}" for each in _everything(place, path) ^ before]
        found = await place.verify(*story.paths(path))
        score.lost += [f"{label}: {violation.invariant} {violation.path} {violation.what}" for violation in found]
    return True


async def _happens(lapse: Lapse, acting: asyncio.Task[Any]) -> bool:
    loop = asyncio.get_running_loop()
    deadline, late = loop.time() + PATIENCE, 0.0
    while not (happened := lapse.happened()) and loop.time() < deadline:
        late = late or (loop.time() + AFTERWARDS if acting.done() else 0.0)
        if late and loop.time() > late:
            return False
        await asyncio.sleep(LOOK)  # a stopped process tells nobody
    return happened


async def _once_more(place: World, story: Story, path: str) -> None:
    """Remove everything and create it again, so that the objects belong to later actions.

    For some seconds (`SHORT_POLLS`) the server gives tasks to the polls of the lost worker too, each of which is tried
    again after ten seconds.
    """
    await everything_goes(place, story, path)
    for step in (*story.after, *story.before):
        await step(place, path)
    await story.act(place, path)


def _everything(place: World, path: str) -> set[tuple[str, ...]]:
    """Everything in the inventory and at the providers under the story's own name.

    Without what only counts, and without the lines that keep what was ignored.
    """
    name, settings = path.split(":")[1], WorkerSettings(home=place.home)
    rows: set[tuple[str, ...]] = set()
    for url in (settings.store_database_url(), settings.cloud_database_url()):
        database = Database(url)
        rows |= database.run_transaction_blocking(lambda connection: _rows(connection, name))
        database.close()
    return rows


def _rows(connection: sa.Connection, name: str) -> set[tuple[str, ...]]:
    found = set()
    tables = {*sa.inspect(connection).get_table_names()} - {"audit_seals"}  # they follow the history, in their own time
    for table in tables:
        for row in connection.exec_driver_sql(f'SELECT * FROM "{table}"').mappings():
            told = (table, *(str(value) for column, value in row.items() if column not in COUNTERS))
            words = {word for text in told for word in text.replace("-", ":").split(":")}
            if row.get("effect") != LineEffect.IGNORED and name in words:
                found.add(told)
    return found
