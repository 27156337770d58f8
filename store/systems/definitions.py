"""The definition of every deploy, and what it replaced: for `starter system rollback` and `starter system diff`.

They have a table of their own: a definition may be as large as a payload of Temporal can be, and deploys are listed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import sqlalchemy as sa

from domain.errors import Category, Refused
from domain.model import ReadQuery
from domain.paths import short_path
from domain.systems.ports import FORMER_DEFINITION, DefinitionView
from store.schema import Path, define_table


class DefinitionRow(NamedTuple):
    """A deploy's definition, and the one that it replaced; None if there was none."""

    record: Path
    definition: dict[str, Any]
    former: dict[str, Any] | None


definitions = define_table("system_definitions", DefinitionRow, ("record",))
_SELECT_DEFINITION = sa.select(definitions.c.definition).where(definitions.c.record == sa.bindparam("which"))
_SELECT_FORMER = sa.select(definitions.c.former).where(definitions.c.record == sa.bindparam("which"))


def store_definition(
    connection: sa.Connection, record: str, definition: dict[str, Any], former: dict[str, Any] | None
) -> None:
    """Stores what a deploy puts at its path, and what was there before."""
    row = {"record": record, "definition": definition, "former": sa.null() if former is None else former}
    connection.execute(sa.insert(definitions).values(row))


def delete_definitions(connection: sa.Connection, system: str) -> None:
    """Deletes the definitions of a system's deploys."""
    below = (definitions.c.record > f"{system}:") & (definitions.c.record < f"{system};")
    connection.execute(sa.delete(definitions).where(below))


def read_definition(connection: sa.Connection, query: ReadQuery) -> DefinitionView:
    """Returns the definition of a deploy's record, or the one that it replaced."""
    statement = _SELECT_FORMER if query.kind == FORMER_DEFINITION else _SELECT_DEFINITION
    found = connection.execute(statement, {"which": query.path}).one_or_none()
    if found is None:
        system = short_path(query.path.partition("::")[0])
        raise Refused(
            Category.NOT_FOUND, f"there is no deploy {query.path}", f"starter system deploys {system.partition('/')[0]}"
        )
    return DefinitionView(definition=found[0])
