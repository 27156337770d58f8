"""Which store this is, and since when: an id for life, and an incarnation that every restore from a backup raises."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from domain import registry
from domain.errors import Category, Refused
from domain.model import Claim
from store.clock import now
from store.hooks import HooksByKind
from store.recovery import abandon
from store.schema import actions, locks, store_identity

RESTORED = "the store was restored from a backup while it ran; back to what it was, the cloud was not asked"

_IDENTITY = sa.select(store_identity.c.id, store_identity.c.incarnation, store_identity.c.since)


@dataclass(frozen=True)
class Identity:
    """The store's one line about itself."""

    id: str
    incarnation: int
    since: datetime


def identity(connection: sa.Connection) -> Identity:
    """Which store this is."""
    return Identity(*connection.execute(_IDENTITY).one())


def check_incarnation(connection: sa.Connection, claim: Claim) -> None:
    """Refuse a run that started before the store was restored: what it knows of the store may never have happened."""
    if claim.started is None:
        return
    found = identity(connection)
    if found.incarnation > 1 and claim.started <= found.since:
        raise Refused(
            Category.CONFLICT,
            f"the store was restored from a backup at {found.since:%Y-%m-%d %H:%M:%SZ}, after this run had started",
            f"look what there is now: starter history {claim.request.path}; then ask again",
        )


def mark_restored(connection: sa.Connection, hooks: HooksByKind) -> tuple[Identity, int]:
    """Raise the incarnation and end every action of the old one. Returns the new identity, and how many were open."""
    at, before = now(connection), identity(connection)
    after = Identity(before.id, before.incarnation + 1, at)
    connection.execute(sa.update(store_identity).values(incarnation=after.incarnation, since=at))
    left = sa.select(actions.c.path, actions.c.action, actions.c.run).where(actions.c.ended_at.is_(None))
    opened = connection.execute(left.order_by(actions.c.epoch)).all()
    for path, action, run in opened:
        abandon(connection, hooks, registry.owner_of(path, action), run, at, RESTORED)
    connection.execute(sa.delete(locks))  # whoever held them is of the old incarnation
    return after, len(opened)
