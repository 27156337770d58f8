"""The ledger of the backends: wanted services, their instances, and the last observations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import sqlalchemy as sa

from domain.errors import Superseded
from domain.paths import ancestor_paths
from domain.ports import TransactionRunner
from domain.services.definition import Node
from domain.services.ports import ServiceOrder
from domain.services.rollout import ServiceFacts
from providers.batch import GroupCommit
from providers.epochs import late_order_error
from providers.tables import create_missing_tables

T = TypeVar("T")

PAGE_SIZE = 1_000
metadata = sa.MetaData()
PathColumn = sa.String(2_000).with_variant(sa.String(2_000, collation="C"), "postgresql")  # sorted by bytes everywhere

services = sa.Table(
    "run_services",
    metadata,
    sa.Column("path", PathColumn, primary_key=True),
    sa.Column("backend", sa.String(40), nullable=False),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("definition", sa.JSON, nullable=False),
    sa.Column("removing", sa.Boolean, nullable=False),
    sa.Column("observed", sa.JSON, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),  # raised by every order: a supervisor reads new ones
    sa.Index("run_services_by_version", "backend", "version"),
)
versions = sa.Table(
    "run_versions",
    metadata,
    sa.Column("backend", sa.String(40), primary_key=True),
    sa.Column("last", sa.BigInteger, nullable=False),
)
# The highest generation of orders at a path. It outlives the service, to refuse late orders.
generations = sa.Table(
    "run_generations",
    metadata,
    sa.Column("path", PathColumn, primary_key=True),
    sa.Column("generation", sa.BigInteger, nullable=False),
)
instances = sa.Table(
    "run_instances",
    metadata,
    sa.Column("token", sa.String(80), primary_key=True),
    sa.Column("path", PathColumn, nullable=False, index=True),
    sa.Column("backend", sa.String(40), nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("revision", sa.String(40), nullable=False),
    sa.Column("definition", sa.JSON, nullable=False),
    sa.Column("stopping", sa.Boolean, nullable=False),
    sa.Column("pid", sa.BigInteger, nullable=False),
    sa.Column("started", sa.BigInteger, nullable=False),  # together with the pid identifies one process
    sa.Column("port", sa.Integer, nullable=False),
    sa.Column("healthy", sa.Boolean, nullable=False),
)


# What is in a column of an instance as it is in its record.
_SAME_NAMES = ("token", "path", "number", "revision", "stopping", "pid", "started", "port", "healthy")

# Built once: building a statement costs more than running it.
_IS_AT_OR_BELOW = (services.c.path == sa.bindparam("at_path")) | (
    (services.c.path > sa.bindparam("first")) & (services.c.path < sa.bindparam("last"))
)
_SELECT_SERVICES = sa.select(services).where(services.c.backend == sa.bindparam("here")).order_by(services.c.path)
_SELECT_SERVICES_AT = _SELECT_SERVICES.where(_IS_AT_OR_BELOW)
_SELECT_LIVING = _SELECT_SERVICES.where(services.c.path > sa.bindparam("after")).limit(PAGE_SIZE)
_SELECT_LIVING_AT = _SELECT_SERVICES_AT.where(services.c.path > sa.bindparam("after")).limit(PAGE_SIZE)
_SELECT_WANTED = sa.select(
    *(services.c[name] for name in ("path", "generation", "definition", "removing", "version"))
).where(services.c.backend == sa.bindparam("here"), services.c.version > sa.bindparam("after"))
_SELECT_KNOWN_SERVICES = sa.select(
    services.c.path, services.c.generation, services.c.removing, services.c.observed
).where(services.c.path.in_(sa.bindparam("names", expanding=True)))
_DELETE_SERVICES = sa.delete(services).where(services.c.path.in_(sa.bindparam("names", expanding=True)))
_INSERT_SERVICE = sa.insert(services)
_RAISE_VERSION = (
    sa.update(versions)
    .where(versions.c.backend == sa.bindparam("here"))
    .values(last=versions.c.last + 1)
    .returning(versions.c.last)
)
_SELECT_GENERATIONS = sa.select(generations).where(generations.c.path.in_(sa.bindparam("names", expanding=True)))
_IS_GENERATION_BELOW = (generations.c.path > sa.bindparam("first")) & (generations.c.path < sa.bindparam("last"))
_SELECT_GENERATIONS_BELOW = sa.select(generations.c.generation).where(_IS_GENERATION_BELOW)
_DELETE_GENERATIONS_BELOW = sa.delete(generations).where(_IS_GENERATION_BELOW)  # a path's entry covers all below it
_DELETE_GENERATIONS = sa.delete(generations).where(generations.c.path.in_(sa.bindparam("names", expanding=True)))
_INSERT_GENERATION = sa.insert(generations)
_SELECT_INSTANCES = sa.select(instances).where(instances.c.backend == sa.bindparam("here"))
_INSERT_INSTANCE = sa.insert(instances)
_UPDATE_INSTANCE = sa.update(instances).where(instances.c.token == sa.bindparam("which"))
_DELETE_INSTANCES = sa.delete(instances).where(instances.c.token.in_(sa.bindparam("tokens", expanding=True)))
_UPDATE_SERVICE = sa.update(services).where(services.c.path == sa.bindparam("which"))


def create_tables(connection: sa.Connection) -> None:
    """Creates missing tables."""
    create_missing_tables(connection, metadata)


@dataclass
class SupervisedInstance:
    """One instance: its record, and what the supervisor knows of it while it is up."""

    token: str
    path: str
    number: int
    revision: str
    node: Node
    stopping: bool = False
    pid: int = 0
    started: int = 0
    port: int = 0
    healthy: bool = False
    crashes: int = field(default=0, compare=False)
    message: str = field(default="", compare=False)


@dataclass(frozen=True)
class WantedService:
    """A service as it was ordered, with its generation and version."""

    path: str
    generation: int
    definition: dict[str, Any]
    removing: bool
    version: int


class BackendLedger:
    """The ledger of one backend: orders, instances and observations."""

    def __init__(self, backend: str, database: TransactionRunner) -> None:
        self.backend = backend
        self._grouped = GroupCommit(database)

    async def record_service_orders(self, orders: Sequence[ServiceOrder]) -> None:
        """Records orders for services. An order that is not newer than the recorded one changes nothing."""

        def write(connection: sa.Connection) -> Superseded | None:
            if late := _claim_generation(connection, {order.path: order.generation for order in orders}):
                return late
            rows = connection.execute(_SELECT_KNOWN_SERVICES, {"names": [order.path for order in orders]}).mappings()
            known = {row["path"]: row for row in rows}
            latest = {path: row["generation"] for path, row in known.items() if not row["removing"]}
            fresh = [order for order in orders if order.generation > latest.get(order.path, -1)]
            version = self._next_version(connection)
            seen = {path: row["observed"] for path, row in known.items()}
            if fresh:
                connection.execute(_DELETE_SERVICES, {"names": [order.path for order in fresh]})
                connection.execute(
                    _INSERT_SERVICE, [self._service_row(order, version, seen.get(order.path)) for order in fresh]
                )
            return None

        await self._write_unless_late(write)

    async def remove_services(self, prefix: str, generation: int, keep: Sequence[str] = ()) -> None:
        """Records the removal of all services at and below a path, except those to keep."""

        def write(connection: sa.Connection) -> Superseded | None:
            if late := _claim_generation(connection, {prefix: generation}, all_below=True):
                return late
            version = self._next_version(connection)
            there = connection.execute(_SELECT_SERVICES_AT, {"here": self.backend} | _range_below(prefix)).mappings()
            names = sorted({row["path"] for row in there if not row["removing"]} - set(keep))
            ended = {"removing": True, "version": version}
            if names:
                connection.execute(sa.update(services).where(services.c.path.in_(names)).values(ended))
            return None

        await self._write_unless_late(write)

    async def claim_generation(self, system: str, generation: int) -> None:
        """Blocks orders of earlier generations at or below this path from now on."""
        await self._write_unless_late(
            lambda connection: _claim_generation(connection, {system: generation}, all_below=True)
        )

    async def _write_unless_late(self, write: Callable[[sa.Connection], Superseded | None]) -> None:
        """Raises the refusal of a late order after the commit, as an exception would roll back others' work."""
        if late := await self._grouped.run_transaction(write):
            raise late

    async def read_service_facts(self, prefix: str = "") -> list[ServiceFacts]:
        """Returns the last observations of the services at and below a path, ordered by path."""
        where = _range_below(prefix) if prefix else {}
        return await self._read_rows(_SELECT_SERVICES_AT if prefix else _SELECT_SERVICES, where, _facts_from_row)

    async def list_existing_objects(self, prefix: str, after: str) -> list[ServiceFacts]:
        """A page of the services at and below a path, from after a path on."""
        where = {"after": after} | (_range_below(prefix) if prefix else {})
        return await self._read_rows(_SELECT_LIVING_AT if prefix else _SELECT_LIVING, where, _facts_from_row)

    async def list_service_orders_since(self, after: int) -> list[WantedService]:
        """Returns orders since a version."""
        return await self._read_rows(_SELECT_WANTED, {"after": after}, lambda row: WantedService(**row))

    async def list_instances(self) -> list[SupervisedInstance]:
        """Returns all recorded instances."""
        return await self._read_rows(_SELECT_INSTANCES, {}, _instance_from_row)

    async def _read_rows(
        self, query: sa.Select[Any], where: Mapping[str, Any], convert: Callable[[Mapping[str, Any]], T]
    ) -> list[T]:
        """Reads what this backend has."""

        def select(connection: sa.Connection) -> list[T]:
            return [convert(dict(row)) for row in connection.execute(query, {"here": self.backend, **where}).mappings()]

        return await self._grouped.run_transaction(select)

    async def insert_instances(self, units: Sequence[SupervisedInstance]) -> None:
        """Records instances before they are started, so that a later supervisor can find them."""
        rows = [_row_of_instance(unit) | {"backend": self.backend} for unit in units]
        await self._grouped.run_transaction(lambda connection: _execute_many(connection, _INSERT_INSTANCE, rows))

    async def update_instances(self, units: Sequence[SupervisedInstance]) -> None:
        """Updates the records of instances: their processes, or that they are to stop."""
        rows = [{"which": unit.token} | _row_of_instance(unit) for unit in units]
        await self._grouped.run_transaction(lambda connection: _execute_many(connection, _UPDATE_INSTANCE, rows))

    async def delete_instances(self, tokens: Sequence[str]) -> None:
        """Deletes the records of instances that are gone."""
        where = {"tokens": list(tokens)}
        await self._grouped.run_transaction(lambda connection: connection.execute(_DELETE_INSTANCES, where) and None)

    async def record_observations(
        self, facts: Sequence[ServiceFacts], gone: Sequence[str], units: Sequence[SupervisedInstance]
    ) -> None:
        """Writes the observations of services and instances, and deletes services that are gone."""

        def write(connection: sa.Connection) -> None:
            _execute_many(
                connection, _UPDATE_SERVICE, [{"which": fact.path, "observed": asdict(fact)} for fact in facts]
            )
            _execute_many(
                connection, _UPDATE_INSTANCE, [{"which": unit.token, "healthy": unit.healthy} for unit in units]
            )
            if gone:
                ended = sa.delete(services).where(services.c.path.in_(gone), services.c.removing)
                connection.execute(ended)

        await self._grouped.run_transaction(write)

    def _next_version(self, connection: sa.Connection) -> int:
        """Returns the next version, from a counter: max(version) would repeat once the newest service is deleted."""
        last = connection.execute(_RAISE_VERSION, {"here": self.backend}).scalar_one_or_none()
        if last is None:
            connection.execute(sa.insert(versions).values(backend=self.backend, last=1))
        return int(last or 1)

    def _service_row(self, order: ServiceOrder, version: int, seen: dict[str, Any] | None) -> dict[str, Any]:
        """Returns a service's row; it keeps the last observation until the supervisor has looked."""
        unseen = asdict(ServiceFacts(order.path, -1, order.definition.get("instances", 1)))
        return {
            "path": order.path,
            "backend": self.backend,
            "generation": order.generation,
            "definition": order.definition,
            "removing": False,
            "observed": seen or unseen,
            "version": version,
        }


def _claim_generation(
    connection: sa.Connection, orders: Mapping[str, int], all_below: bool = False
) -> Superseded | None:
    """Records our generation as the latest at these paths; returns Superseded if there is a later one."""
    for root in sorted({":".join(path.split(":")[:2]) for path in orders}):
        _lock_system(connection, root)
    above = {path: [path, *ancestor_paths(path)] for path in orders}
    names = list(dict.fromkeys(each for some in above.values() for each in some))
    seen: dict[str, int] = {
        row.path: row.generation for row in connection.execute(_SELECT_GENERATIONS, {"names": names})
    }
    for path, generation in orders.items():
        known = [seen[each] for each in above[path] if each in seen]
        if all_below:
            known += connection.execute(_SELECT_GENERATIONS_BELOW, _range_below(path)).scalars().all()
        if late := late_order_error(path, generation, max(known, default=0), "generation"):
            return late
        if all_below:
            connection.execute(_DELETE_GENERATIONS_BELOW, _range_below(path))
    connection.execute(_DELETE_GENERATIONS, {"names": list(orders)})
    _execute_many(
        connection, _INSERT_GENERATION, [{"path": path, "generation": number} for path, number in orders.items()]
    )
    return None


def _lock_system(connection: sa.Connection, root: str) -> None:
    """Serialises orders for one system; on SQLite writers are serial anyway."""
    if connection.dialect.name == "postgresql":
        key = sa.func.hashtextextended(f"services of {root}", 0)
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(key)))


def _range_below(prefix: str) -> dict[str, str]:
    """Returns the parameters for a path and everything below it; `;` follows `:` in ASCII."""
    return {"at_path": prefix, "first": f"{prefix}:", "last": f"{prefix};"}


def _execute_many(connection: sa.Connection, statement: sa.Executable, rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(statement, rows)


def _facts_from_row(row: Mapping[str, Any]) -> ServiceFacts:
    seen = ServiceFacts(**row["observed"])
    if seen.generation < row["generation"]:  # ordered, and not observed yet
        return ServiceFacts(row["path"], -1, int(row["definition"].get("instances", 1)), seen.alive, seen.healthy)
    return seen


def _instance_from_row(row: Mapping[str, Any]) -> SupervisedInstance:
    return SupervisedInstance(node=Node.model_validate(row["definition"]), **{name: row[name] for name in _SAME_NAMES})


def _row_of_instance(unit: SupervisedInstance) -> dict[str, Any]:
    node = unit.node.model_dump(mode="json", exclude_defaults=True)
    return {name: getattr(unit, name) for name in _SAME_NAMES} | {"definition": node}
