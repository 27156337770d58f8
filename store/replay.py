"""Recorded actions in their order, page by page: for asking what another policy would have refused."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa

from domain.identities import Principal
from domain.policycases import RecordedAction
from store.schema import actions

PAGE_SIZE = 500
_COLUMNS = ("epoch", "path", "action", "force", "requested_by", "principal", "began_at")
_NEXT_ACTIONS = (
    sa.select(*(actions.c[name] for name in _COLUMNS))
    .where(actions.c.epoch > sa.bindparam("after"))
    .order_by(actions.c.epoch)
    .limit(PAGE_SIZE)
)


def iterate_actions(connection: sa.Connection) -> Iterator[RecordedAction]:
    """Yields all actions, the oldest first. One page at a time is in memory."""
    after = 0
    while page := connection.execute(_NEXT_ACTIONS, {"after": after}).all():
        for row in page:
            principal = Principal.model_validate(row.principal) if row.principal else None
            yield RecordedAction(
                path=row.path,
                action=row.action,
                force=row.force,
                requested_by=row.requested_by,
                principal=principal,
                began_at=row.began_at,
            )
        after = page[-1].epoch
