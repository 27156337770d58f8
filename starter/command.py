"""Runs one command, prints its errors, returns its exit code."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile

from cyclopts.exceptions import CycloptsError, MissingArgumentError

from domain.errors import Category, RatchetError, Refused
from starter import terminal
from starter.app import build
from starter.errors import Exit, Problem, problem
from starter.session import COMMAND

DEBUG = "--debug"
PROFILE = "--profile"


async def run(argv: Sequence[str]) -> int:
    """Runs one command and returns its exit code. Errors are printed, not raised."""
    debug, words = DEBUG in argv, [word for word in argv if word != DEBUG]
    try:
        profile, words = profile_in(words)
        COMMAND.set(" ".join(("starter", *takewhile(str.isalpha, words))))
        with _using(profile):
            code: int | None = await build().run_async(words)
        return int(code or Exit.DONE)
    except CycloptsError as error:
        return _told(_misused(error), debug)
    except RatchetError as error:
        return _told(problem(error), debug)
    except BrokenPipeError:  # the reader of our output closed the pipe
        return Exit.DONE
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        return _told(Problem("a bug in this program", told, f"again with {DEBUG}", Exit.FAILED), debug)


def profile_in(words: list[str]) -> tuple[str, list[str]]:
    """Takes `--profile NAME` (a profile of Temporal) from before the command; later words belong to the command."""
    first = words[0] if words else ""
    if first.startswith(f"{PROFILE}="):
        return first.partition("=")[2], words[1:]
    if first != PROFILE:
        return "", words
    if len(words) < 2:
        raise Refused(Category.INVALID, f"{PROFILE} needs a name", "starter --profile prod doctor")
    return words[1], words[2:]


@contextmanager
def _using(profile: str) -> Iterator[None]:
    """Sets TEMPORAL_PROFILE for this command; every connection reads it."""
    before = os.environ.get("TEMPORAL_PROFILE")
    if profile:
        os.environ["TEMPORAL_PROFILE"] = profile
    try:
        yield
    finally:
        if profile:
            del os.environ["TEMPORAL_PROFILE"]
            os.environ.update({"TEMPORAL_PROFILE": before} if before is not None else {})


def _misused(error: CycloptsError) -> Problem:
    help_words = " ".join(("starter", *(error.command_chain or ()), "--help"))
    why = " ".join(str(error).split())
    if isinstance(error, MissingArgumentError) and error.argument and not error.tokens_so_far:
        why = f"{error.argument.name} {'is missing' if error.argument.required else 'needs a value'}"
    return Problem("bad usage: nothing was changed", why, help_words, Exit.USAGE)


def _told(found: Problem, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    terminal.tell(found)
    return found.exit
