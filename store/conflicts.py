"""Locks in the way of an action: who holds what it needs, and since when."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import starmap

import sqlalchemy as sa

from domain import registry
from domain.errors import Category
from domain.limits import HOLDERS_LISTED, HOLDERS_SHOWN
from domain.locks import EXCLUSIVE_MODES, HeldLock, LockMode, sort_held_locks
from domain.model import ACTION_NAME_KEY, BeginRequest, LockHolder, Refusal
from domain.wire import object_path_of
from store.hooks import HooksByKind
from store.queries import lock_from_row
from store.recovery import CUT_OFF_MESSAGE, abandon_run
from store.schema import LockRow, actions, locks

_SELECT_GRANTS_OF_RUNS = (
    sa.select(actions.c.path, actions.c.action, actions.c.grant)
    .where(actions.c.run.in_(sa.bindparam("runs", expanding=True)))
    .order_by(actions.c.epoch)
)
_SELECT_NEWER_RUNS = sa.select(actions.c.run).where(
    actions.c.run.in_(sa.bindparam("runs", expanding=True)), actions.c.started_at > sa.bindparam("started")
)
# Reads only conflicting locks and our own: a parent has one IX holder for each active child.
_SELECT_LOCKS_IN_THE_WAY = (
    sa.select(locks)
    .where(
        locks.c.path.in_(sa.bindparam("exclusive", expanding=True))
        | (locks.c.path.in_(sa.bindparam("shared", expanding=True)) & (locks.c.mode != LockMode.IX.value))
    )
    .order_by(locks.c.path, locks.c.owner)
)


def clear_way(
    connection: sa.Connection,
    hooks: HooksByKind,
    claim: BeginRequest,
    workflow_id: str,
    want: dict[str, LockMode],
) -> Refusal | list[LockHolder]:
    """Abandons older runs of our own workflow ID: Temporal runs one at a time, so they are dead.

    Returns the actions to wait for; or a refusal, if other actions are in the way, or a later run of our own ID: then
    this run is the dead one.
    """
    held = _read_locks_in_the_way(connection, want)
    own = list(dict.fromkeys(hold.run for hold in held if hold.owner == workflow_id))
    asked_for = {"runs": own, "started": claim.started}
    later = set(connection.execute(_SELECT_NEWER_RUNS, asked_for).scalars() if own and claim.started else ())
    others, ahead = sort_held_locks(want, [hold for hold in held if hold.owner != workflow_id])
    in_the_way = [hold for hold in held if hold.run in later] or others
    answer = conflict_refusal(connection, in_the_way) if in_the_way else distinct_holders(ahead)
    for run in own if not later else ():
        abandon_run(connection, hooks, workflow_id, run, claim.at, CUT_OFF_MESSAGE)
    return answer


def refuse_dry_run_beside_action(connection: sa.Connection, claim: BeginRequest) -> Refusal | None:
    """Refuses a dry run while an action on the object is open. A real begin takes that action for dead, because
    Temporal starts no second run of a workflow ID."""
    path, owner = claim.request.path, registry.workflow_id_of(claim.request.path, claim.request.action)
    mine = [hold for hold in _read_locks_in_the_way(connection, {path: LockMode.X}) if hold.owner == owner]
    return conflict_refusal(connection, mine) if mine and not claim.request.force else None


def _read_locks_in_the_way(connection: sa.Connection, want: dict[str, LockMode]) -> list[HeldLock]:
    exclusive = [path for path, mode in want.items() if mode in EXCLUSIVE_MODES]
    shared = [path for path, mode in want.items() if mode not in EXCLUSIVE_MODES]
    rows = connection.execute(_SELECT_LOCKS_IN_THE_WAY, {"exclusive": exclusive, "shared": shared})
    return [lock_from_row(row) for row in starmap(LockRow, rows)]


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
