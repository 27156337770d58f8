"""What is kept, as facts for those who check it. Nothing here writes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from domain import registry
from domain.invariants import (
    ActionFacts,
    Kept,
    Line,
    every_change_is_accounted_for,
    history_is_legal,
    holds_never_overlapped,
    rest_is_stable,
)
from domain.machine import NONE
from domain.model import Finding
from domain.paths import kind_of
from store.reading import below
from store.schema import actions, history, locks, objects


def kept(connection: sa.Connection, prefix: str, open_runs: set[str]) -> Kept:
    """Check what can be checked here: I2, I4, I5 and I11. The runs that are open come from Temporal."""
    admitted = _actions(connection, prefix)
    open_epochs = {each.epoch for each in admitted if each.run in open_runs}
    held = [
        (row.path, row.run)
        for row in connection.execute(_at(sa.select(locks.c.path, locks.c.run), locks.c.path, prefix))
    ]
    legal, lines = _histories(connection, prefix, {each.epoch: each for each in _actions(connection, "")})
    findings = [
        *rest_is_stable(_under_way(connection, prefix), held, open_epochs, open_runs),
        *legal,
        *holds_never_overlapped([each for each in admitted if not _hidden(each)]),
    ]
    count = connection.execute(
        _at(sa.select(sa.func.count()).select_from(objects), objects.c.path, prefix)
    ).scalar_one()
    return Kept(admitted, findings, int(count), lines, len(held))


def _hidden(action: ActionFacts) -> bool:
    """Hidden work excludes nobody: it is begun while others are under way, and waits for them."""
    return action.action in registry.kind_at(action.path).table.hidden


def _at(query: sa.Select[Any], column: sa.ColumnElement[str], prefix: str) -> sa.Select[Any]:
    return query.where(below(column, prefix)) if prefix else query


def _actions(connection: sa.Connection, prefix: str) -> list[ActionFacts]:
    """An action's span is that of its own lines: facts that others report after it, under other words, are not its."""
    span = (
        sa.select(
            history.c.epoch,
            history.c.path,
            history.c.action,
            sa.func.min(history.c.seq).label("first"),
            sa.func.max(history.c.seq).label("last"),
        )
        .where(~history.c.message.startswith("ignored: "))
        .group_by(history.c.epoch, history.c.path, history.c.action)
        .subquery()
    )
    same = (span.c.epoch == actions.c.epoch) & (span.c.path == actions.c.path) & (span.c.action == actions.c.action)
    query = sa.select(actions, span.c.first, span.c.last).outerjoin(span, same).order_by(actions.c.epoch)
    return [
        ActionFacts(
            epoch=row["epoch"],
            path=row["path"],
            action=row["action"],
            run=row["run"],
            ended=row["ended_at"] is not None,
            has_outcome=bool(row["outcome"]),
            requested_by=row["requested_by"],
            first=row["first"] or 0,
            last=row["last"] or 0,
        )
        for row in connection.execute(_at(query, actions.c.path, prefix)).mappings()
    ]


def _under_way(connection: sa.Connection, prefix: str) -> Iterator[tuple[str, str, int]]:
    """Objects with a target, or in a status that is only passed through."""
    columns = (objects.c.path, objects.c.kind, objects.c.status, objects.c.target_action, objects.c.epoch)
    for path, kind, status, target, epoch in connection.execute(_at(sa.select(*columns), objects.c.path, prefix)):
        if target != NONE or status in registry.kind(kind).table.transitional:
            yield path, status, epoch


def _histories(connection: sa.Connection, prefix: str, admitted: dict[int, ActionFacts]) -> tuple[list[Finding], int]:
    statuses = connection.execute(_at(sa.select(objects.c.path, objects.c.status), objects.c.path, prefix))
    now: dict[str, str] = {path: status for path, status in statuses}  # noqa: C416  rows are not pairs to the checker
    columns = [history.c[name] for name in Line.__dataclass_fields__]
    query = _at(sa.select(*columns), history.c.path, prefix).order_by(history.c.path, history.c.seq)
    findings: list[Finding] = []
    number = 0
    for path, rows in groupby(connection.execute(query), key=lambda row: row.path):
        lines = [Line(*row) for row in rows]
        number += len(lines)
        findings += every_change_is_accounted_for(lines, admitted)
        if kind_of(path) in registry.KINDS:
            findings += history_is_legal(registry.kind(kind_of(path)).table, path, lines, now.get(path, NONE))
    return findings, number
