"""Waiting for an action, with its status on stderr as it changes. Whoever stops waiting does not stop the action."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from client.errors import NoWorker
from domain import registry, wire
from domain.errors import RatchetError
from domain.model import ObjectView, Outcome, Query, TreeView
from domain.paths import short
from domain.statetable import NONE
from starter import terminal, tree
from starter.errors import StillWaiting

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from client.actions import ActionClient

FIRST_PAUSE = 0.15
LONGEST_PAUSE = 1.0
TROUBLES = 10  # at most so many are asked for: a terminal has few lines

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
        again = terminal.command(f"starter wait {path}")
        terminal.say(f"\nnot waiting any more; the action goes on. Wait for it again with: {again}")
        raise


async def follow(asking: ActionClient, path: str, run: str, targets: int) -> Outcome:
    """Wait for the end of an action and show how it goes: a tree that changes, or in a pipe a line for each change."""
    console = terminal.people()
    if not console.is_terminal or console.is_dumb_terminal:
        return await watch(asking, path, run, targets, changes(terminal.say))
    with screen(console) as show:
        began = time.monotonic()

        async def look() -> None:
            show(await _tree(asking, path, targets, time.monotonic() - began, console))

        return await _attend(asking, path, run, look)


async def watch(
    asking: ActionClient, path: str, run: str, targets: int, tell: Tell, pause: float = FIRST_PAUSE
) -> Outcome:
    """The same with each look told, in a line, to a caller of our own."""

    async def look() -> None:
        tell(await _look(asking, path, targets))

    return await _attend(asking, path, run, look, pause)


async def _attend(
    asking: ActionClient, path: str, run: str, look: Callable[[], Awaitable[None]], pause: float = FIRST_PAUSE
) -> Outcome:
    """Look again and again until the action has ended. A look that takes long does not keep the end waiting."""
    end = asyncio.ensure_future(asking.outcome(path, run))
    looking = asyncio.ensure_future(look())
    try:
        while not end.done():
            await asyncio.wait({end, looking}, return_when=asyncio.FIRST_COMPLETED)
            if looking.done():
                looking.result()
                await asyncio.wait({end}, timeout=pause)
                pause = min(pause * 1.3, LONGEST_PAUSE)
                if not end.done():
                    looking = asyncio.ensure_future(look())
        return await end
    finally:
        for task in (end, looking):
            task.cancel()
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody else will look


@contextmanager
def screen(console: Console) -> Iterator[Callable[[Text], None]]:
    """A part of the terminal that is drawn anew each time, and is gone at the end."""
    from rich.live import Live

    with Live(console=console, transient=True, auto_refresh=False) as live:
        yield lambda text: live.update(text, refresh=True)


async def _tree(asking: ActionClient, path: str, targets: int, seconds: float, console: Console) -> Text:
    """The object with its places as they are now; in a line what has none, or cannot be seen."""
    from rich.text import Text

    path = wire.object_of(path)
    try:
        if registry.kind_at(path).member is not None:
            seen = await asking.read(wire.READ_TREE, Query(path=path, limit=TROUBLES), TreeView)
            step = "" if seen.places else await _step(asking, seen.object)
            plain = console.options.ascii_only
            return tree.draw(seen, targets, seconds, step.strip(), (console.width, console.height), plain)
    except RatchetError:
        pass  # the line tells what is wrong
    return Text(terminal.clean(await _look(asking, path, targets)), overflow="ellipsis", no_wrap=True)


def changes(tell: Tell) -> Tell:
    """Say only what is new."""
    last = ""

    def told(text: str) -> None:
        nonlocal last
        if text != last:
            tell(text)
        last = text

    return told


async def _look(asking: ActionClient, path: str, targets: int) -> str:
    """How the object is now. Not being able to see is no reason to stop waiting."""
    path = wire.object_of(path)
    try:
        view = await asking.get(path)
    except NoWorker:
        return f"{short(path)}: no worker answers; the action goes on when one is back"
    except RatchetError as error:
        return f"{short(path)}: {error}"
    return f"{short(path)}: {view.status}{_done(view, targets)}{await _step(asking, view)}"


async def _step(asking: ActionClient, view: ObjectView) -> str:
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
