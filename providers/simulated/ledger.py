"""The ledger of a simulated provider: its objects, and every order carried out on them.

A token has one effect, however often its order arrives. Each object, even an absent one, keeps its highest epoch;
orders with a lower one are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Generic, TypeVar

import sqlalchemy as sa

from providers.epochs import late_order_error
from providers.simulated.tables import Number, PathText, metadata
from providers.tables import at_or_below_condition

ABSENT = "absent"  # never created, or removed
PAGE_SIZE = 1_000


@dataclass(frozen=True, kw_only=True)
class LedgerObject:
    """One object of the ledger. A provider adds columns with defaults in a subclass."""

    path: str
    kind: str
    state: str = ABSENT
    effects: int = 0  # number of orders that changed it
    epoch: int = 0  # the highest epoch of its orders


@dataclass(frozen=True)
class LedgerOrder:
    """An order as the ledger stores it. `always_has_effect`: even if nothing changes, like a reboot."""

    path: str
    kind: str
    verb: str
    token: str
    epoch: int
    always_has_effect: bool = False


LedgerEntryT = TypeVar("LedgerEntryT", bound=LedgerObject)


class Ledger(Generic[LedgerEntryT]):
    """The two tables of one provider with their statements, which are built once."""

    def __init__(self, row: type[LedgerEntryT], objects: sa.Table, orders: sa.Table) -> None:
        self._row = row
        self._names = [field.name for field in fields(row)]
        self._objects = objects
        self._keep = sa.insert(orders)
        self._insert = sa.insert(objects)
        self._update = sa.update(objects).where(objects.c.path == sa.bindparam("at_path"))
        self._at = self.build_rows_query().where(objects.c.path == sa.bindparam("at_path"))
        self._done = sa.select(orders.c.number).where(orders.c.token == sa.bindparam("given")).limit(1)
        self._verbs = sa.select(orders.c.verb).where(orders.c.path == sa.bindparam("at_path")).order_by(orders.c.number)

    def build_rows_query(self) -> sa.Select[*tuple[object, ...]]:
        """Returns a query for whole rows, to be read by `read_rows`."""
        return sa.select(*(self._objects.c[name] for name in self._names))

    def read_rows(self, connection: sa.Connection, query: sa.Select[*tuple[object, ...]]) -> list[LedgerEntryT]:
        return [self._row(**row._mapping) for row in connection.execute(query)]

    def find_object(self, connection: sa.Connection, path: str, kind: str = "") -> LedgerEntryT:
        """Returns an object; an absent one if there is none."""
        row = connection.execute(self._at, {"at_path": path}).one_or_none()
        return self._row(**row._mapping) if row else self._row(path=path, kind=kind)

    def read_page(self, connection: sa.Connection, prefix: str, after: str) -> list[LedgerEntryT]:
        """Returns a page of the objects at or below a path, ordered by path, after a path."""
        path = self._objects.c.path
        start = path > after if after >= prefix else path >= prefix
        query = self.build_rows_query().where(
            self._objects.c.state != ABSENT, start, at_or_below_condition(path, prefix)
        )
        query = query.where(path < f"{prefix};") if prefix else query  # an upper bound, or the index is read to its end
        return self.read_rows(connection, query.order_by(path).limit(PAGE_SIZE))

    def carry_out_order_once(
        self, connection: sa.Connection, order: LedgerOrder, change: Callable[[LedgerEntryT], LedgerEntryT]
    ) -> LedgerEntryT:
        """Carries out an order, once per token. Raises what `change` raises, or Superseded for a lower epoch."""
        old = self.find_object(connection, order.path, order.kind)
        if self.is_order_done(connection, order, old):
            return old
        new = replace(change(old), epoch=order.epoch)
        effect = new != replace(old, epoch=order.epoch) or order.always_has_effect
        if effect or order.epoch > old.epoch:
            self.write_object(connection, replace(new, effects=old.effects + effect))
        entry = {"path": order.path, "verb": order.verb, "token": order.token, "effect": effect}
        connection.execute(self._keep, entry)
        return new

    def is_order_done(self, connection: sa.Connection, order: LedgerOrder, row: LedgerEntryT) -> bool:
        """Tells whether the order was carried out before, by its token. Raises Superseded for a lower epoch."""
        if late := late_order_error(order.path, order.epoch, row.epoch):
            raise late
        return connection.execute(self._done, {"given": order.token}).first() is not None

    def list_carried_out_verbs(self, connection: sa.Connection, path: str) -> list[str]:
        """Returns the verbs carried out on an object, in order."""
        return [str(verb) for verb in connection.execute(self._verbs, {"at_path": path}).scalars()]

    def write_object(self, connection: sa.Connection, row: LedgerEntryT) -> None:
        """Writes an object as it is now, without an order."""
        values = vars(row)
        if connection.execute(self._update, {**values, "at_path": row.path}).rowcount == 0:
            connection.execute(self._insert, values)


def ledger_tables(objects: str, orders: str, *own: sa.Column[object] | sa.Index) -> tuple[sa.Table, sa.Table]:
    """Creates the definitions of a ledger's tables, with a provider's own columns and indexes."""
    return (
        sa.Table(
            objects,
            metadata,
            sa.Column("path", PathText, primary_key=True),
            sa.Column("kind", sa.String, nullable=False),
            sa.Column("state", sa.String, nullable=False),
            sa.Column("effects", sa.Integer, nullable=False),
            sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0"),
            *own,
        ),
        sa.Table(  # carried-out orders, in the order of their answers
            orders,
            metadata,
            sa.Column("number", Number, primary_key=True, autoincrement=True),
            sa.Column("path", PathText, nullable=False),
            sa.Column("verb", sa.String, nullable=False),
            sa.Column("token", sa.String, nullable=False),
            sa.Column("effect", sa.Boolean, nullable=False),
            sa.Index(f"{orders}_of_token", "token"),
            sa.Index(f"{orders}_of_path", "path", "number"),
        ),
    )
