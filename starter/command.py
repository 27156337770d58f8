"""Runs one command, prints its errors, returns its exit code."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise, takewhile

from cyclopts import App
from cyclopts.exceptions import CycloptsError, MissingArgumentError, UnknownCommandError, UnknownOptionError
from pydantic import ValidationError

from domain.errors import Category, RatchetError, Refused, find_close_word
from domain.validation import describe_validation_errors
from starter import terminal
from starter.errors import ExitCode, PrintedError, to_printed_error
from starter.firstlines import FAMILY_OF_COMMAND
from starter.session import COMMAND_NAME

DEBUG_FLAG = "--debug"
PROFILE_FLAG = "--profile"
FIRST_COMMANDS = ("up", "demo")  # of several commands with an option, what a newcomer means


async def run_command(argv: Sequence[str]) -> int:
    """Runs one command and returns its exit code. Errors are printed, not raised."""
    terminal.MACHINE_OUTPUT.set(_wants_json(argv))
    debug, words = DEBUG_FLAG in argv, [word for word in argv if word != DEBUG_FLAG]
    try:
        profile, words = take_profile_option(words)
        COMMAND_NAME.set(" ".join(("starter", *takewhile(str.isalpha, words))))
        with _profile_environment(profile):
            code: int | None = await _build_app_for(words).run_async(words)
        return int(code or ExitCode.DONE)
    except CycloptsError as error:
        return _print_error(_usage_error(error), debug)
    except RatchetError as error:
        return _print_error(to_printed_error(error), debug)
    except BrokenPipeError:  # the reader of our output closed the pipe
        return ExitCode.DONE
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        found = PrintedError("a bug in this program", told, f"again with {DEBUG_FLAG}", ExitCode.FAILED, "bug")
        return _print_error(found, debug)


def _build_app_for(words: Sequence[str]) -> App:
    """Builds the app with the commands of one family, if the command belongs to one; else with all commands."""
    family = FAMILY_OF_COMMAND.get(words[0]) if words else None
    if family:
        from starter.families import build_family_app

        return build_family_app(family)
    from starter.app import build_cli_app

    return build_cli_app()


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


def _usage_error(error: CycloptsError) -> PrintedError:
    help_words = " ".join(("starter", *(error.command_chain or ()), "--help"))
    why = " ".join(str(error).split())
    if isinstance(error, MissingArgumentError) and error.argument and not error.tokens_so_far:
        why = f"{error.argument.name} {'is missing' if error.argument.required else 'needs a value'}"
    elif isinstance(error.__cause__, ValidationError):
        why = describe_validation_errors(error.__cause__).replace("Input should be", "must be")
        if words := [repr(each["input"]) for each in error.__cause__.errors() if each["type"] == "enum"]:
            why += f", not {', '.join(words)}"  # a word of a list is no secret
    elif isinstance(error, UnknownOptionError):
        why = _describe_unknown_option(error)
    elif isinstance(error, UnknownCommandError) and (option := (error.unused_tokens or [""])[0]).startswith("-"):
        why = f"{option} stands before a command"
        help_words = _suggest_command_with_option(option) or help_words
    return PrintedError("bad usage: nothing was changed", why, help_words, ExitCode.USAGE, "usage")


def _describe_unknown_option(error: UnknownOptionError) -> str:
    """Names the option, and the one that was probably meant: without the dashes, which would make all alike."""
    option = (error.token.keyword or error.token.value).partition("=")[0]
    known = [name[2:] for argument in error.argument_collection for name in argument.names if name[:2] == "--"]
    close = find_close_word(option.lstrip("-"), known)
    return f"Unknown option: {option}." + (f" Did you mean --{close}?" if close else "")


def _suggest_command_with_option(option: str) -> str:
    """Returns a command that takes this option, which was given without one; empty if there is none."""
    app = _build_app_for(())
    commands = [app[name] for name in app.resolved_commands() if not name.startswith("-")]
    for command in sorted(commands, key=lambda command: command.name[0] not in FIRST_COMMANDS):
        if command.default_command and any(
            option in argument.names for argument in command.assemble_argument_collection()
        ):
            return f"did you mean: starter {command.name[0]} {option} …"
    return ""


def _print_error(found: PrintedError, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    terminal.print_error(found)
    return found.exit
