"""Output formats: table, json, yaml, name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from domain.statetable import NONE
from starter import terminal

Output = Literal["table", "json", "yaml", "name"]

STATUS_KEYS = (
    *("status", "previous_status", "target_status", "target_action", "phase"),
    *("source", "to", "came_from", "during", "then"),
)
STATUS_HEADINGS = ("STATUS", "TARGET", "FROM", "TO", "WHILE", "THEN")
USERS_KEYS = ("spec", "info")  # what they hold has the spelling of whoever wrote it


class Sheet(NamedTuple):
    """A command's result: the data, its rows as a table, its names."""

    data: Any
    headings: Sequence[str]
    lines: Sequence[Sequence[str]]
    names: Sequence[str]
    empty: str = "none"  # printed instead of an empty table


class StatusPage(NamedTuple):
    """The status of an object: as a sheet, and in words above the table; none if the table has them all."""

    headline: str
    sheet: Sheet

    def to_json_data(self) -> dict[str, Any]:
        """Returns the page as JSON data; `from_json_data` reads it."""
        return {"headline": self.headline, "sheet": self.sheet._asdict()}

    @classmethod
    def from_json_data(cls, data: dict[str, Any]) -> StatusPage:
        """Reads a page. Raises TypeError if a program of another version wrote it."""
        return cls(**data | {"sheet": Sheet(**data["sheet"])})


def print_status_page(page: StatusPage, output: Output) -> None:
    """Prints a status on stdout."""
    if output == "table" and page.headline:
        terminal.print_data(terminal.escape_controls(page.headline))
        terminal.print_data("")
    print_sheet(page.sheet, output)


def print_sheet(sheet: Sheet, output: Output) -> None:
    """Prints a sheet on stdout."""
    if sheet.lines or output != "table":
        for line in format_sheet(sheet, output, terminal.terminal_width()):
            terminal.print_data(line)
    elif sheet.empty:
        terminal.print_message(sheet.empty)


def format_sheet(sheet: Sheet, output: Output, width: int | None) -> Sequence[str]:
    """Formats a sheet that is not empty, for a terminal of this width."""
    if output == "table":
        return fit_table(sheet, width)
    if output == "name":
        return sheet.names
    data = null_absent_statuses(sheet.data)
    return [format_json(data) if output == "json" else format_yaml(data)]


def null_absent_statuses(data: Any) -> Any:
    """Replaces the stored word `None` by null in statuses and targets; what users wrote themselves stays."""
    if isinstance(data, list):
        return [null_absent_statuses(item) for item in data]
    if not isinstance(data, dict):
        return data
    return {
        key: None
        if key in STATUS_KEYS and value == NONE
        else value
        if key in USERS_KEYS
        else null_absent_statuses(value)
        for key, value in data.items()
    }


def fit_table(sheet: Sheet, width: int | None) -> list[str]:
    """Formats a table; on a terminal that is too narrow, the cells of each line one below the other."""
    lines = [
        [
            "" if cell == NONE and heading in STATUS_HEADINGS else cell
            for heading, cell in zip(sheet.headings, line, strict=True)
        ]
        for line in sheet.lines
    ]  # no object has such a status: a dash, as JSON has null
    table = align_columns([sheet.headings, *lines])
    if width is None or max(map(len, table)) <= width:
        return table
    first, *others = sheet.headings
    stacked = []
    for name, *cells in lines:
        told = [(f"  {heading}", cell) for heading, cell in zip(others, cells, strict=True) if cell]
        stacked += [f"{first} {terminal.escape_controls(name)}", *align_columns(told)]
    return stacked


def format_time(at: datetime) -> str:
    """Formats a time in UTC, to the second."""
    return f"{at:%Y-%m-%d %H:%M:%SZ}"


def format_json(data: Any) -> str:
    """Formats indented JSON; of what is not ASCII, only characters that could move the cursor are escaped."""
    text = json.dumps(data, indent=2, ensure_ascii=False)
    if _has_no_controls(text):
        return text
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


def _has_no_controls(text: str) -> bool:
    return text.replace("\n", "").isprintable()


def format_yaml(data: Any) -> str:
    """Formats YAML, with the keys in their original order."""
    import yaml

    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    return text if _has_no_controls(text) else str(yaml.safe_dump(data, sort_keys=False))


def align_columns(lines: Iterable[Sequence[str]]) -> list[str]:
    """Aligns columns for people and awk; nothing is truncated, and an empty cell is a dash."""
    cells = [[terminal.escape_controls(cell).replace("\n", " ") or "-" for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
