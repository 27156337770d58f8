"""Gives new objects their ids in the dialects, and finds them by id or by path. Rows are never changed or reused."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from domain import registry
from domain.aliases import Alias, AliasForm, AliasQuery, Dialect
from domain.paths import name_of
from store.schema import HAS_UUID, AliasRow, aliases

BIGGEST_NUMBER = 2**63 - 1

_INSERT_ALIASES = sa.insert(aliases)
_SELECT_TAKEN_UUIDS = sa.select(aliases.c.uuid).where(
    aliases.c.uuid.in_(sa.bindparam("uuids", expanding=True)), HAS_UUID
)
_SELECT_BY_NUMBER = sa.select(aliases).where(
    aliases.c.number.in_(sa.bindparam("numbers", expanding=True)),
    aliases.c.dialect == sa.bindparam("dialect"),
    aliases.c.uuid == "",
)
_SELECT_BY_UUID = sa.select(aliases).where(
    aliases.c.uuid.in_(sa.bindparam("uuids", expanding=True)), aliases.c.dialect == sa.bindparam("dialect"), HAS_UUID
)
_SELECT_BY_PATH = (
    sa.select(aliases)
    .where(aliases.c.path.in_(sa.bindparam("paths", expanding=True)), aliases.c.dialect == sa.bindparam("dialect"))
    .order_by(aliases.c.number)
)


def insert_aliases(connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Gives new objects their ids, in each dialect that knows their kind."""
    given = [(row, *each) for row in rows for each in registry.find_kind(row["kind"]).alias_forms.items()]
    if not given:
        return
    own = {name for row, _, form in given if form is AliasForm.UUID and (name := _parse_uuid(name_of(row["path"])))}
    free = own - set(connection.execute(_SELECT_TAKEN_UUIDS, {"uuids": sorted(own)}).scalars()) if own else own
    connection.execute(_INSERT_ALIASES, [_new_alias_row(row, dialect, form, free) for row, dialect, form in given])


def find_aliases(connection: sa.Connection, query: AliasQuery) -> list[Alias]:
    """Returns the aliases with these ids, and those of the last objects at these paths."""
    asked: dict[str, Any] = {"dialect": query.dialect.value}
    found: list[AliasRow] = []
    if numbers := [int(text) for text in query.ids if text.isdecimal() and int(text) <= BIGGEST_NUMBER]:
        found += [AliasRow(*row) for row in connection.execute(_SELECT_BY_NUMBER, asked | {"numbers": numbers})]
    if uuids := [text for text in map(_parse_uuid, query.ids) if text]:
        found += [AliasRow(*row) for row in connection.execute(_SELECT_BY_UUID, asked | {"uuids": uuids})]
    if query.paths:
        rows = [AliasRow(*row) for row in connection.execute(_SELECT_BY_PATH, asked | {"paths": query.paths})]
        found += {row.path: row for row in rows}.values()  # the last one stays
    return [
        Alias(dialect=query.dialect, id=row.uuid or str(row.number), path=row.path, generation=row.generation)
        for row in found
    ]


def _new_alias_row(row: Mapping[str, Any], dialect: Dialect, form: AliasForm, free: set[str]) -> dict[str, Any]:
    name = _parse_uuid(name_of(row["path"]))
    given = name if name in free else str(uuid.uuid4())
    free.discard(name)
    return {
        "dialect": dialect.value,
        "uuid": given if form is AliasForm.UUID else "",
        "path": row["path"],
        "generation": row["info"].get("generation", row["epoch"]),
    }


def _parse_uuid(text: str) -> str:
    """Returns the text if it is a UUID as we write them, else an empty text."""
    try:
        return text if str(uuid.UUID(text)) == text else ""
    except ValueError:
        return ""
