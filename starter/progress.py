"""Waiting for an action, with its status on stderr as it changes. Whoever stops waiting does not stop the action."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from domain import registry, wire
from domain.errors import RatchetError
from domain.machine import NONE
from domain.model import ObjectView, Outcome, Query
from domain.paths import short
from starter import terminal
from starter.errors import NoWorker, StillWaiting

if TYPE_CHECKING:
    from starter.asking import Asking

FIRST_PAUSE = 0.15
LONGEST_PAUSE = 1.0

Tell = Callable[[str], None]


@asynccontextmanager
async def patience(path: str, seconds: float | None) -> AsyncIterator[None]:
    """StillWaiting when the user's time is up; on Ctrl-C it says how to come back."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise StillWaiting(path, seconds or 0) from error
    except asyncio.CancelledError:
        again = terminal.command(f"starter attach {path}")
        terminal.say(f"\nnot waiting any more; the action goes on. Wait for it again with: {again}")
        raise


async def follow(asking: Asking, path: str, run: str, targets: int) -> Outcome:
    """Wait for the end of an action and show how it goes."""
    with line_for_people() as tell:
        return await watch(asking, path, run, targets, tell)


async def watch(asking: Asking, path: str, run: str, targets: int, tell: Tell, pause: float = FIRST_PAUSE) -> Outcome:
    """The same with each look told to a caller of our own."""
    end = asyncio.ensure_future(asking.outcome(path, run))
    try:
        while not end.done():
            tell(await _look(asking, path, targets))
            await asyncio.wait({end}, timeout=pause)
            pause = min(pause * 1.3, LONGEST_PAUSE)
        return await end
    finally:
        end.cancel()


@contextmanager
def line_for_people() -> Iterator[Tell]:
    """One line that changes, on a terminal; in a pipe a new line for each change."""
    console = terminal.people()
    if console.is_terminal:
        with console.status("") as line:
            yield lambda text: line.update(terminal.clean(text))
    else:
        yield changes(terminal.say)


def changes(tell: Tell) -> Tell:
    """Say only what is new."""
    last = ""

    def told(text: str) -> None:
        nonlocal last
        if text != last:
            tell(text)
        last = text

    return told


async def _look(asking: Asking, path: str, targets: int) -> str:
    """How the object is now. Not being able to see is no reason to stop waiting."""
    path = wire.object_of(path)
    try:
        view = await asking.read(wire.READ_OBJECT, Query(path=path), ObjectView)
    except NoWorker:
        return f"{short(path)}: no worker answers; the action goes on when one is back"
    except RatchetError as error:
        return f"{short(path)}: {error}"
    return f"{short(path)}: {view.status}{_done(view, targets)}{await _step(asking, view)}"


async def _step(asking: Asking, view: ObjectView) -> str:
    """What goes on in a group that has no members to count yet, in the words of its action."""
    if view.counts or view.target_action == NONE or registry.kind(view.kind).member is None:
        return ""
    step = await asking.step(view.path)
    return f"  {step}" if step else ""


def _done(view: ObjectView, targets: int) -> str:
    """`  4/6 done`: those of the targets that are not under way any more."""
    kind = registry.kind(view.kind)
    if kind.member is None:
        return ""
    moving = registry.kind(kind.member).table.transitional
    busy = sum(number for status, number in view.counts.items() if status in moving)
    targets = targets or (sum(view.counts.values()) if busy else 0)  # members that came in later
    if not targets:
        return ""
    return f"  {max(targets - busy, 0)}/{targets} done"
