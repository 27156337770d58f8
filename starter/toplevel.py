"""The top level of the command line: the app around all commands, and `starter --help`, which loads none of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cyclopts import App, Group, Parameter

from starter import terminal
from starter.firstlines import FIRST_LINES

if TYPE_CHECKING:
    from cyclopts.help.protocols import HelpFormatter

# Headings of `starter --help`.
OBJECTS, LOOKING, STEERING, RUNNING = GROUPS = tuple(
    Group(name, sort_key=index) for index, name in enumerate(("Objects", "Looking", "Steering", "Running"))
)
# Of starter/errors.py, which would load the models.
EXIT_CODES = (
    "0 done, 1 failed, 2 usage, 3 refused, 4 forbidden, 5 unreachable, 6 not found, 7 partly, 8 busy, "
    "124 still waiting, 130 interrupted"
)
_NEVER_LOADED = "starter.app:build_cli_app"  # of a command on the help page, only the line is needed
_TOP_LEVEL_WORDS: tuple[list[str], ...] = ([], ["--help"], ["-h"], ["--version"])


def create_top_app() -> App:
    """Returns the app to which commands are added."""
    return App(
        name="starter",
        help="Durable lifecycle actions on infrastructure.\n\nBegin with: starter demo, or: starter up.",
        help_epilogue="--profile NAME before any command uses that profile of Temporal's temporal.toml.\n\n"
        "--debug with any command shows the traceback of an error.\n\n"
        f"Exit codes: {EXIT_CODES}; see docs/reference.md.",
        version=_program_version,
        default_parameter=Parameter(show_default=lambda value: str(value) if value else None),  # not "" and False
        result_action="return_value",
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
        help_format="plaintext",  # markdown would cost a quarter of a second
        help_formatter=_help_formatter(terminal.typed_command()),
    )


def print_top_level(words: Sequence[str]) -> bool:
    """Answers a command line that names no command: the help page, or the version. False if it names one."""
    if list(words) not in _TOP_LEVEL_WORDS:
        return False
    app = create_top_app()
    app.command(_NEVER_LOADED, name="--install-completion", help="Install shell completion for this application.")
    for group in GROUPS:
        for name, line in FIRST_LINES[group.name].items():
            app.command(_NEVER_LOADED, name=name, help=line, group=group)
    app(words)
    return True


def _program_version() -> str:
    from importlib.metadata import version  # imported late: help does not need it

    return version("ratchet")


def _help_formatter(typed: str) -> HelpFormatter | None:
    """Returns None, cyclopts' own formatter, for users who type `starter`; else ours, which shows what they typed."""
    if typed == terminal.PROGRAM:
        return None
    from starter.helpformat import ProgramNameFormatter

    return ProgramNameFormatter()
