"""Help pages with the program's name as this user types it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cyclopts.help import DefaultFormatter

from starter import terminal

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions


class ProgramNameFormatter(DefaultFormatter):
    """cyclopts' formatter, with the program's name replaced in usage and examples."""

    def render_usage(self, console: Console, options: ConsoleOptions, usage: Any) -> None:
        """Renders the usage line."""
        super().render_usage(console, options, terminal.rewrite_commands(str(usage)) if usage else usage)

    def render_description(self, console: Console, options: ConsoleOptions, description: Any) -> None:
        """Renders the description, with its example."""
        with console.capture() as shown:
            super().render_description(console, options, description)
        console.out(terminal.rewrite_commands(shown.get()), end="", highlight=False)
