"""Refusals because of locks: who holds what an action needs, and since when."""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from domain import registry
from domain.errors import Category
from domain.limits import HOLDERS_LISTED, HOLDERS_SHOWN
from domain.locks import HeldLock
from domain.model import ACTION_NAME_KEY, LockHolder, Refusal
from domain.wire import object_path_of
from store.schema import actions

_SELECT_GRANTS_OF_RUNS = (
    sa.select(actions.c.path, actions.c.action, actions.c.grant)
    .where(actions.c.run.in_(sa.bindparam("runs", expanding=True)))
    .order_by(actions.c.epoch)
)


def distinct_holders(holds: list[HeldLock]) -> list[LockHolder]:
    """Returns each lock holder once, however many locks it holds."""
    holders = {
        hold.owner: LockHolder(owner=hold.owner, action=hold.action, run=hold.run, since=hold.since) for hold in holds
    }
    return list(holders.values())


def conflict_refusal(connection: sa.Connection, holds: list[HeldLock]) -> Refusal:
    """Returns the refusal that names who holds the locks in the way."""
    holders = distinct_holders(holds)
    listed = holders[:HOLDERS_LISTED]
    shown = listed[:HOLDERS_SHOWN]
    told = "; ".join(f"{holder.owner}: {holder.action} since {holder.since:%Y-%m-%d %H:%M:%SZ}" for holder in shown)
    if len(holders) > len(shown):
        told += f"; and {len(holders) - len(shown)} more"
    told += _describe_named_holders(connection, shown)
    return Refusal(
        category=Category.CONFLICT,
        message=f"409 Conflict: other action currently happening on {told}",
        hint=f"{registry.busy_hint(holders[0].owner)}wait for it with: starter wait {holders[0].owner}",
        holders=listed,
    )


def _describe_named_holders(connection: sa.Connection, holders: Iterable[LockHolder]) -> str:
    """Lists actions that have names of their own, for the refusal: `; locked by deploys d1, d2`."""
    runs = [holder.run for holder in holders if _has_own_name(holder)]
    if not runs:
        return ""
    names: dict[str, list[str]] = {}
    for path, action, grant in connection.execute(_SELECT_GRANTS_OF_RUNS, {"runs": runs}):
        names.setdefault(action, []).append(str(grant["details"].get(ACTION_NAME_KEY, path)))
    told = (f"{action}{'s' if len(some) > 1 else ''} {', '.join(some)}" for action, some in names.items())
    return f"; locked by {' and '.join(told)}" if names else ""


def _has_own_name(holder: LockHolder) -> bool:
    return any(
        verb.has_own_name
        for verb in registry.kind_at(object_path_of(holder.owner)).verbs
        if verb.action == holder.action
    )
