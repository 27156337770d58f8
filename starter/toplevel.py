"""The top level of the command line: the app around all commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cyclopts import App, Group, Parameter

from starter import terminal
from starter.helppage import DESCRIPTION, EPILOGUE, program_version

if TYPE_CHECKING:
    from cyclopts.help.protocols import HelpFormatter

# Headings of `starter --help`.
OBJECTS, LOOKING, STEERING, RUNNING = GROUPS = tuple(
    Group(name, sort_key=index) for index, name in enumerate(("Objects", "Looking", "Steering", "Running"))
)


def create_top_app() -> App:
    """Returns the app to which commands are added."""
    return App(
        name="starter",
        help="\n\n".join(DESCRIPTION),
        help_epilogue="\n\n".join(EPILOGUE),
        version=program_version,
        default_parameter=Parameter(show_default=lambda value: str(value) if value else None),  # not "" and False
        result_action="return_value",
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
        help_format="plaintext",  # markdown would cost a quarter of a second
        help_formatter=_help_formatter(terminal.typed_command()),
    )


def _help_formatter(typed: str) -> HelpFormatter | None:
    """Returns None, cyclopts' own formatter, for users who type `starter`; else ours, which shows what they typed."""
    if typed == terminal.PROGRAM:
        return None
    from starter.helpformat import ProgramNameFormatter

    return ProgramNameFormatter()
