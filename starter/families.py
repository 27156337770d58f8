"""The families on the command line: what `starter/<family>/` adds, for each family of the registry."""

from __future__ import annotations

from functools import cache

from cyclopts import App

from domain import registry
from starter import completion, terminal
from starter.extensions import CliExtension, find_extension
from starter.kinds import build_kind_app
from starter.toplevel import OBJECTS, create_top_app


def all_extensions() -> dict[str, CliExtension]:
    """Imports every family's additions."""
    return {family: find_extension(family) for family in registry.FAMILIES}


def add_family(app: App, family: str) -> App:
    """Adds the nouns of a family, and its own commands."""
    extension, kinds = find_extension(family), registry.FAMILIES[family]
    for kind in kinds:
        app.command(build_kind_app(kind, OBJECTS, extension))
    if extension.extend:
        extension.extend(app)
    for kind in kinds:
        completion.complete_objects_of_kind(app[kind.name], kind.name)
    return app


def build_family_app(family: str) -> App:
    """Builds the app for a command of this family, once: without the commands of the others, which take time."""
    return _build_family_app(family, terminal.typed_command())


@cache
def _build_family_app(family: str, _typed: str) -> App:
    return add_family(create_top_app(), family)
