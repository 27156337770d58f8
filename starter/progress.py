"""Waits for an action and prints its progress on stderr. Ctrl-C stops the waiting, not the action."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from client.errors import LostContact, NoWorker
from domain import registry, wire
from domain.errors import Category, RatchetError, Refused
from domain.model import ObjectView, Outcome, ReadQuery, TreeView
from domain.paths import short_path
from domain.statetable import NONE
from starter import terminal, tree
from starter.errors import WaitTimedOut

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from client.actions import ActionClient

FIRST_PAUSE = 0.15
LONGEST_PAUSE = 1.0
ERRORS_SHOWN = 10  # the most that are read: a terminal has few lines

PrintLine = Callable[[str], None]


@dataclass
class Waiting:
    """What a command waits for: its action, or first the answer whether there will be one."""

    admitted: bool


@asynccontextmanager
async def waiting_with_timeout(path: str, seconds: float | None, admitted: bool = True) -> AsyncIterator[Waiting]:
    """Raises WaitTimedOut after --timeout; on Ctrl-C, prints the command that waits again."""
    waiting = Waiting(admitted)
    try:
        async with asyncio.timeout(seconds):
            yield waiting
    except TimeoutError as error:
        raise WaitTimedOut(path, seconds or 0, waiting.admitted) from error
    except asyncio.CancelledError:
        if waiting.admitted:
            told = f"the action goes on. Wait for it again with: starter wait {path}"
        else:
            told = f"it is not known whether the action began. See whether it runs: starter explain {path}"
        terminal.print_message(f"\nnot waiting any more; {terminal.rewrite_commands(told)}")
        raise


async def follow_action(client: ActionClient, kind: registry.Kind, path: str, run: str, targets: int) -> Outcome:
    """Waits for an action's outcome and shows progress: a live tree, or in a pipe a line for each change."""
    console, began = terminal.stderr_console(), time.monotonic()
    tell = skip_repeated_lines(terminal.print_remark)
    is_live = console.is_terminal and not console.is_dumb_terminal
    with live_region(console) if is_live else nullcontext() as show:

        async def look() -> None:
            if show:
                show(await _draw_tree(client, kind, path, targets, time.monotonic() - began, console))
            else:
                tell(await _status_line(client, path, targets))

        return await _poll_until_end(client, path, run, look)


async def follow_with_status_lines(
    client: ActionClient, path: str, run: str, targets: int, tell: PrintLine, pause: float
) -> Outcome:
    """Waits like `follow_action`, and passes each status line to the caller."""

    async def look() -> None:
        tell(await _status_line(client, path, targets))

    return await _poll_until_end(client, path, run, look, pause)


async def _poll_until_end(
    client: ActionClient, path: str, run: str, look: Callable[[], Awaitable[None]], pause: float = FIRST_PAUSE
) -> Outcome:
    """Polls until the action has ended. A slow poll does not delay the outcome. Raises LostContact in an outage."""
    from temporalio.service import RPCError

    from client.connect_errors import is_outage, to_unreachable

    end = asyncio.ensure_future(client.wait_for_outcome(path, run))
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
    except RPCError as error:
        if not is_outage(error):
            raise
        raise LostContact(path, str(to_unreachable(error, client.client.namespace))) from error
    finally:
        for task in (end, looking):
            task.cancel()
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # else asyncio logs it


@contextmanager
def live_region(console: Console) -> Iterator[Callable[[Text], None]]:
    """Opens a region of the terminal that is redrawn on each update and cleared at the end."""
    from rich.live import Live

    with Live(console=console, transient=True, auto_refresh=False) as live:
        yield lambda text: live.update(text, refresh=True)


async def _draw_tree(
    client: ActionClient, kind: registry.Kind, path: str, targets: int, seconds: float, console: Console
) -> Text:
    """Draws the object with its places; one line if it has none or cannot be read."""
    from rich.text import Text

    path = wire.object_path_of(path)
    try:
        if kind.member is not None:
            seen = await client.run_query(wire.READ_TREE, ReadQuery(path=path, limit=ERRORS_SHOWN), TreeView)
            step = "" if seen.places else await _step_text(client, seen.object)
            plain = console.options.ascii_only
            return tree.draw_tree(seen, targets, seconds, step.strip(), (console.width, console.height), plain)
    except RatchetError:
        pass  # the line has the error
    return Text(terminal.escape_controls(await _status_line(client, path, targets)), overflow="ellipsis", no_wrap=True)


def skip_repeated_lines(tell: PrintLine) -> PrintLine:
    """Returns a function that prints a line only if it differs from the last one."""
    last = ""

    def told(text: str) -> None:
        nonlocal last
        if text != last:
            tell(text)
        last = text

    return told


async def _status_line(client: ActionClient, path: str, targets: int) -> str:
    """Returns the object's status in one line. A failed read does not end the waiting."""
    path = wire.object_path_of(path)
    try:
        view = await client.read_object(path)
    except Refused as refused:
        gone = refused.category is Category.NOT_FOUND  # it was removed, and the action is about to end
        return f"{short_path(path)}: {'removed' if gone else refused.message}"
    except NoWorker:
        return f"{short_path(path)}: no worker answers; the action goes on when one is back"
    except RatchetError as error:
        return f"{short_path(path)}: {error}"
    return f"{short_path(path)}: {view.status}{_done_text(view, targets)}{await _step_text(client, view)}"


async def _step_text(client: ActionClient, view: ObjectView) -> str:
    """Returns the current step of a running action, such as whom it waits for; members in a group say it themselves."""
    if view.counts or view.target_action == NONE:
        return ""
    step = await client.read_current_step(view.path)
    return f"  {step}" if step else ""


def _done_text(view: ObjectView, targets: int) -> str:
    """Returns `  4/6 done`: how many targets have left their transitional status."""
    done, targets = tree.count_done_targets(view, view.counts, targets)
    return f"  {done}/{targets} done" if targets and registry.find_kind(view.kind).member else ""
