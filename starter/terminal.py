"""Where words go: data to stdout, everything said to a person to stderr. Hostile text cannot move the cursor."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple, TextIO

from starter.errors import Problem

if TYPE_CHECKING:
    from rich.console import Console


class OutputLine(NamedTuple):
    """Something that was to be printed: data, or a line for a person."""

    data: bool
    text: str
    style: str = ""


Lines = list[OutputLine]
GAP = OutputLine(True, "")
PROGRAM = "starter"
_OURS = re.compile(rf"(?<![\w.:/-]){PROGRAM}(?= +[A-Za-z-])")  # not an object of that name, in a path
_HELD: ContextVar[Lines | None] = ContextVar("HELD", default=None)


def out(text: str) -> None:
    """Data."""
    if (kept := _HELD.get()) is not None:
        kept.append(OutputLine(True, text))
        return
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def say(text: str = "", style: str = "") -> None:
    """A line for a person, in a style if stderr is a terminal."""
    if (kept := _HELD.get()) is not None:
        kept.append(OutputLine(False, text, style))
        return
    _print(people(), text, style)


def story(text: str = "", style: str = "") -> None:
    """A line of a command whose product is words: `demo`, `up` and the like."""
    _print(_console(sys.stdout), text, style)
    sys.stdout.flush()  # whoever reads a pipe or a file wants it now


@contextmanager
def held() -> Iterator[Lines]:
    """What is put out and said meanwhile is kept, not printed."""
    kept: Lines = []
    before = _HELD.set(kept)
    try:
        yield kept
    finally:
        _HELD.reset(before)


def release(lines: Lines) -> None:
    """Print what was held."""
    for line in lines:
        if line.data:
            out(line.text)
        else:
            say(line.text, line.style)


def width() -> int | None:
    """Columns of the terminal that data goes to; None for pipes and files, in which lines may have any length."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def people() -> Console:
    """The console on stderr."""
    return _console(sys.stderr)


def tell(problem: Problem) -> None:
    """What, why, what to run next."""
    say(f"error: {problem.what}", "bold red")
    say(f"  why: {command(problem.why)}")
    say(f"  hint: {command(problem.next)}")


def typed() -> str:
    """The word, or words, by which this user calls us."""
    return os.environ.get("RATCHET_COMMAND", PROGRAM)


def command(text: str) -> str:
    """A text with our commands as this user types them: `starter`, or `python3 run.py` in a fresh clone."""
    return text if (word := typed()) == PROGRAM else _OURS.sub(lambda _: word, text)


def clean(text: str) -> str:
    """Control characters, of which terminals obey many, made visible."""
    return "".join(char if char.isprintable() or char == "\n" else f"\\x{ord(char):02x}" for char in text)


def interactive() -> bool:
    """Is there a person who can answer?"""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirmed(question: str) -> bool:
    """Yes, said by the person at the terminal."""
    # Under asyncio Ctrl-C would only be noted, and the prompt would stay.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _print(people(), f"{question} [y/N] ", end="")
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except KeyboardInterrupt:
        say()
        raise
    finally:
        signal.signal(signal.SIGINT, previous)


def _print(console: Console, text: str, style: str = "", end: str = "\n") -> None:
    """As it is: no markup, no colours by guess, and `:x:` in a path is no emoji."""
    console.print(clean(text), style=style or None, end=end, markup=False, emoji=False, highlight=False, soft_wrap=True)


def _console(stream: TextIO) -> Console:
    """A console on a stream as it is now: tests and pipes change it."""
    from rich.console import Console  # not needed by the commands that only print data

    return Console(file=stream, soft_wrap=True)
