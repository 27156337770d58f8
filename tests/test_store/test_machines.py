"""Machines in the store: racing decisions, and a constant number of queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from domain.machines.messages import BinEntry, DueBinEntriesQuery
from domain.machines.rules import format_sortable_time
from domain.machines.tables import MEMORY_STATUSES
from domain.model import ActionEnding, ActionResult, Admission, Grant, Request
from domain.quotafile import Quotas
from domain.quotas import Quota, QuotaQuery
from domain.statetable import NONE
from providers.machines import state
from providers.machines.tables import things
from providers.simulated.tables import metadata as simulated
from store import begin, finish
from store.hooks import MaybeObjectRow
from store.machines import hooks as machines
from store.machines import queries
from store.quotas import SHARDS
from store.schema import objects
from tests.test_store.driver import EVERYBODY, HOOKS, NOON, StoreDriver, claim
from tests.test_store.test_races import beginning, overtaken

Pair = tuple[StoreDriver, StoreDriver]
ACME, DEV = "account:acme", "account:acme:cloudspace:dev"
DB, WEB = f"{DEV}:machine:db", f"{DEV}:machine:web"
IMAGE, FIRST, SECOND = "image:ubuntu", "node:n1", "node:n2"


def ending(grant: Grant, **info: Any) -> Callable[[sa.Connection], object]:
    told = {"epoch": grant.epoch, "run": grant.run, "path": grant.path}
    end = ActionEnding(**told, result=ActionResult.SUCCEEDED, at=NOON, info=info or None)
    return partial(finish.finish_action, hooks=HOOKS, ending=end)


async def make(
    driver: StoreDriver, path: str, action: str = "create", left: dict[str, Any] | None = None, **spec: Any
) -> None:
    """A whole action in which everything goes well."""
    grant = await driver.grant(path, action, spec=spec or None)
    await driver.database.run_transaction(ending(grant, **(left or {})))


@pytest.fixture
async def site(pair: Pair) -> Pair:
    """An account with a cloudspace, an image, and a node for two machines."""
    for path in (ACME, DEV, IMAGE):
        await make(pair[0], path)
    await make(pair[0], FIRST, memory=2)
    return pair


def create(path: str, **spec: Any) -> Callable[[sa.Connection], Admission]:
    return beginning(claim(path, "create", spec={"image": "ubuntu", **spec}))


def reason(admission: Admission) -> str:
    assert admission.refusal, admission.grant
    return admission.refusal.message


# PostgreSQL only: there a transaction can be in the middle of another one. Both orders are forced.


async def test_a_machine_is_not_made_from_an_image_that_is_just_being_deleted(site: Pair) -> None:
    late = await overtaken(site, beginning(claim(IMAGE, "delete")), create(DB))
    assert reason(late) == f"{IMAGE} is DELETING"


async def test_an_image_is_not_deleted_when_a_machine_is_just_being_made_from_it(site: Pair) -> None:
    late = await overtaken(site, create(DB), beginning(claim(IMAGE, "delete")))
    assert f"it is in use by {DB}" in reason(late)


async def test_two_machines_are_made_from_one_image_at_the_same_time(site: Pair) -> None:
    one, two = site
    with one.database.engine.begin() as connection:
        while _counter_shard(connection) == two.database.run_transaction_blocking(_counter_shard):
            two.database.engine.dispose()  # the next connection has another process, and so another shard
        assert create(DB)(connection).grant
        assert (await two.database.run_transaction(create(WEB))).grant


def _counter_shard(connection: sa.Connection) -> int:
    """The counters of a tenant that this connection adds to; two connections with the same ones wait for each other."""
    return int(connection.execute(sa.text("SELECT pg_backend_pid()")).scalar_one()) % SHARDS


async def test_the_last_room_of_a_node_is_given_once(site: Pair) -> None:
    late = await overtaken(site, create(DB, node="n1", memory=2), create(WEB, node="n1"))
    assert reason(late) == "node n1 is full: 0 GiB are free, 1 are needed"


async def test_a_machine_does_not_go_to_a_node_that_is_just_going_into_maintenance(site: Pair) -> None:
    late = await overtaken(site, beginning(claim(FIRST, "maintain")), create(DB, node="n1"))
    assert reason(late) == "node n1 is PUTTING_IN_MAINTENANCE"


async def test_two_nodes_do_not_go_because_each_believes_that_the_other_stays(site: Pair) -> None:
    await make(site[0], SECOND)
    late = await overtaken(site, beginning(claim(FIRST, "decommission")), beginning(claim(SECOND, "decommission")))
    assert "there is no other enabled node" in reason(late)


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], object]], None]:
    """Let something happen between the reading of what else is to be locked and the reading of the locks."""

    def put(kind: str, what: Callable[[], object]) -> None:
        rider, todo = HOOKS[kind], [what]
        assert rider.extra_locks
        read = rider.extra_locks

        def locks(connection: sa.Connection, request: Request, object_row: MaybeObjectRow) -> Sequence[str]:
            paths = read(connection, request, object_row)
            if todo:
                todo.pop()()
            return paths

        monkeypatch.setitem(HOOKS, kind, replace(rider, extra_locks=locks))

    return put


@pytest.mark.parametrize(("path", "locked"), [(DB, f"{ACME}:disk:d1"), (f"{ACME}:disk:d1", DB)])
async def test_a_delete_that_begins_while_an_attach_ends_holds_both_the_disk_and_the_machine(
    site: Pair,
    between: Callable[[str, Callable[[], object]], None],
    path: str,
    locked: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The disk was not attached when it was read, and the attach had gone when its locks were."""
    one, two = site
    await make(one, DB, image="ubuntu", left={"node": "n1"})
    await make(one, f"{ACME}:disk:d1")
    attach = await one.grant(f"{ACME}:disk:d1", "attach", spec={"machine": "dev/db"})
    between(
        "machine" if path == DB else "disk", lambda: two.database.run_transaction_blocking(ending(attach, machine=DB))
    )
    monkeypatch.setattr("store.quotas.read_database_micros", lambda _connection: 1_800_000_000_000_000)
    rate = Quotas(tenants={ACME: Quota(requests_per_minute=10)})
    admission = await one.database.run_transaction(
        partial(begin.begin_action, hooks=HOOKS, access=EVERYBODY, claim=claim(path, "delete"), quotas=rate)
    )
    assert admission.grant, admission.refusal
    one.inventory.current_quotas = lambda: rate
    [row] = (await one.inventory.read_quotas(QuotaQuery(tenant=ACME))).tenants
    assert row.used.requests == 1, "a begin that starts over is one request"
    held = {hold.path for hold in await one.inventory.list_locks() if hold.mode.value == "X"}
    assert held == {path, locked}


async def test_a_begin_takes_all_of_its_locks_at_once_and_in_one_order(site: Pair) -> None:
    """Two that need the locks of both, taken one after the other, could each wait for the other."""
    driver, taken = site[0], []

    def watch(_: object, __: object, statement: str, parameters: dict[str, Any], *___: object) -> None:
        if "pg_advisory_xact_lock" in statement:
            taken.append(parameters["paths"])

    await make(driver, DB, image="ubuntu", left={"node": "n1"})
    await make(driver, f"{ACME}:disk:d1")
    sa.event.listen(driver.database.engine, "before_cursor_execute", watch)
    for path, action, spec in (
        (f"{ACME}:disk:d1", "attach", {"machine": "dev/db"}),
        (DB, "attach-disk", {"disk": "d1"}),
    ):
        await driver.begin(path, action, spec=spec)
    sa.event.remove(driver.database.engine, "before_cursor_execute", watch)
    assert taken == [[ACME, DEV, DB, f"{ACME}:disk:d1"]] * 2


# Both databases.


async def test_a_migration_that_no_status_shows_is_held_all_the_same(driver: StoreDriver) -> None:
    for path in (ACME, DEV, IMAGE):
        await make(driver, path)
    for node in (FIRST, SECOND):
        await make(driver, node, memory=8)
    await make(driver, DB, left={"node": "n1"}, image="ubuntu", node="n1")
    grant = await driver.grant(DB, "migrate", spec={"node": "n2"})
    assert await driver.status(DB) == "RUNNING"
    assert DB in {hold.path for hold in await driver.inventory.list_locks("")}
    await driver.finish(grant)
    assert await driver.inventory.list_locks("") == []


async def test_a_migration_that_ends_leaves_what_came_between(site: Pair) -> None:
    await make(site[0], SECOND, memory=8)
    await make(site[0], DB, left={"node": "n1"}, image="ubuntu", node="n1")
    grant = await site[0].grant(DB, "migrate", spec={"node": "n2"})
    change = sa.update(objects).where(objects.c.path == DB).values(status="PAUSED", info={"node": "n1", "kept": "yes"})
    await overtaken(site, lambda connection: connection.execute(change), ending(grant, node="n2"))
    assert (await site[0].inventory.read_object(DB)).info == {"node": "n2", "kept": "yes"}
    assert (await site[0].last(DB)).to == "PAUSED"


async def test_a_disk_in_the_bin_is_destroyed_or_restored_by_what_its_machine_is(driver: StoreDriver) -> None:
    for path in (ACME, DEV, IMAGE, disk := f"{ACME}:disk:d1"):
        await make(driver, path)
    await make(driver, FIRST, memory=8)
    await make(driver, DB, left={"node": "n1"}, image="ubuntu", node="n1")
    await make(driver, disk, "attach", left={"machine": DB}, machine="dev/db")
    await make(driver, disk, "delete")
    for machine, action, refused in (
        ("DELETED", "destroy", ""),
        ("DELETED", "restore", "is DELETED"),
        ("DESTROYED", "destroy", "no such machine"),
        ("RUNNING", "restore", ""),
    ):
        change = sa.update(objects).where(objects.c.path == DB).values(status=machine)
        await driver.database.run_transaction(partial(sa.Connection.execute, statement=change))
        found = await driver.check(disk, action)
        assert refused in found.refusal.message if found.refusal else not refused, (machine, action, found)


async def filled(driver: StoreDriver, number: int) -> None:
    """So many machines, ten to a node and each tenth in the bin, and nobody asked the database to count them."""

    def row(n: int) -> dict[str, Any]:
        binned = n % 10 == 0
        info = (
            {"bin": 1, "until": format_sortable_time(NOON + timedelta(seconds=n))}
            if binned
            else {"node": f"n{n // 10}"}
        )
        rest = dict.fromkeys(("previous_status", "target_action", "target_status"), NONE)
        return {
            "path": f"account:a{n % 50}:cloudspace:dev:machine:m{n}",
            "kind": "machine",
            "parent": f"account:a{n % 50}:cloudspace:dev",
            "status": "DELETED" if binned else "RUNNING",
            "spec": {"memory": 2},
            "info": info,
            **{"error": "", "epoch": 0, "created_at": NOON, "changed_at": NOON},
            **rest,
        }

    rows = [row(n) for n in range(number)]
    await driver.database.run_transaction(lambda connection: connection.execute(sa.insert(objects), rows))


def plan(connection: sa.Connection, query: sa.Select[Any], asked: dict[str, Any]) -> str:
    """How the database would carry a query out."""
    said = query.params(asked).compile(connection.engine, compile_kwargs={"literal_binds": True})
    explain = "EXPLAIN" if connection.dialect.name == "postgresql" else "EXPLAIN QUERY PLAN"
    return "\n".join(" ".join(map(str, row)) for row in connection.execute(sa.text(f"{explain} {said}")))


async def test_the_room_of_a_node_is_reckoned_from_its_own_machines_alone(driver: StoreDriver) -> None:
    await filled(driver, 5_000)
    asked = {"node": "n7", "statuses": list(map(str, MEMORY_STATUSES))}
    assert (
        await driver.database.run_transaction(
            lambda connection: connection.execute(machines._SUM_USED_MEMORY, asked).scalar_one()
        )
        == 18
    )


async def test_the_bin_tells_what_is_due_and_leaves_out_what_goes_along_or_is_put_off(driver: StoreDriver) -> None:
    await make(driver, ACME)
    await make(driver, DEV)
    await make(driver, IMAGE)
    await make(driver, DEV, "delete", {"bin": 7}, retention_days=1)
    await make(driver, IMAGE, "delete", {"bin": 8}, retention_days=1)

    def seen(days: float, **more: Any) -> tuple[list[BinEntry], bool, bool]:
        query = DueBinEntriesQuery(tenant=ACME, at=NOON + timedelta(days=days), limit=10, **more)
        found = driver.database.run_transaction_blocking(partial(queries.list_due_bin_entries, query=query))
        return found.due, found.waiting, found.next is not None

    entry = BinEntry(path=DEV, number=7)
    assert seen(0.5) == ([], False, True)
    assert seen(2) == ([entry], False, False)
    assert seen(2, busy=[ACME]) == seen(2, busy=[DEV]) == seen(2, later=[DEV]) == ([], False, False)
    assert seen(2, later=[ACME]) == ([entry], False, False)
    await driver.grant(ACME, "delete", spec={"retention_days": 1, "cascade": True})
    assert seen(2) == ([entry], True, False)  # the account is on its way into the bin
    assert driver.database.run_transaction_blocking(queries.list_bin_tenants) == [ACME, "image"]


@pytest.fixture
def hypervisors(driver: StoreDriver) -> Iterator[sa.Connection]:
    """The simulated hypervisor's tables beside ours, until the test ends."""
    with driver.database.engine.connect() as connection, connection.begin() as transaction:
        simulated.create_all(connection)
        yield connection
        transaction.rollback()


def test_the_hypervisor_reckons_the_room_of_a_node_from_what_runs_there(hypervisors: sa.Connection) -> None:
    rest = {"machine": "", "image": "i", "memory": 2, "effects": 1, "snapshots": "[]"}
    rows = [
        {"path": f"m{n}", "kind": "machine", "state": "stopped" if n % 2 else "running", "node": f"n{n // 10}", **rest}
        for n in range(5_000)
    ]
    hypervisors.execute(sa.insert(things), rows)
    assert state._used_memory(hypervisors, "n7") == 10
    asked = {"node": "n7", "states": list(state.MEMORY_STATES)}
    assert "sim_things_on_node" in plan(hypervisors, state._SUM_USED_MEMORY, asked)
