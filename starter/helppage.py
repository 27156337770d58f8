"""`starter --help` and `starter --version`, without the parser and the library that draws pages, which take most of its
time. The page is that of the parser: tests/test_toplevel.py compares them.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from textwrap import wrap

from starter.firstlines import FIRST_LINES
from starter.terminal import PROGRAM, rewrite_commands

DESCRIPTION = ("Durable lifecycle actions on infrastructure.", f"Begin with: {PROGRAM} demo, or: {PROGRAM} up.")
# Of starter/errors.py, which would load the models.
EXIT_CODES = (
    "0 done, 1 failed, 2 usage, 3 refused, 4 forbidden, 5 unreachable, 6 not found, 7 partly, 8 busy, "
    "124 still waiting, 130 interrupted"
)
EPILOGUE = (
    "--profile NAME before any command uses that profile of Temporal's temporal.toml.",
    "--debug with any command shows the traceback of an error.",
    f"Exit codes: {EXIT_CODES}; see docs/reference.md.",
)
_OPTIONS = {
    "--help (-h)": "Display this message and exit.",
    "--install-completion": "Install shell completion for this application.",
    "--version": "Display application version.",
}
_LEAST_WIDTH = 40
_ROUND_BOX, _ASCII_BOX = (*"╭─╮│╰╯",), (*"+-+|++",)
_BOLD, _CYAN, _PLAIN = "\x1b[1m", "\x1b[36m", "\x1b[0m"


def print_top_level(words: Sequence[str]) -> bool:
    """Answers a command line that names no command: the help page, or the version. False if it names one."""
    match words:
        case ["--version"]:
            text = f"{program_version()}\n"
        case [] | ["--help"] | ["-h"]:
            is_utf = (sys.stdout.encoding or "").lower().startswith("utf")
            text = draw_help_page(shutil.get_terminal_size().columns, _has_colors(), is_utf)
        case _:
            return False
    with suppress(BrokenPipeError):  # the reader of our output closed the pipe
        sys.stdout.write(text)
    return True


def program_version() -> str:
    """Returns this program's version."""
    from importlib.metadata import version  # imported late: help does not need it

    return version("ratchet")


def draw_help_page(width: int, colored: bool = False, is_utf: bool = True) -> str:
    """Returns the help page for a terminal of this width."""
    width = max(width, _LEAST_WIDTH)
    usage = rewrite_commands(f"Usage: {PROGRAM} COMMAND")
    lines = [f"{_BOLD}{usage}{_PLAIN}" if colored else usage, ""]
    lines += _wrap_paragraphs(DESCRIPTION, width)
    for title, rows in {"Commands": _OPTIONS, **FIRST_LINES}.items():
        lines += _draw_panel(title, rows, width, colored, _ROUND_BOX if is_utf else _ASCII_BOX)
    lines += ["", *_wrap_paragraphs(EPILOGUE, width)]
    return "\n".join(lines)


def _wrap_paragraphs(paragraphs: Iterable[str], width: int) -> Iterator[str]:
    for text in paragraphs:
        yield from wrap(rewrite_commands(text), width, break_on_hyphens=False)
        yield ""


def _draw_panel(title: str, rows: dict[str, str], width: int, colored: bool, box: Sequence[str]) -> Iterator[str]:
    left, flat, right, side, low_left, low_right = box
    name_width = max(map(len, rows))
    text_width = width - name_width - 6  # the sides, a space at each, and two between name and text
    yield f"{left}{flat} {title} {flat * (width - len(title) - 5)}{right}"
    for name, text in sorted(rows.items()):
        for number, line in enumerate(wrap(text, text_width, break_on_hyphens=False)):
            shown = f"{name if number == 0 else '':{name_width}}"
            yield f"{side} {f'{_CYAN}{shown}{_PLAIN}' if colored else shown}  {line:{text_width}} {side}"
    yield f"{low_left}{flat * (width - 2)}{low_right}"


def _has_colors() -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (sys.stdout.isatty() and os.environ.get("TERM") not in (None, "dumb"))
