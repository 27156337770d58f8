"""History lines: one at a time as data, or for many objects in one statement."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from domain.errors import brief
from store.schema import history, objects


def record(
    connection: sa.Connection,
    which: sa.ColumnElement[bool],
    at: datetime,
    actor: str,
    action: str,
    to: str | None = None,
    message: str = "",
) -> None:
    """A line for each of these objects: from its previous status to the one it has, or from that one to `to`."""
    source, target = (objects.c.previous_status, objects.c.status) if to is None else (objects.c.status, sa.literal(to))
    told = {
        "path": objects.c.path,
        "at": sa.literal(at, history.c.at.type),
        "actor": sa.literal(str(actor)),
        "action": sa.literal(action),
        "source": source,
        "to": target,
        "epoch": objects.c.epoch,
        "message": sa.literal(brief(message)),
    }
    connection.execute(sa.insert(history).from_select(list(told), sa.select(*told.values()).where(which)))


def line(
    path: str, at: datetime, actor: str, action: str, source: str, to: str, epoch: int, message: str = ""
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
        "message": brief(message),
    }
