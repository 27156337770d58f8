"""Properties of hosts, and the SQL condition of a property expression."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa

from domain.leases.properties import PropertyComparison, PropertyCondition, value_as_number, value_as_text
from store.leases.tables import hosts, private_properties, properties

_COMPARE: dict[str, Callable[[Any, Any], sa.ColumnElement[bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "!=": operator.ne,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_INSERT_PROPERTIES = sa.insert(properties)
_DELETE_PROPERTIES = sa.delete(properties).where(properties.c.host == sa.bindparam("of_host"))


def store_properties(connection: sa.Connection, host: str, values: Mapping[str, object]) -> None:
    """Replaces the properties of a host."""
    connection.execute(_DELETE_PROPERTIES, {"of_host": host})
    lines = [
        {"host": host, "name": name, "value": value_as_text(value), "number": value_as_number(value)}
        for name, value in values.items()
    ]
    if lines:
        connection.execute(_INSERT_PROPERTIES, lines)


def store_visibility(connection: sa.Connection, pool: str, is_private: Mapping[str, bool]) -> None:
    """Makes properties of a pool's hosts private or public."""
    if is_private:
        its = private_properties.c
        connection.execute(sa.delete(private_properties).where(its.pool == pool, its.name.in_(list(is_private))))
    if hidden := [{"pool": pool, "name": name} for name, private in is_private.items() if private]:
        connection.execute(sa.insert(private_properties), hidden)


def host_condition_clause(condition: PropertyCondition) -> sa.ColumnElement[bool]:
    """Builds the condition for hosts that meet an expression."""
    if isinstance(condition, PropertyComparison):
        return _comparison_clause(condition)
    parts = [host_condition_clause(part) for part in condition.parts]
    return sa.and_(*parts) if condition.word == "and" else sa.or_(*parts)


def _comparison_clause(wanted: PropertyComparison) -> sa.ColumnElement[bool]:
    compare, number = _COMPARE[wanted.sign], value_as_number(wanted.value)
    holds = compare(properties.c.value, wanted.value)
    if number is not None:  # as numbers if the host's value is one, too
        is_number = properties.c.number.is_not(None)
        holds = (is_number & compare(properties.c.number, number)) | (~is_number & holds)
    return sa.exists().where(properties.c.host == hosts.c.host, properties.c.name == wanted.name, holds)
