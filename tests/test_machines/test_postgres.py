"""The family's part of the kernel's transactions, on a real PostgreSQL: JSON, paths and locks work there too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from domain.model import Claim, Request
from providers.simulated import create_tables
from store.engine import Database
from store.inventory import SqlInventory
from store.migrate import migrate
from tests.test_machines.estate import Estate
from workers.settings import Settings


@pytest.fixture
def estate_on_postgres(postgres_url: str, tmp_path: Path) -> Iterator[Estate]:
    """Only its store is PostgreSQL; the hypervisor keeps its own books."""
    database, cloud = Database(postgres_url), Database(f"sqlite:///{tmp_path}/cloud.db")
    migrate(database)
    cloud.run_here(create_tables)
    parts = SimpleNamespace(settings=Settings(simulated_latency=0), cloud_database=cloud)
    service = SimpleNamespace(inventory=SqlInventory(database), parts=parts)
    yield Estate(cast(Any, None), cast(Any, service), "pg")
    database.close()
    cloud.close()


async def answer(estate: Estate, path: str, action: str, **spec: Any) -> str:
    """The refusal that begin answers with."""
    request = Request(path=path, action=action, spec=spec or None)
    at = (await estate.see(estate.account)).changed_at
    admission = await estate.service.inventory.check(Claim(request=request, run="check", at=at))
    assert admission.refusal, admission.grant
    return admission.refusal.message


async def test_a_life_on_postgresql(estate_on_postgres: Estate) -> None:
    estate = estate_on_postgres
    await estate.with_machine("db", "web", nodes=2)
    db = estate.machine()
    await estate.seed(db, "add-disk", disk="d1")
    assert "attached to" in await answer(estate, estate.machine("web"), "attach-disk", disk="d1")
    assert "it is in use by" in await answer(estate, estate.image, "destroy")
    assert "live in it" in await answer(estate, estate.space(), "delete")
    assert "the machine is on node pg-1" in await answer(estate, db, "migrate", node="pg-1")
    assert await estate.seed(estate.space(), "delete", cascade=True) == "DELETED"
    assert await estate.status(estate.disk()) == "TOBEDELETED"
    assert "is DELETED" in await answer(estate, db, "restore")
    assert await estate.seed(estate.account, "delete") == "DELETED"
    assert await estate.seed(estate.account, "destroy") == "DESTROYED"
    assert [await estate.status(path) for path in (db, estate.disk(), estate.space())] == ["DESTROYED"] * 3
    await estate.at_rest()
