"""Runs one command, prints its errors, returns its exit code."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise, takewhile

from domain.errors import Category, RatchetError, Refused
from starter import terminal
from starter.errors import ExitCode, PrintedError, to_printed_error
from starter.session import COMMAND_NAME
from starter.shortcut import parse_status_command

DEBUG_FLAG = "--debug"
PROFILE_FLAG = "--profile"


async def run_command(argv: Sequence[str]) -> int:
    """Runs one command and returns its exit code. Errors are printed, not raised."""
    terminal.MACHINE_OUTPUT.set(_wants_json(argv))
    debug, words = DEBUG_FLAG in argv, [word for word in argv if word != DEBUG_FLAG]
    try:
        profile, words = take_profile_option(words)
        COMMAND_NAME.set(" ".join(("starter", *takewhile(str.isalpha, words))))
        with _profile_environment(profile):
            return await _run_words(words)
    except RatchetError as error:
        return _print_error(to_printed_error(error), debug)
    except BrokenPipeError:  # the reader of our output closed the pipe
        return ExitCode.DONE
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        found = PrintedError("a bug in this program", told, f"again with {DEBUG_FLAG}", ExitCode.FAILED, "bug")
        return _print_error(found, debug)


async def _run_words(words: list[str]) -> int:
    if command := parse_status_command(words):
        from starter.reads import print_status

        return await print_status(*command)
    from starter.usage import run_app  # it loads the parser

    return await run_app(words)


def _wants_json(argv: Sequence[str]) -> bool:
    """Tells whether the command was asked for JSON; errors of the command line itself are told in JSON, too."""
    pairs = pairwise(argv)
    return (
        "--output=json" in argv
        or "-ojson" in argv
        or any(option in ("-o", "--output") and value == "json" for option, value in pairs)
    )


def take_profile_option(words: list[str]) -> tuple[str, list[str]]:
    """Takes `--profile NAME` (a profile of Temporal) from before the command; later words belong to the command."""
    first = words[0] if words else ""
    if first.startswith(f"{PROFILE_FLAG}="):
        return first.partition("=")[2], words[1:]
    if first != PROFILE_FLAG:
        return "", words
    if len(words) < 2:
        raise Refused(Category.INVALID, f"{PROFILE_FLAG} needs a name", "starter --profile prod doctor")
    return words[1], words[2:]


@contextmanager
def _profile_environment(profile: str) -> Iterator[None]:
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


def _print_error(found: PrintedError, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    terminal.print_error(found)
    return found.exit
