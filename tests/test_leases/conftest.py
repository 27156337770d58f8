"""Tenants for the tests of leases. The relationship table is checked before every commit of every test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest
import sqlalchemy as sa

from client.actions import ActionClient
from domain.leases.tables import describe_contradiction
from domain.paths import name_of
from store.engine import Database
from store.queries import at_or_below_condition
from store.schema import objects
from tests.test_leases.tenant import Tenant
from tests.test_store.conftest import (  # noqa: F401  the same databases as for the store's own tests
    driver,
    emptied_postgres_url,
    empty_postgres,
    emptying,
    engines,
    migrated_postgres,
    migrated_sqlite,
    pair,
    rival,
    sqlite_url,
    store_url,
)
from workers.service import WorkerService

T = TypeVar("T")


@pytest.fixture
async def tenant(asking: ActionClient, stack: WorkerService, ns: str) -> AsyncIterator[Tenant]:
    someone = Tenant(asking, stack, ns)
    with relations_hold(stack.database, someone.name):
        yield someone
        await someone.stop_clock()  # else it goes on until the year in which its last lease ends
    await someone.heal_faults()


@contextmanager
def relations_hold(database: Database, project: str) -> Iterator[None]:
    """Look at the leases of a project before each commit, inside the transaction: what is committed is what we see.

    Not with an event of SQLAlchemy: its listeners cannot be removed while other threads go through them.
    """
    wrong: list[str] = []
    run = database.run_transaction_blocking

    def run_watched(work: Callable[[sa.Connection], T]) -> T:
        def look_afterwards(connection: sa.Connection) -> T:
            answer = work(connection)
            wrong.extend(contradictions(connection, project))
            return answer

        return run(look_afterwards)

    database.run_transaction_blocking = run_watched  # type: ignore[method-assign]
    try:
        yield
    finally:
        database.run_transaction_blocking = run  # type: ignore[method-assign]
    assert not wrong, wrong[:3]


def contradictions(connection: sa.Connection, project: str) -> list[str]:
    query = sa.select(objects.c.path, objects.c.kind, objects.c.parent, objects.c.status)
    rows = connection.execute(query.where(at_or_below_condition(objects.c.path, f"project:{project}"))).all()
    found = []
    for path, kind, _, status in rows:
        if kind == "lease":
            reservations = [row.status for row in rows if row.parent == path and row.kind == "reservation"]
            events = {name_of(row.path): row.status for row in rows if row.parent == path and row.kind == "event"}
            if problem := describe_contradiction(status, reservations, events):
                found.append(f"{path}: {problem}")
    return found
