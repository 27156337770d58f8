"""History lines: one at a time as data, or for many objects in one statement.

Statements here and in the neighbours are built once, with parameters: building one costs more than running it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from domain.errors import one_line
from domain.statetable import LineEffect
from store.schema import history, objects

LINES = sa.insert(history)
NO_ROW = "ignored: no row leads there"
NOT_OURS = "ignored: the action no longer owns the object"


def insert_lines_for(*which: sa.ColumnElement[bool], source: Any = None, to: Any = None) -> sa.Insert:
    """A statement that writes a line for each of these objects: by default from its status to the parameter `to`."""
    told = {
        "path": objects.c.path,
        "at": sa.bindparam("at", type_=history.c.at.type),
        "actor": sa.bindparam("actor", type_=sa.String),
        "action": sa.bindparam("action", type_=sa.String),
        "source": objects.c.status if source is None else source,
        "to": sa.bindparam("to", type_=sa.String) if to is None else to,
        "epoch": objects.c.epoch,
        "message": sa.bindparam("message", type_=sa.String),
        "effect": sa.bindparam("effect", type_=sa.String, value=LineEffect.APPLIED.value),
    }
    return sa.insert(history).from_select(list(told), sa.select(*told.values()).where(*which))


def history_line(
    path: str,
    at: datetime,
    actor: str,
    action: str,
    source: str,
    to: str,
    epoch: int,
    message: str = "",
    effect: LineEffect = LineEffect.APPLIED,
) -> dict[str, Any]:
    """One line, to be inserted together with others."""
    return {
        "path": path,
        "at": at,
        "actor": str(actor),
        "action": action,
        "source": source,
        "to": to,
        "epoch": epoch,
        "message": one_line(message),
        "effect": effect.value,
    }


def merge_info(info: dict[str, Any], news: dict[str, Any]) -> dict[str, Any]:
    """What is known with the news over it; a value None removes its key."""
    return {key: value for key, value in {**info, **news}.items() if value is not None}
