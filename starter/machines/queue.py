"""`starter queue`: shows and drains wait queues of objects."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from domain import wire
from domain.limits import TASK_TIMEOUT
from domain.locks import EXCLUSIVE, LocksView, LockView, Mode
from domain.model import Holders, Query, QueueCommand
from domain.paths import short
from starter import reads
from starter.errors import Exit
from starter.extensions import LOOKING
from starter.kinds import ObjectArg
from starter.output import Output, OutputOption, Sheet, show, when
from starter.session import session
from starter.watching import WatchOption, watching

if TYPE_CHECKING:
    from client.actions import ActionClient

AT_ONCE = 20
HEADINGS = ("OBJECT", "PLACE", "ACTION", "BY", "HIDDEN", "SINCE")

app = App(name="queue", help="Wait queues: the action on an object, and those that wait for it.", group=LOOKING)


@app.command(name="list")
async def list_queues(*, watch: WatchOption = False, output: OutputOption = "table") -> Exit:
    """Every queue that has something in it, in the order in which it is worked through.

    A queue begins with the first request on an object, and is gone when it is empty.

    Example: starter queue list
    """
    return await watching(watch, lambda: _queues("", output))


@app.command(name="show")
async def show_queue(path: ObjectArg, /, *, watch: WatchOption = False, output: OutputOption = "table") -> Exit:
    """The queue of one object. Actions on an attached disk are in its machine's queue.

    Example: starter queue show acme/dev/db
    """
    where = await reads.locate(path)
    return await watching(watch, lambda: _queues(where, output))


@app.command
async def stop(path: ObjectArg, /, *, output: OutputOption = "table") -> Exit:
    """Drain an object's queue: refuse new requests, wait until all in it have ended, and remove it.

    Example: starter queue stop acme/dev/db
    """
    where = await reads.locate(path)
    async with session() as asking:
        return _drained(await _drain(asking, [where]), output)


@app.command
async def terminate(
    *,
    prefix: Annotated[str, Parameter(help="Only queues at or below this path.")] = "",
    output: OutputOption = "table",
) -> Exit:
    """Drain every queue, like `queue stop`.

    Example: starter queue terminate
    """
    where = await reads.locate(prefix) if prefix else ""
    async with session() as asking:
        paths = dict.fromkeys(lock.path for lock in await _locks(asking, where))
        return _drained(await _drain(asking, list(paths)), output)


async def _queues(where: str, output: Output) -> Exit:
    """Prints the wait queue of one object, or all of them."""
    async with session() as asking:
        held = [lock for lock in await _locks(asking, where) if where in ("", lock.path)]
    nothing = f"no action runs or waits on {short(where)}" if where else "no queue has anything in it"
    return _show(held, output, nothing)


async def _locks(asking: ActionClient, where: str) -> list[LockView]:
    """Returns the locks that form the queues: exclusive ones and closed queues, in order of arrival."""
    held = (await asking.read(wire.READ_LOCKS, Query(path=where), LocksView)).locks
    lines = [lock for lock in held if lock.mode in (*EXCLUSIVE, Mode.CLOSED)]
    return sorted(lines, key=lambda lock: (lock.path, lock.since))


async def _drain(asking: ActionClient, paths: list[str]) -> dict[str, int]:
    """Drains wait queues, AT_ONCE at a time. Returns how many actions were in each."""
    from temporalio.common import WorkflowIDConflictPolicy

    room = asyncio.Semaphore(AT_ONCE)

    async def one(path: str) -> int:
        async with room:
            order = QueueCommand(path=path, run="", at=datetime.now(UTC))
            drained: Holders = await asking.client.execute_workflow(
                wire.DRAIN_LINE,
                order,
                id=wire.companion(path, wire.DRAIN),
                task_queue=wire.ACTIONS_QUEUE,
                task_timeout=TASK_TIMEOUT,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,  # joins a drain under way
                result_type=Holders,
            )
        return len(drained.holders)

    await asking.someone_polls(wire.ACTIONS_QUEUE)
    return dict(zip(paths, await asyncio.gather(*map(one, paths)), strict=True))


def _show(held: Iterable[LockView], output: Output, nothing: str) -> Exit:
    cells, data, places = [], [], dict[str, int]()
    for lock in held:
        place = places[lock.path] = places.get(lock.path, 0) + 1
        word = "closed" if lock.mode == Mode.CLOSED else "runs" if place == 1 else "waits"
        hidden = "yes" if lock.mode == Mode.HIDDEN_X else ""
        cells.append((short(lock.path), word, lock.action, lock.owner, hidden, when(lock.since)))
        data.append({**lock.model_dump(mode="json"), "place": place})
    show(Sheet(data, HEADINGS, cells, list(places), nothing), output)
    return Exit.DONE


def _drained(ends: dict[str, int], output: Output) -> Exit:
    cells = [(short(path), "gone", str(number)) for path, number in ends.items()]
    data = [{"path": path, "waited_for": number} for path, number in ends.items()]
    show(Sheet(data, ("OBJECT", "QUEUE", "WAITED FOR"), cells, list(ends), "there is no queue"), output)
    return Exit.DONE
