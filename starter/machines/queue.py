"""`starter queue`: shows and drains wait queues of objects."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from domain import wire
from domain.limits import TASK_TIMEOUT
from domain.locks import EXCLUSIVE_MODES, LockMode, LocksView, LockView
from domain.model import ReadQuery
from domain.paths import short_path
from domain.waitqueue import LockHolders, QueueCommand
from starter import reads
from starter.errors import ExitCode
from starter.flags import OutputOption, WatchOption
from starter.kinds import ObjectArg
from starter.output import Output, Sheet, format_time, print_sheet
from starter.session import open_client
from starter.toplevel import LOOKING
from starter.watch import run_once_or_watch

if TYPE_CHECKING:
    from client.actions import ActionClient

CONCURRENT_DRAINS = 20
HEADINGS = ("OBJECT", "PLACE", "ACTION", "BY", "HIDDEN", "SINCE")

app = App(name="queue", help="Wait queues: the action on an object, and those that wait for it.", group=LOOKING)


@app.command(name="list")
async def list_queues(*, watch: WatchOption = False, output: OutputOption = "table") -> ExitCode:
    """Every queue that has something in it, in the order in which it is worked through.

    A queue begins with the first request on an object, and is gone when it is empty.

    Example: starter queue list
    """
    return await run_once_or_watch(watch, lambda: _print_queues("", output))


@app.command(name="show")
async def show_queue(path: ObjectArg, /, *, watch: WatchOption = False, output: OutputOption = "table") -> ExitCode:
    """The queue of one object. Actions on an attached disk are in its machine's queue.

    Example: starter queue show acme/dev/db
    """
    where = await reads.locate_object(path)
    return await run_once_or_watch(watch, lambda: _print_queues(where, output))


@app.command
async def stop(path: ObjectArg, /, *, output: OutputOption = "table") -> ExitCode:
    """Drain an object's queue: refuse new requests, wait until all in it have ended, and remove it.

    Example: starter queue stop acme/dev/db
    """
    where = await reads.locate_object(path)
    async with open_client() as client:
        return _print_drained(await _start_drains(client, [where]), output)


@app.command
async def terminate(
    *,
    prefix: Annotated[str, Parameter(help="Only queues at or below this path.")] = "",
    output: OutputOption = "table",
) -> ExitCode:
    """Drain every queue, like `queue stop`.

    Example: starter queue terminate
    """
    where = await reads.locate_object(prefix) if prefix else ""
    async with open_client() as client:
        paths = dict.fromkeys(lock.path for lock in await _read_queue_locks(client, where))
        return _print_drained(await _start_drains(client, list(paths)), output)


async def _print_queues(where: str, output: Output) -> ExitCode:
    """Prints the wait queue of one object, or all of them."""
    async with open_client() as client:
        held = [lock for lock in await _read_queue_locks(client, where) if where in ("", lock.path)]
    nothing = f"no action runs or waits on {short_path(where)}" if where else "no queue has anything in it"
    return _print_locks(held, output, nothing)


async def _read_queue_locks(client: ActionClient, where: str) -> list[LockView]:
    """Returns the locks that form the queues: exclusive ones and closed queues, in order of arrival."""
    held = (await client.run_query(wire.READ_LOCKS, ReadQuery(path=where), LocksView)).locks
    lines = [lock for lock in held if lock.mode in (*EXCLUSIVE_MODES, LockMode.CLOSED)]
    return sorted(lines, key=lambda lock: (lock.path, lock.since))


async def _start_drains(client: ActionClient, paths: list[str]) -> dict[str, int]:
    """Starts a drain of each wait queue, CONCURRENT_DRAINS at a time. Returns how many actions waited in each."""
    from temporalio.common import WorkflowIDConflictPolicy

    room = asyncio.Semaphore(CONCURRENT_DRAINS)

    async def one(path: str) -> int:
        async with room:
            order = client.sign_query("close_line", QueueCommand(path=path, run="", at=datetime.now(UTC)))
            drained: LockHolders = await client.client.execute_workflow(
                wire.DRAIN_QUEUE,
                order,
                id=wire.companion_id(path, wire.DRAIN),
                task_queue=wire.ACTIONS_QUEUE,
                task_timeout=TASK_TIMEOUT,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,  # joins a drain under way
                result_type=LockHolders,
            )
        return len(drained.holders)

    await client.check_polled(wire.ACTIONS_QUEUE)
    return dict(zip(paths, await asyncio.gather(*map(one, paths)), strict=True))


def _print_locks(held: Iterable[LockView], output: Output, nothing: str) -> ExitCode:
    cells, data, places = [], [], dict[str, int]()
    for lock in held:
        place = places[lock.path] = places.get(lock.path, 0) + 1
        word = "closed" if lock.mode == LockMode.CLOSED else "runs" if place == 1 else "waits"
        hidden = "yes" if lock.mode == LockMode.HIDDEN_X else ""
        cells.append((short_path(lock.path), word, lock.action, lock.owner, hidden, format_time(lock.since)))
        data.append({**lock.model_dump(mode="json"), "place": place})
    print_sheet(Sheet(data, HEADINGS, cells, list(places), nothing), output)
    return ExitCode.DONE


def _print_drained(ends: dict[str, int], output: Output) -> ExitCode:
    cells = [(short_path(path), "gone", str(number)) for path, number in ends.items()]
    data = [{"path": path, "waited_for": number} for path, number in ends.items()]
    print_sheet(Sheet(data, ("OBJECT", "QUEUE", "WAITED FOR"), cells, list(ends), "there is no queue"), output)
    return ExitCode.DONE
