"""The store's identity: an id that never changes, and an incarnation that each restore from a backup raises."""

from __future__ import annotations

import sqlalchemy as sa

from domain import registry
from domain.errors import Category, Refused
from domain.model import BeginRequest
from domain.statetable import RESTORED
from store.binding import check_same_store
from store.dbtime import read_database_time
from store.hooks import HooksByKind
from store.recovery import abandon_run
from store.schema import StoreIdentityRow, actions, history, locks, store_identity

RESTORED_MESSAGE = f"the store was restored from a backup while it ran; {RESTORED}, without asking the cloud"

_SELECT_IDENTITY = sa.select(store_identity)


def read_identity(connection: sa.Connection) -> StoreIdentityRow:
    """Returns the store's id, incarnation and the time of the last restore."""
    return StoreIdentityRow(*connection.execute(_SELECT_IDENTITY).one())


def check_incarnation(connection: sa.Connection, claim: BeginRequest, identity: StoreIdentityRow) -> None:
    """Refuses a run that started before the store was restored: the restored store may lack what it did."""
    if claim.started is None:
        return
    check_same_store(connection, identity)
    if identity.incarnation > 1 and claim.started <= identity.since:
        raise Refused(
            Category.CONFLICT,
            f"the store was restored from a backup at {identity.since:%Y-%m-%d %H:%M:%SZ}, after this run had started",
            f"look at its present status: starter history {claim.request.path}; then ask again",
        )


def mark_restored(connection: sa.Connection, hooks: HooksByKind) -> tuple[StoreIdentityRow, int]:
    """Raises the incarnation and abandons every open action. Returns the new identity and their number."""
    at, before = read_database_time(connection), read_identity(connection)
    after = StoreIdentityRow(before.id, before.incarnation + 1, at)
    connection.execute(sa.update(store_identity).values(incarnation=after.incarnation, since=at))
    left = sa.select(actions.c.path, actions.c.action, actions.c.run).where(actions.c.ended_at.is_(None))
    opened = connection.execute(left.order_by(actions.c.epoch)).all()
    for path, action, run in opened:
        abandon_run(connection, hooks, registry.workflow_id_of(path, action), run, at, RESTORED_MESSAGE)
    # Transactions of the server that the backup came from mean nothing here, and must not come after those to be.
    connection.execute(sa.update(history).values(xid=0))
    connection.execute(sa.delete(locks))  # all holders belong to the old incarnation
    return after, len(opened)
