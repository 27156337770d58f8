"""Parses a command line with cyclopts and runs the command; says what is wrong with words that fit no command."""

from __future__ import annotations

from collections.abc import Sequence

from cyclopts import App
from cyclopts.exceptions import CycloptsError, MissingArgumentError, UnknownCommandError, UnknownOptionError
from pydantic import ValidationError

from domain.errors import find_close_word
from domain.validation import describe_validation_errors
from starter.errors import BadUsage, ExitCode
from starter.firstlines import FAMILY_OF_COMMAND

FIRST_COMMANDS = ("up", "demo")  # of several commands with an option, what a newcomer means


async def run_app(words: list[str]) -> int:
    """Runs the command that the words name, and returns its exit code. Raises BadUsage if they fit none."""
    try:
        code: int | None = await _build_app_for(words).run_async(words)
    except CycloptsError as error:
        raise _bad_usage(error) from error
    return int(code or ExitCode.DONE)


def _build_app_for(words: Sequence[str]) -> App:
    """Builds the app with the commands of one family, if the command belongs to one; else with all commands."""
    family = FAMILY_OF_COMMAND.get(words[0]) if words else None
    if family:
        from starter.families import build_family_app

        return build_family_app(family)
    from starter.app import build_cli_app

    return build_cli_app()


def _bad_usage(error: CycloptsError) -> BadUsage:
    """Returns what was wrong with the words, and the help page to look at."""
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
    return BadUsage(why, help_words)


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
