"""The four ways to print what a command found: table, json, yaml, name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from starter import terminal

Output = Literal["table", "json", "yaml", "name"]
OutputOption = Annotated[Output, Parameter(name=["--output", "-o"], help="How to print what was found.")]


@dataclass(frozen=True)
class Sheet:
    """Something to print: the data itself, and how it reads as a table and as names."""

    data: Any
    headings: Sequence[str]
    lines: Sequence[Sequence[str]]
    names: Sequence[str]
    empty: str = "none"  # what a table without lines means, for people


def show(sheet: Sheet, output: Output) -> None:
    """Print on stdout."""
    if output == "json":
        terminal.out(as_json(sheet.data))
    elif output == "yaml":
        terminal.out(as_yaml(sheet.data))
    elif output == "name":
        for name in sheet.names:
            terminal.out(name)
    elif not sheet.lines:
        if sheet.empty:
            terminal.say(sheet.empty)
    else:
        for line in fitting(sheet, terminal.width()):
            terminal.out(line)


def fitting(sheet: Sheet, width: int | None) -> list[str]:
    """A table; or, on a terminal that is too narrow for it, the cells of each line one below the other."""
    table = aligned([sheet.headings, *sheet.lines])
    if width is None or max(map(len, table)) <= width:
        return table
    first, *others = sheet.headings
    stacked = []
    for name, *cells in sheet.lines:
        told = [(f"  {heading}", cell) for heading, cell in zip(others, cells, strict=True) if cell]
        stacked += [f"{first} {terminal.clean(name)}", *aligned(told)]
    return stacked


def when(at: datetime) -> str:
    """A moment in UTC, to the second."""
    return f"{at:%Y-%m-%d %H:%M:%SZ}"


def as_json(data: Any) -> str:
    """JSON, indented, with letters of every language as they are."""
    return json.dumps(data, indent=2, ensure_ascii=False)


def as_yaml(data: Any) -> str:
    """YAML, with the keys in the order in which they came."""
    import yaml

    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    return text


def aligned(lines: Iterable[Sequence[str]]) -> list[str]:
    """Columns, for eyes and for awk; nothing is cut and an empty cell is a dash."""
    cells = [[terminal.clean(cell).replace("\n", " ") or "-" for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
