"""The books of the backends: which services are wanted, which instances there are, and what was last seen of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeVar

import sqlalchemy as sa

from domain.ports import Transactions
from domain.systems.backend import ServiceOrder
from domain.systems.definition import Node
from domain.systems.rules import Facts

T = TypeVar("T")

metadata = sa.MetaData()
Text = sa.String(2_000).with_variant(sa.String(2_000, collation="C"), "postgresql")  # sorted by bytes everywhere

services = sa.Table(
    "run_services",
    metadata,
    sa.Column("path", Text, primary_key=True),
    sa.Column("backend", sa.String(40), nullable=False),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("definition", sa.JSON, nullable=False),
    sa.Column("removing", sa.Boolean, nullable=False),
    sa.Column("observed", sa.JSON, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),  # rises with every order: a keeper reads only what is new
    sa.Index("run_services_by_version", "backend", "version"),
)
versions = sa.Table(
    "run_versions",
    metadata,
    sa.Column("backend", sa.String(40), primary_key=True),
    sa.Column("last", sa.BigInteger, nullable=False),
)
instances = sa.Table(
    "run_instances",
    metadata,
    sa.Column("token", sa.String(80), primary_key=True),
    sa.Column("path", Text, nullable=False, index=True),
    sa.Column("backend", sa.String(40), nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("revision", sa.String(40), nullable=False),
    sa.Column("definition", sa.JSON, nullable=False),
    sa.Column("stopping", sa.Boolean, nullable=False),
    sa.Column("pid", sa.BigInteger, nullable=False),
    sa.Column("started", sa.BigInteger, nullable=False),  # with the number it names one process for ever
    sa.Column("port", sa.Integer, nullable=False),
    sa.Column("healthy", sa.Boolean, nullable=False),
)


def create_tables(connection: sa.Connection) -> None:
    metadata.create_all(connection)


@dataclass
class Unit:
    """One instance: what is kept of it, and what the keeper knows of it while it is up."""

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
class Wanted:
    """A service as it was ordered."""

    path: str
    generation: int
    definition: dict[str, Any]
    removing: bool
    version: int


class Grouped:
    """What is asked for while one transaction runs is done together in the next: nobody waits for company."""

    def __init__(self, database: Transactions) -> None:
        self._database = database
        self._waiting: list[tuple[Callable[[sa.Connection], Any], asyncio.Future[Any]]] = []
        self._running: asyncio.Task[None] | None = None

    async def run(self, work: Callable[[sa.Connection], T]) -> T:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((work, answer))
        if self._running is None or self._running.done():
            self._running = asyncio.ensure_future(self._run_all())
        return await answer

    async def _run_all(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting, []
            try:
                results = await self._database.run(partial(_all, works=[work for work, _ in group]))
            except Exception as error:
                for _, answer in group:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for (_, answer), result in zip(group, results, strict=True):
                if not answer.done():
                    answer.set_result(result)


def _all(connection: sa.Connection, works: list[Callable[[sa.Connection], Any]]) -> list[Any]:
    return [work(connection) for work in works]


class Ledger:
    """The books of one backend."""

    def __init__(self, backend: str, database: Transactions) -> None:
        self.backend = backend
        self._grouped = Grouped(database)

    async def order(self, orders: Sequence[ServiceOrder]) -> None:
        """Want these services. An order that is not newer than what is wanted already changes nothing."""

        def write(connection: sa.Connection) -> None:
            known = _generations(connection, [order.path for order in orders])
            fresh = [order for order in orders if order.generation > known.get(order.path, -1)]
            version = self._next_version(connection)
            _replace(connection, [self._row(order, version) for order in fresh])

        await self._grouped.run(write)

    async def remove(self, prefixes: Sequence[str], keep: Sequence[str] = ()) -> None:
        """Want nothing any more at and below these paths, except what is to be kept."""

        def write(connection: sa.Connection) -> None:
            version = self._next_version(connection)
            for prefix in prefixes:
                found = sa.select(services.c.path).where(self._mine(prefix), ~services.c.removing)
                names = sorted(set(connection.execute(found).scalars()) - set(keep))
                ended = {"removing": True, "version": version}
                if names:
                    connection.execute(sa.update(services).where(services.c.path.in_(names)).values(ended))

        await self._grouped.run(write)

    async def facts(self, prefix: str = "") -> list[Facts]:
        """What was last seen of the services at and below a path, in the order of their paths."""

        def read(connection: sa.Connection) -> list[Facts]:
            rows = connection.execute(sa.select(services).where(self._mine(prefix)).order_by(services.c.path))
            return [_facts(row._mapping) for row in rows]

        return await self._grouped.run(read)

    async def wanted(self, after: int) -> list[Wanted]:
        """What was ordered since a version."""

        def read(connection: sa.Connection) -> list[Wanted]:
            new = (services.c.backend == self.backend) & (services.c.version > after)
            columns = [services.c[name] for name in ("path", "generation", "definition", "removing", "version")]
            return [Wanted(*row) for row in connection.execute(sa.select(*columns).where(new))]

        return await self._grouped.run(read)

    async def units(self) -> list[Unit]:
        """Every instance that is in the books."""

        def read(connection: sa.Connection) -> list[Unit]:
            rows = connection.execute(sa.select(instances).where(instances.c.backend == self.backend)).mappings()
            return [_unit(row) for row in rows]

        return await self._grouped.run(read)

    async def enter(self, units: Sequence[Unit]) -> None:
        """Instances, before anything is done about them: whoever comes after us knows whom to look for."""
        rows = [_unit_row(unit) | {"backend": self.backend} for unit in units]
        await self._grouped.run(lambda connection: _execute(connection, sa.insert(instances), rows))

    async def note(self, units: Sequence[Unit]) -> None:
        """What became of instances: their processes, or that they are to stop."""
        change = sa.update(instances).where(instances.c.token == sa.bindparam("which"))
        rows = [{"which": unit.token} | _unit_row(unit) for unit in units]
        await self._grouped.run(lambda connection: _execute(connection, change, rows))

    async def strike(self, tokens: Sequence[str]) -> None:
        """Instances that are gone."""
        gone = sa.delete(instances).where(instances.c.token.in_(tokens))
        await self._grouped.run(lambda connection: connection.execute(gone) and None)

    async def saw(self, facts: Sequence[Facts], gone: Sequence[str], units: Sequence[Unit]) -> None:
        """What services and instances are now, and the services of which nothing is left."""

        def write(connection: sa.Connection) -> None:
            change = sa.update(services).where(services.c.path == sa.bindparam("which"))
            _execute(connection, change, [{"which": each.path, "observed": asdict(each)} for each in facts])
            health = sa.update(instances).where(instances.c.token == sa.bindparam("which"))
            _execute(connection, health, [{"which": unit.token, "healthy": unit.healthy} for unit in units])
            if gone:
                ended = sa.delete(services).where(services.c.path.in_(gone), services.c.removing)
                connection.execute(ended)

        await self._grouped.run(write)

    def _mine(self, prefix: str) -> sa.ColumnElement[bool]:
        mine = services.c.backend == self.backend
        path = services.c.path
        return mine & ((path == prefix) | ((path > f"{prefix}:") & (path < f"{prefix};"))) if prefix else mine

    def _next_version(self, connection: sa.Connection) -> int:
        """Counted apart: the highest in the table may go with its service, and would be handed out again."""
        mine = versions.c.backend == self.backend
        raised = sa.update(versions).where(mine).values(last=versions.c.last + 1).returning(versions.c.last)
        last = connection.execute(raised).scalar_one_or_none()
        if last is None:
            connection.execute(sa.insert(versions).values(backend=self.backend, last=1))
        return int(last or 1)

    def _row(self, order: ServiceOrder, version: int) -> dict[str, Any]:
        unseen = asdict(Facts(order.path, -1, order.definition.get("instances", 1)))
        return {
            "path": order.path,
            "backend": self.backend,
            "generation": order.generation,
            "definition": order.definition,
            "removing": False,
            "observed": unseen,
            "version": version,
        }


def _generations(connection: sa.Connection, paths: Iterable[str]) -> dict[str, int]:
    """Of the services that are wanted: one that is being removed may be ordered again."""
    known = sa.select(services.c.path, services.c.generation).where(services.c.path.in_(list(paths)))
    return {row.path: row.generation for row in connection.execute(known.where(~services.c.removing))}


def _replace(connection: sa.Connection, rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(sa.delete(services).where(services.c.path.in_([row["path"] for row in rows])))
        connection.execute(sa.insert(services), rows)


def _execute(connection: sa.Connection, statement: sa.Executable, rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(statement, rows)


def _facts(row: Any) -> Facts:
    seen = Facts(**row["observed"])
    if seen.generation < row["generation"]:  # ordered, and not observed yet
        return Facts(row["path"], -1, int(row["definition"].get("instances", 1)), seen.alive, seen.healthy)
    return seen


def _unit(row: Any) -> Unit:
    kept = {
        name: row[name]
        for name in ("token", "path", "number", "revision", "stopping", "pid", "started", "port", "healthy")
    }
    return Unit(node=Node.model_validate(row["definition"]), **kept)


def _unit_row(unit: Unit) -> dict[str, Any]:
    kept = ("token", "path", "number", "revision", "stopping", "pid", "started", "port", "healthy")
    node = unit.node.model_dump(mode="json", exclude_defaults=True)
    return {name: getattr(unit, name) for name in kept} | {"definition": node}
