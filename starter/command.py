"""One command: run, its errors told to a person, its exit code returned."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from itertools import takewhile

from cyclopts.exceptions import CycloptsError

from domain.errors import RatchetError
from starter import terminal
from starter.app import build
from starter.errors import Exit, Problem, problem
from starter.session import COMMAND

DEBUG = "--debug"


async def run(argv: Sequence[str]) -> int:
    """Run one command and return its exit code. Errors are told, not raised."""
    debug, words = DEBUG in argv, [word for word in argv if word != DEBUG]
    COMMAND.set(" ".join(("starter", *takewhile(str.isalpha, words))))
    try:
        code: int | None = await build().run_async(words)
        return int(code or Exit.DONE)
    except CycloptsError as error:
        return _told(_misused(error), debug)
    except RatchetError as error:
        return _told(problem(error), debug)
    except BrokenPipeError:  # whoever read our output has seen enough
        return Exit.DONE
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        return _told(Problem("a bug in this program", told, f"again with {DEBUG}", Exit.FAILED), debug)


def _misused(error: CycloptsError) -> Problem:
    help_words = " ".join(("starter", *(error.command_chain or ()), "--help"))
    return Problem("bad usage: nothing was changed", " ".join(str(error).split()), help_words, Exit.USAGE)


def _told(found: Problem, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    terminal.tell(found)
    return found.exit
