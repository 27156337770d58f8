"""Writes starter/firstlines.py: what `starter --help` says of each command, for a help page that loads none of them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from pathlib import Path

from cyclopts import App, Group

from domain import registry
from starter.extensions import find_extension
from starter.families import build_family_app
from starter.toplevel import GROUPS

FILE = Path(__file__).resolve().parent.parent / "starter/firstlines.py"
HEAD = '''"""What `starter --help` says of each command, by group. Written by: python -m docs.generate"""

from __future__ import annotations

# fmt: off
# ruff: noqa: E501  each line as the command has it
FIRST_LINES: dict[str, dict[str, str]] = {
'''
FAMILIES_HEAD = """# Which family a command belongs to: the other families need not be loaded for it.
FAMILY_OF_COMMAND: dict[str, str] = {"""
SCOPES_HEAD = """# The words of each kind's paths, without kinds whose family has its own status command.
SCOPE_OF_STATUS: dict[str, tuple[str, ...]] = {"""


def first_lines_module(app: App) -> str:
    """Returns the text of starter/firstlines.py, from the app with all its commands."""
    lines = []
    for group in GROUPS:
        shown = {name: app[name] for name in app if app[name].show and _is_in(app[name], group)}
        lines.append(f"    {json.dumps(group.name)}: {{")
        lines += [f"        {json.dumps(name)}: {json.dumps(_first_line(each))}," for name, each in shown.items()]
        lines.append("    },")
    lines += ["}", "", FAMILIES_HEAD]
    for family in registry.FAMILIES:
        own = [name for name in build_family_app(family) if not name.startswith("-")]
        lines += [f"    {json.dumps(name)}: {json.dumps(family)}," for name in own]
    lines += ["}", "", SCOPES_HEAD]
    for family, kinds in registry.FAMILIES.items():
        plain = [kind for kind in kinds if kind.name not in find_extension(family).own_status]
        lines += [f"    {json.dumps(kind.name)}: ({_words(kind.scope)})," for kind in plain]
    return HEAD + "\n".join(lines) + "\n}\n"


def _words(words: Sequence[str]) -> str:
    return " ".join(f"{json.dumps(word)}," for word in words)


def _is_in(command: App, group: Group) -> bool:
    return isinstance(command.group, tuple) and group in command.group


def _first_line(command: App) -> str:
    return " ".join(inspect.cleandoc(command.help).partition("\n\n")[0].split())
