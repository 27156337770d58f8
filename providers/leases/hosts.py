"""Simulated hosts: stores which reservation holds which host, outside the inventory, like a real site.

The site itself refuses a second tenant of a whole host. Faults come from the simulated clouds' script: cloud `hosts`,
the pool as region, a host or reservation as VM, `create` to hand over and `terminate` to take back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import sqlalchemy as sa

from domain.errors import Rejected
from domain.leases.messages import Holding, HostTenant
from domain.paths import name_of
from domain.ports import Transactions
from providers.epochs import late_order
from providers.simulated.provider import SimulatedProvider
from providers.simulated.tables import PathText, metadata
from providers.tables import below

CSP = "hosts"
PAGE = 1_000

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

_SEEN = sa.select(generations.c.generation).where(generations.c.reservation == sa.bindparam("which")).with_for_update()
_FIRST_SEEN = sa.insert(generations)
_SAW = sa.update(generations).where(generations.c.reservation == sa.bindparam("which"))
_LAST = sa.select(orders).where(orders.c.token == sa.bindparam("mine")).with_for_update()
_FIRST = sa.insert(orders)
_NOTE = sa.update(orders).where(orders.c.token == sa.bindparam("mine"))
_HAS = sa.select(tenants.c.host, tenants.c.units).where(tenants.c.token == sa.bindparam("mine"))
_GIVE = sa.insert(tenants)
_TAKE_BACK = sa.delete(tenants).where(tenants.c.token == sa.bindparam("mine"))
_OTHERS = (
    sa.select(tenants.c.reservation)
    .where(tenants.c.host == sa.bindparam("at_host"), tenants.c.token != sa.bindparam("mine"))
    .limit(1)
)
_TENANTS = sa.select(
    *(tenants.c[name] for name in ("host", "reservation", "units", "token")),
    sa.func.coalesce(generations.c.generation, 0).label("generation"),
).outerjoin(generations, generations.c.reservation == tenants.c.reservation)
_LIVING = (
    _TENANTS.where(
        sa.tuple_(tenants.c.reservation, tenants.c.host)
        > sa.tuple_(sa.bindparam("last_reservation", type_=PathText), sa.bindparam("last_host", type_=PathText))
    )
    .order_by(tenants.c.reservation, tenants.c.host)
    .limit(PAGE)
)
_ALL_BACK = sa.delete(tenants).where(tenants.c.reservation == sa.bindparam("which"))
_ALONE = _OTHERS.where(tenants.c.whole)  # who is in the way of somebody who would share


class SimulatedHosts:
    """The simulated host provider: `domain.leases.messages.Hosts`, stored in a database."""

    def __init__(self, database: Transactions) -> None:
        self._provider = SimulatedProvider(CSP, database)

    async def hold(self, holding: Holding) -> None:
        """Makes the reservation hold exactly these hosts. A stale order changes nothing."""
        verb, pool = "create" if holding.hosts else "terminate", holding.reservation.split(":")[1]
        paths = (holding.reservation, *holding.hosts)
        await self._provider.call(verb, pool, paths, partial(_hold, holding=holding))

    async def take_back(self, reservation: str, generation: int) -> int:
        """Whatever it holds, under whatever token."""
        work = partial(_take_back, reservation=reservation, generation=generation)
        return await self._provider.call("terminate", reservation.split(":")[1], (reservation,), work)

    async def living(self, prefix: str, after: tuple[str, str]) -> list[HostTenant]:
        last = {"last_reservation": after[0], "last_host": after[1]}
        query = _LIVING.where(below(tenants.c.reservation, prefix))
        return await self._provider.run(
            lambda connection: [HostTenant(**row._mapping) for row in connection.execute(query, last)]
        )

    async def held(self, reservations: Sequence[str]) -> list[HostTenant]:
        """Returns what these reservations hold."""
        query = _TENANTS.where(tenants.c.reservation.in_(reservations))
        return await self._provider.run(
            lambda connection: [HostTenant(**row._mapping) for row in connection.execute(query)]
        )

    async def books(self) -> list[HostTenant]:
        """Everything that is held now."""
        return await self.tenants("")

    async def tenants(self, prefix: str) -> list[HostTenant]:
        """What is held by reservations at or below a path."""
        found: list[HostTenant] = []
        while page := await self.living(prefix, (found[-1].reservation, found[-1].host) if found else ("", "")):
            found += page
        return found

    async def calls(self, reservation: str) -> int:
        """Returns how many orders for a reservation had an effect, over all of its generations."""
        query = sa.select(sa.func.sum(orders.c.calls)).where(orders.c.token.startswith(f"{reservation}#"))
        return await self._provider.run(lambda connection: int(connection.execute(query).scalar_one() or 0))


def _take_back(connection: sa.Connection, reservation: str, generation: int) -> int:
    _refuse_if_outdated(connection, reservation, generation)
    return connection.execute(_ALL_BACK, {"which": reservation}).rowcount


def _hold(connection: sa.Connection, holding: Holding) -> None:
    _refuse_if_outdated(connection, holding.reservation, holding.generation)
    mine = {"mine": holding.token}
    known = connection.execute(_LAST, mine).mappings().one_or_none()
    if known and known["version"] > holding.version:
        return
    for host in holding.hosts:
        _refuse_if_taken(connection, host, holding)
    before = {str(host): int(units) for host, units in connection.execute(_HAS, mine)}
    effect = before != holding.hosts
    if effect:
        connection.execute(_TAKE_BACK, mine)
        if holding.hosts:
            connection.execute(_GIVE, [_tenant_row(holding, host, units) for host, units in holding.hosts.items()])
    new = {"version": holding.version, "calls": (known["calls"] if known else 0) + int(effect)}
    connection.execute(*((_NOTE, mine | new) if known else (_FIRST, {"token": holding.token, **new})))


def _refuse_if_outdated(connection: sa.Connection, reservation: str, generation: int) -> None:
    """A lease of that name that came later has its own hosts: nobody gives or takes them for one that is gone."""
    seen = connection.execute(_SEEN, {"which": reservation}).scalar_one_or_none()
    if seen is None:
        connection.execute(_FIRST_SEEN, {"reservation": reservation, "generation": generation})
    elif generation > seen:
        connection.execute(_SAW, {"which": reservation, "generation": generation})
    elif late := late_order(reservation, generation, seen, "generation"):
        raise late


def _refuse_if_taken(connection: sa.Connection, host: str, holding: Holding) -> None:
    others = {"at_host": host, "mine": holding.token}
    if (other := connection.execute(_OTHERS if holding.whole else _ALONE, others).scalar()) is not None:
        raise Rejected(f"host {name_of(host)} is still held by {other}")


def _tenant_row(holding: Holding, host: str, units: int) -> dict[str, object]:
    return {
        "host": host,
        "token": holding.token,
        "reservation": holding.reservation,
        "units": units,
        "whole": holding.whole,
    }
