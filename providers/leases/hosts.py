"""Simulated hosts: stores which reservation holds which host, outside the inventory, like a real site.

The site itself refuses a second tenant of a whole host. In a rule of the fault script the
cloud is `hosts`, the region is the pool, and the VM is a host or a reservation; `create` is the hand-over, `terminate`
the taking back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import sqlalchemy as sa

from domain.errors import Rejected
from domain.leases.messages import DesiredHolding, HeldHost
from domain.paths import name_of
from domain.ports import TransactionRunner
from providers.epochs import late_order_error
from providers.simulated.provider import SimulatedProvider
from providers.simulated.tables import PathText, metadata
from providers.tables import at_or_below_condition

PROVIDER_NAME = "hosts"
PAGE_SIZE = 1_000

generations = sa.Table(  # the latest generation of each reservation; orders of earlier ones are refused
    "sim_host_generations",
    metadata,
    sa.Column("reservation", PathText, primary_key=True),
    sa.Column("generation", sa.BigInteger, nullable=False),
)
orders = sa.Table(
    "sim_host_orders",
    metadata,
    sa.Column("token", sa.String, primary_key=True),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("calls", sa.Integer, nullable=False),
)
tenants = sa.Table(
    "sim_host_tenants",
    metadata,
    sa.Column("host", PathText, primary_key=True),
    sa.Column("token", sa.String, primary_key=True),
    sa.Column("reservation", PathText, nullable=False),
    sa.Column("units", sa.Integer, nullable=False),
    sa.Column("whole", sa.Boolean, nullable=False),
    sa.Index("sim_host_tenants_of_token", "token"),
    sa.Index("sim_host_tenants_of_reservation", "reservation", "host"),
)

_LOCK_GENERATION = (
    sa.select(generations.c.generation).where(generations.c.reservation == sa.bindparam("which")).with_for_update()
)
_INSERT_GENERATION = sa.insert(generations)
_UPDATE_GENERATION = sa.update(generations).where(generations.c.reservation == sa.bindparam("which"))
_LOCK_ORDER = sa.select(orders).where(orders.c.token == sa.bindparam("mine")).with_for_update()
_INSERT_ORDER = sa.insert(orders)
_UPDATE_ORDER = sa.update(orders).where(orders.c.token == sa.bindparam("mine"))
_SELECT_TENANCIES = sa.select(tenants.c.host, tenants.c.units).where(tenants.c.token == sa.bindparam("mine"))
_INSERT_TENANCY = sa.insert(tenants)
_DELETE_TENANCIES = sa.delete(tenants).where(tenants.c.token == sa.bindparam("mine"))
_SELECT_OTHER_TENANT = (
    sa.select(tenants.c.reservation)
    .where(tenants.c.host == sa.bindparam("at_host"), tenants.c.token != sa.bindparam("mine"))
    .limit(1)
)
_TENANTS = sa.select(
    *(tenants.c[name] for name in ("host", "reservation", "units", "token")),
    sa.func.coalesce(generations.c.generation, 0).label("generation"),
).outerjoin(generations, generations.c.reservation == tenants.c.reservation)
_SELECT_LIVING = (
    _TENANTS.where(
        sa.tuple_(tenants.c.reservation, tenants.c.host)
        > sa.tuple_(sa.bindparam("last_reservation", type_=PathText), sa.bindparam("last_host", type_=PathText))
    )
    .order_by(tenants.c.reservation, tenants.c.host)
    .limit(PAGE_SIZE)
)
_DELETE_ALL_TENANCIES = sa.delete(tenants).where(tenants.c.reservation == sa.bindparam("which"))
_SELECT_EXCLUSIVE_TENANT = _SELECT_OTHER_TENANT.where(tenants.c.whole)  # who is in the way of somebody who would share


class SimulatedHosts:
    """The simulated host provider: `domain.leases.messages.HostProvider`, stored in a database."""

    hands_over_at_once = True

    def __init__(self, database: TransactionRunner) -> None:
        self._provider = SimulatedProvider(PROVIDER_NAME, database)

    async def set_reservation_hosts(self, holding: DesiredHolding) -> None:
        """Makes the reservation hold exactly these hosts. A stale order changes nothing."""
        verb, pool = "create" if holding.hosts else "terminate", holding.reservation.split(":")[1]
        paths = (holding.reservation, *holding.hosts)
        await self._provider.perform_call(verb, pool, paths, partial(_set_reservation_hosts, holding=holding))

    async def take_back_hosts(self, reservation: str, generation: int) -> int:
        """Whatever it holds, under whatever token."""
        work = partial(_take_back_hosts, reservation=reservation, generation=generation)
        return await self._provider.perform_call("terminate", reservation.split(":")[1], (reservation,), work)

    async def list_existing_objects(self, prefix: str, after: tuple[str, str]) -> list[HeldHost]:
        last = {"last_reservation": after[0], "last_host": after[1]}
        query = _SELECT_LIVING.where(at_or_below_condition(tenants.c.reservation, prefix))
        return await self._provider.run_transaction(
            lambda connection: [HeldHost(**row._mapping) for row in connection.execute(query, last)]
        )

    async def list_held_hosts(self, reservations: Sequence[str]) -> list[HeldHost]:
        """Returns what these reservations hold."""
        query = _TENANTS.where(tenants.c.reservation.in_(reservations))
        return await self._provider.run_transaction(
            lambda connection: [HeldHost(**row._mapping) for row in connection.execute(query)]
        )

    async def count_effective_orders(self, reservation: str) -> int:
        """Returns how many orders for a reservation had an effect, over all of its generations."""
        query = sa.select(sa.func.sum(orders.c.calls)).where(orders.c.token.startswith(f"{reservation}#"))
        return await self._provider.run_transaction(lambda connection: int(connection.execute(query).scalar_one() or 0))


def _take_back_hosts(connection: sa.Connection, reservation: str, generation: int) -> int:
    _refuse_if_outdated(connection, reservation, generation)
    return connection.execute(_DELETE_ALL_TENANCIES, {"which": reservation}).rowcount


def _set_reservation_hosts(connection: sa.Connection, holding: DesiredHolding) -> None:
    _refuse_if_outdated(connection, holding.reservation, holding.generation)
    mine = {"mine": holding.token}
    row = connection.execute(_LOCK_ORDER, mine).mappings().one_or_none()
    if row and row["version"] > holding.version:
        return
    for host in holding.hosts:
        _refuse_if_taken(connection, host, holding)
    before = {str(host): int(units) for host, units in connection.execute(_SELECT_TENANCIES, mine)}
    effect = before != holding.hosts
    if effect:
        connection.execute(_DELETE_TENANCIES, mine)
        if holding.hosts:
            ours = {"token": holding.token, "reservation": holding.reservation, "whole": holding.whole}
            rows = [{"host": host, "units": units, **ours} for host, units in holding.hosts.items()]
            connection.execute(_INSERT_TENANCY, rows)
    new = {"version": holding.version, "calls": (row["calls"] if row else 0) + int(effect)}
    connection.execute(*((_UPDATE_ORDER, mine | new) if row else (_INSERT_ORDER, {"token": holding.token, **new})))


def _refuse_if_outdated(connection: sa.Connection, reservation: str, generation: int) -> None:
    """A lease of that name that came later has its own hosts: nobody gives or takes them for one that is gone."""
    seen = connection.execute(_LOCK_GENERATION, {"which": reservation}).scalar_one_or_none()
    if seen is None:
        connection.execute(_INSERT_GENERATION, {"reservation": reservation, "generation": generation})
    elif generation > seen:
        connection.execute(_UPDATE_GENERATION, {"which": reservation, "generation": generation})
    elif late := late_order_error(reservation, generation, seen, "generation"):
        raise late


def _refuse_if_taken(connection: sa.Connection, host: str, holding: DesiredHolding) -> None:
    in_the_way = _SELECT_OTHER_TENANT if holding.whole else _SELECT_EXCLUSIVE_TENANT
    other = connection.execute(in_the_way, {"at_host": host, "mine": holding.token}).scalar()
    if other is not None:
        raise Rejected(f"host {name_of(host)} is still held by {other}")
