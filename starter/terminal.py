"""Where words go: data to stdout, everything said to a person to stderr. Hostile text cannot move the cursor."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, TextIO

from starter.errors import Problem

if TYPE_CHECKING:
    from rich.console import Console


def out(text: str) -> None:
    """Data."""
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def say(text: str = "", style: str = "") -> None:
    """A line for a person, in a style if stderr is a terminal."""
    people().print(clean(text), style=style or None, markup=False, highlight=False, soft_wrap=True)


def story(text: str = "", style: str = "") -> None:
    """A line of a command whose product is words: `demo`, `up` and the like."""
    _console(sys.stdout).print(clean(text), style=style or None, markup=False, highlight=False, soft_wrap=True)
    sys.stdout.flush()  # whoever reads a pipe or a file wants it now


def people() -> Console:
    """The console on stderr."""
    return _console(sys.stderr)


def tell(problem: Problem) -> None:
    """What, why, what to run next."""
    say(f"error: {problem.what}", "bold red")
    say(f"  why: {problem.why}")
    say(f"  hint: {command(problem.next)}")


def command(text: str) -> str:
    """A hint with the command as this user types it: `starter`, or `python3 run.py` in a fresh clone."""
    typed = os.environ.get("RATCHET_COMMAND", "starter")
    return text if typed == "starter" else text.replace("starter ", f"{typed} ")


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
        people().print(f"{clean(question)} [y/N] ", end="", markup=False, highlight=False)
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except KeyboardInterrupt:
        say()
        raise
    finally:
        signal.signal(signal.SIGINT, previous)


def _console(stream: TextIO) -> Console:
    """A console on a stream as it is now: tests and pipes change it."""
    from rich.console import Console  # not needed by the commands that only print data

    return Console(file=stream, soft_wrap=True)
