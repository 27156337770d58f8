"""Wait queues of hidden actions: who is ahead, and closed queues. The locks themselves are the queue."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from domain import wire
from domain.locks import EXCLUSIVE, Mode
from domain.model import Holder, QueueCommand
from store.rows import read_all
from store.schema import LockRow, locks
from store.transaction import Store, transaction
from store.turns import serialise

_STILL = sa.select(locks.c.run).where(locks.c.run.in_(sa.bindparam("runs", expanding=True))).distinct()
_mine, _other = locks.alias("mine"), locks.alias("other")
_BESIDE = (
    sa.select(_other.c.owner)
    .join(_mine, _mine.c.path == _other.c.path)
    .where(
        _mine.c.owner == sa.bindparam("me"),
        _mine.c.run == sa.bindparam("by"),
        _other.c.run != sa.bindparam("by"),
        _mine.c.mode.in_(EXCLUSIVE) | _other.c.mode.in_(EXCLUSIVE),
    )
    .distinct()
)
_AT = (
    sa.select(locks)
    .where(locks.c.path == sa.bindparam("at_path"), locks.c.mode.in_([*EXCLUSIVE, Mode.CLOSED]))
    .order_by(locks.c.since)
)


def still_held(connection: sa.Connection, holders: Sequence[Holder]) -> list[Holder]:
    """Returns those holders that have not released their locks."""
    held = set(connection.execute(_STILL, {"runs": [holder.run for holder in holders]}).scalars())
    return [holder for holder in holders if holder.run in held]


def waiting_behind(connection: sa.Connection, owner: str, run: str) -> list[str]:
    """Returns owners that may wait for this run: their locks on its paths conflict with its own."""
    return list(connection.execute(_BESIDE, {"me": owner, "by": run}).scalars())


def close_queue(connection: sa.Connection, order: QueueCommand) -> list[Holder]:
    """Closes an object's wait queue to new requests. Returns who is in it. Idempotent per run."""
    owner = wire.companion(order.path, wire.DRAIN)
    serialise(connection, {order.path: Mode.X})  # nobody joins the queue while it is read
    rows = read_all(LockRow, connection.execute(_AT, {"at_path": order.path}))
    mine = [row for row in rows if row.mode == Mode.CLOSED]
    if not any(row.run == order.run or row.since > order.at for row in mine):  # a later run's: this is dead
        gone = [row.run for row in mine]  # an older run of the same workflow ID is dead
        connection.execute(sa.delete(locks).where(locks.c.owner == owner, locks.c.run.in_(gone)))
        told = {"path": order.path, "owner": owner, "run": order.run, "since": order.at}
        connection.execute(sa.insert(locks).values(**told, mode=Mode.CLOSED.value, action=wire.DRAIN))
    return [
        Holder(owner=row.owner, action=row.action, run=row.run, since=row.since)
        for row in rows
        if row.mode != Mode.CLOSED
    ]


def open_queue(connection: sa.Connection, order: QueueCommand) -> None:
    """Opens an object's wait queue to requests again."""
    owner = wire.companion(order.path, wire.DRAIN)
    connection.execute(sa.delete(locks).where(locks.c.owner == owner, locks.c.run == order.run))


class SqlWaitQueue(Store):
    """The wait-queue methods of `domain.ports.Inventory`, on SQLite or PostgreSQL."""

    still_held = transaction(still_held)
    close_queue = transaction(close_queue)
    open_queue = transaction(open_queue)
