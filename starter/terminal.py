"""Terminal output: data goes to stdout, messages go to stderr, and control characters are made visible."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple, TextIO

if TYPE_CHECKING:
    from rich.console import Console

    from starter.errors import PrintedError  # it loads the models


class OutputLine(NamedTuple):
    """A line to print: data, or a message."""

    data: bool
    text: str
    style: str = ""


Lines = list[OutputLine]
EMPTY_LINE = OutputLine(True, "")
PROGRAM = "starter"
_PROGRAM_PATTERN = re.compile(rf"(?<![\w.:/-]){PROGRAM}(?= +[A-Za-z-])")  # not inside a path
MACHINE_OUTPUT: ContextVar[bool] = ContextVar("MACHINE_OUTPUT", default=False)  # the command was asked for JSON
_COLLECTED: ContextVar[Lines | None] = ContextVar("HELD", default=None)


def print_data(text: str) -> None:
    """Prints data on stdout."""
    if (kept := _COLLECTED.get()) is not None:
        kept.append(OutputLine(True, text))
        return
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def print_message(text: str = "", style: str = "") -> None:
    """Prints a message on stderr, styled if that is a terminal."""
    if (kept := _COLLECTED.get()) is not None:
        kept.append(OutputLine(False, text, style))
        return
    _print_without_markup(stderr_console(), text, style)


def print_remark(text: str, style: str = "") -> None:
    """Prints a message for people only: progress, links, and what a program finds in the data."""
    if not MACHINE_OUTPUT.get():
        print_message(text, style)


def print_link(link: str) -> None:
    """Prints where a person can see more, if that is known."""
    if link:
        print_remark(link, "dim")


def print_narration(text: str = "", style: str = "") -> None:
    """Prints a line of a command whose output is text, such as `demo` and `up`, on stdout."""
    _print_without_markup(_make_console(sys.stdout), text, style)
    sys.stdout.flush()  # pipes and files are buffered otherwise


@contextmanager
def capture_output() -> Iterator[Lines]:
    """Collects the lines of the block instead of printing them."""
    kept: Lines = []
    before = _COLLECTED.set(kept)
    try:
        yield kept
    finally:
        _COLLECTED.reset(before)


def print_collected(lines: Lines) -> None:
    """Prints collected lines."""
    for line in lines:
        if line.data:
            print_data(line.text)
        else:
            print_message(line.text, line.style)


def terminal_width() -> int | None:
    """Returns the width of stdout's terminal in columns; None for pipes and files, whose lines may have any length."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def stderr_console() -> Console:
    """Returns the console on stderr."""
    return _make_console(sys.stderr)


def print_error(problem: PrintedError) -> None:
    """Prints an error: what, why, what to run next; for a program, as one line of JSON."""
    if MACHINE_OUTPUT.get():
        typed = {
            key: rewrite_commands(value) if isinstance(value, str) else value
            for key, value in problem.to_json_data().items()
        }
        print_message(json.dumps(typed))
        return
    print_message(f"error: {problem.what}", "bold red")
    print_message(f"  why: {rewrite_commands(problem.why)}")
    print_message(f"  hint: {rewrite_commands(problem.next)}")


def typed_command() -> str:
    """Returns the command by which this user calls the CLI."""
    return os.environ.get("RATCHET_COMMAND", PROGRAM)


def rewrite_commands(text: str) -> str:
    """Rewrites the commands in a text as this user types them: `starter`, or `python3 run.py` in a fresh clone."""
    return text if (word := typed_command()) == PROGRAM else _PROGRAM_PATTERN.sub(lambda _: word, text)


def escape_controls(text: str) -> str:
    """Makes control characters visible, so that hostile text cannot move the cursor."""
    return "".join(char if char.isprintable() or char == "\n" else f"\\x{ord(char):02x}" for char in text)


def is_interactive() -> bool:
    """Tells whether a person can answer a question."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask_confirmation(question: str) -> bool:
    """Asks a question; True if the person at the terminal answers yes."""
    # asyncio's SIGINT handler would leave the prompt waiting.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _print_without_markup(stderr_console(), f"{question} [y/N] ", end="")
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except KeyboardInterrupt:
        print_message()
        raise
    finally:
        signal.signal(signal.SIGINT, previous)


def _print_without_markup(console: Console, text: str, style: str = "", end: str = "\n") -> None:
    """Prints literally: no markup, no highlighting, and `:x:` in a path is no emoji."""
    console.print(
        escape_controls(text), style=style or None, end=end, markup=False, emoji=False, highlight=False, soft_wrap=True
    )


def _make_console(stream: TextIO) -> Console:
    """Returns a console on the current stream, as tests and pipes replace it."""
    from rich.console import Console  # imported late: commands that only print data do not need it

    return Console(file=stream, soft_wrap=True)
