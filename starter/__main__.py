"""The entry point: one command, its exit code, and an end that cannot abort."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from cyclopts.exceptions import CycloptsError

from domain.errors import RatchetError
from starter import terminal
from starter.app import build
from starter.errors import Exit, Problem, problem

DEBUG = "--debug"


async def run(argv: Sequence[str]) -> int:
    """Run one command and return its exit code. Errors are told, not raised."""
    words = [word for word in argv if word != DEBUG]
    try:
        code: int | None = await build().run_async(words)
        return int(code or Exit.DONE)
    except CycloptsError as error:
        return _told(_misused(error, words), DEBUG in argv)
    except RatchetError as error:
        return _told(problem(error), DEBUG in argv)
    except BrokenPipeError:  # whoever read our output has seen enough
        return Exit.DONE
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        return _told(Problem("a bug in this program", told, f"again with {DEBUG}", Exit.FAILED), DEBUG in argv)


def main() -> NoReturn:
    """`starter …`"""
    try:
        code = asyncio.run(run(sys.argv[1:]))
    except KeyboardInterrupt:
        code = Exit.INTERRUPTED
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError):
            stream.flush()
    os._exit(code)  # a normal exit may abort while the SDK's threads still run


def _misused(error: CycloptsError, words: Sequence[str]) -> Problem:
    nouns = " ".join(error.command_chain or ()) if error.command_chain else ""
    why = " ".join(str(error).split())
    return Problem("bad usage: nothing was changed", why, f"starter {nouns} --help".replace("  ", " "), Exit.USAGE)


def _told(found: Problem, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    terminal.tell(found)
    return found.exit


if __name__ == "__main__":
    main()
