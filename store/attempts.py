"""History lines about requests that begin no action of their own: cancels, and what was refused."""

from __future__ import annotations

import sqlalchemy as sa

from domain.requests import AccessAttempt
from domain.statetable import NONE, Actor, LineEffect
from store.dbtime import resolve_write_time
from store.history import history_line
from store.rows import find_object
from store.status import record_lines


def record_access_attempt(connection: sa.Connection, attempt: AccessAttempt) -> None:
    """Writes the line; the object stays as it is."""
    row = find_object(connection, attempt.path)
    status, epoch = (row.status, row.epoch) if row else (NONE, 0)
    at = resolve_write_time(connection, attempt.at)
    line = history_line(
        attempt.path, at, Actor.USER, attempt.verb, status, status, epoch, attempt.message, LineEffect.IGNORED
    )
    record_lines(connection, [line])
