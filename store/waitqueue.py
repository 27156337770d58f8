"""Wait queues of hidden actions: who is ahead, and closed queues. The locks themselves are the queue."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from domain import wire
from domain.locks import EXCLUSIVE_MODES, LockMode
from domain.model import LockHolder
from domain.waitqueue import QueueCommand
from store.advisory import acquire_advisory_locks
from store.schema import LockRow, locks

_SELECT_HOLDING_RUNS = sa.select(locks.c.run).where(locks.c.run.in_(sa.bindparam("runs", expanding=True))).distinct()
_my_locks, _other_locks = locks.alias("mine"), locks.alias("other")
_SELECT_WAITING_OWNERS = (
    sa.select(_other_locks.c.owner)
    .join(_my_locks, _my_locks.c.path == _other_locks.c.path)
    .where(
        _my_locks.c.owner == sa.bindparam("me"),
        _my_locks.c.run == sa.bindparam("by"),
        _other_locks.c.run != sa.bindparam("by"),
        _my_locks.c.mode.in_(EXCLUSIVE_MODES) | _other_locks.c.mode.in_(EXCLUSIVE_MODES),
    )
    .distinct()
)
_SELECT_QUEUE = (
    sa.select(locks)
    .where(locks.c.path == sa.bindparam("at_path"), locks.c.mode.in_([*EXCLUSIVE_MODES, LockMode.CLOSED]))
    .order_by(locks.c.since)
)


def filter_unreleased_holders(connection: sa.Connection, holders: Sequence[LockHolder]) -> list[LockHolder]:
    """Returns those holders that have not released their locks."""
    held = set(connection.execute(_SELECT_HOLDING_RUNS, {"runs": [holder.run for holder in holders]}).scalars())
    return [holder for holder in holders if holder.run in held]


def list_waiting_behind(connection: sa.Connection, owner: str, run: str) -> list[str]:
    """Returns owners that may wait for this run: their locks on its paths conflict with its own."""
    return list(connection.execute(_SELECT_WAITING_OWNERS, {"me": owner, "by": run}).scalars())


def close_wait_queue(connection: sa.Connection, order: QueueCommand) -> list[LockHolder]:
    """Closes an object's wait queue to new requests. Returns who is in it. Idempotent per run."""
    owner = wire.companion_id(order.path, wire.DRAIN)
    acquire_advisory_locks(connection, {order.path: LockMode.X})  # nobody joins the queue while it is read
    rows = [LockRow(*row) for row in connection.execute(_SELECT_QUEUE, {"at_path": order.path})]
    mine = [row for row in rows if row.mode == LockMode.CLOSED]
    if not any(row.run == order.run or row.since > order.at for row in mine):  # a later run's: this is dead
        gone = [row.run for row in mine]  # an older run of the same workflow ID is dead
        connection.execute(sa.delete(locks).where(locks.c.owner == owner, locks.c.run.in_(gone)))
        told = {"path": order.path, "owner": owner, "run": order.run, "since": order.at}
        connection.execute(sa.insert(locks).values(**told, mode=LockMode.CLOSED.value, action=wire.DRAIN))
    return [
        LockHolder(owner=row.owner, action=row.action, run=row.run, since=row.since)
        for row in rows
        if row.mode != LockMode.CLOSED
    ]


def open_wait_queue(connection: sa.Connection, order: QueueCommand) -> None:
    """Opens an object's wait queue to requests again."""
    owner = wire.companion_id(order.path, wire.DRAIN)
    connection.execute(sa.delete(locks).where(locks.c.owner == owner, locks.c.run == order.run))
