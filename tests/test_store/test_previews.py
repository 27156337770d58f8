"""Dry runs name every object that an action would act on, with its place, what it is told and what it becomes."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from domain.dryrun import ActionPreview, DryRun
from domain.edge.messages import CrmConnect, CrmResponse
from domain.edge.reports import AnswerReport, ConnectReport
from domain.model import Move, Step
from store.edge.links import accept_connection, record_answer
from store.hooks import GrantExtras, Hooks
from store.systems.hooks import SqlSystemStore
from tests.test_store import test_systems as systems
from tests.test_store.driver import FRONT_1, FRONT_2, NOON, WEB, StoreDriver, claim, no_doubt
from tests.test_store.test_machines import ACME, DB, DEV, FIRST, IMAGE, SECOND, make
from tests.test_store.test_machines import WEB as WEB_MACHINE

DISK = f"{ACME}:disk:d1"
BERLIN, MUNICH = "org:acme:cloudlet:berlin", "org:acme:cloudlet:munich"
LEASE, HOSTS = "project:p1:lease:l1", ["pool:main:host:h1", "pool:main:host:h2", "pool:main:host:h3"]
HOUR = {"start": "2026-01-01 13:00", "end": "2026-01-01 14:00"}


async def preview(driver: StoreDriver, path: str, action: str, spec: dict[str, Any] | None = None) -> ActionPreview:
    """A dry run of what would go ahead. It changes nothing."""
    before = await driver.dump()
    answer = await driver.inventory.preview_admission(claim(path, action, at=NOON, spec=spec))
    assert await driver.dump() == before
    assert isinstance(answer, DryRun)
    assert answer.preview, answer.refusal
    assert answer.preview.targets == len(answer.preview.changes)
    return answer.preview


async def told(driver: StoreDriver, path: str, action: str, spec: dict[str, Any] | None = None) -> list[Any]:
    """Each target: its name, its place, its action, and its statuses before, during and after."""
    changes = (await preview(driver, path, action, spec)).changes
    assert all(change.simulated for change in changes if change.path.startswith(("account", "node", "pool", "system")))
    return [
        (change.path, change.placement, change.action, change.came_from, change.during, change.then)
        for change in changes
    ]


@pytest.fixture
async def account(driver: StoreDriver) -> StoreDriver:
    """An account with two machines on a node, room on another, and a disk attached to one of them."""
    for path in (ACME, DEV, IMAGE):
        await make(driver, path)
    for node in (FIRST, SECOND):
        await make(driver, node, memory=8)
    for machine in (DB, WEB_MACHINE):
        await make(driver, machine, left={"node": "n1"}, image="ubuntu", node="n1")
    await make(driver, DISK)
    await make(driver, DISK, "attach", left={"machine": DB}, machine="dev/db")
    return driver


@pytest.mark.parametrize(
    ("path", "action", "spec", "word", "during", "then"),
    [
        (FIRST, "maintain", {}, "migrate", "RUNNING", "RUNNING"),
        (FIRST, "maintain", {"mode": "move-or-stop"}, "migrate, or stop", "RUNNING", "RUNNING"),
        (FIRST, "maintain", {"mode": "stop"}, "stop", "STOPPING", "HALTED"),
        (FIRST, "decommission", None, "migrate", "RUNNING", "RUNNING"),
    ],
)
async def test_an_action_on_a_node_names_the_machines_and_what_they_are_told(
    account: StoreDriver, path: str, action: str, spec: dict[str, Any] | None, word: str, during: str, then: str
) -> None:
    assert await told(account, path, action, spec) == [
        (machine, "n1", word, "RUNNING", during, then) for machine in (DB, WEB_MACHINE)
    ]
    assert await told(account, SECOND, action, spec) == []


async def test_enable_names_the_machines_that_start_again(account: StoreDriver) -> None:
    await make(account, DB, "stop")
    await make(account, FIRST, "maintain", left={"stopped": [DB]}, mode="stop")
    assert await told(account, FIRST, "enable") == [(DB, "n1", "start", "HALTED", "STARTING", "RUNNING")]


async def test_a_cascade_names_all_that_goes(account: StoreDriver) -> None:
    machine = ("delete", "RUNNING", "DELETING", "DELETED")
    machines = [(path, "n1", *machine) for path in (DB, WEB_MACHINE)]
    disk = (DISK, DB, "delete", "ASSIGNED", "DELETING", "TOBEDELETED")
    space = (DEV, "", "delete", "DEPLOYED", "DELETING", "DELETED")
    assert await told(account, ACME, "delete", {"cascade": True}) == [*machines, disk, space]
    assert await told(account, DEV, "delete", {"cascade": True}) == [*machines, disk]
    assert await told(account, DB, "delete", {}) == [disk]
    stopped = [(path, "n1", "stop", "RUNNING", "STOPPING", "HALTED") for path in (DB, WEB_MACHINE)]
    assert await told(account, ACME, "disable") == [*stopped, (DEV, "", "pause", "DEPLOYED", "PAUSING", "PAUSED")]


async def test_a_disk_that_comes_with_its_machine_is_named(account: StoreDriver) -> None:
    new = f"{ACME}:disk:d2"
    assert await told(account, DB, "add-disk", {"disk": "d2"}) == [(new, "", "assign", "None", "ASSIGNING", "ASSIGNED")]
    assert await told(account, DISK, "detach") == [(DB, "n1", "detach-disk", "RUNNING", "DETACHING_DISK", "RUNNING")]


async def test_a_deploy_names_the_services_that_it_changes_and_a_teardown_those_that_it_removes(
    driver: StoreDriver,
) -> None:
    shop, web, a, b, bc = (f"system:shop{tail}" for tail in ("", ":web", ":a", ":a:b", ":a:bc"))
    await systems.create(driver)
    new = [(path, "", "deploy", "None", "pending", "stable") for path in (b, bc, web)]
    deploy = {"definition": systems.TREE}
    assert await told(driver, shop, "deploy", deploy) == [(a, "", "deploy", "None", "stable", "stable"), *new]
    grant, store = await systems.deploy(driver), SqlSystemStore(driver.database)
    await systems.accept(driver, store, grant)
    await systems.landed(driver, store, grant)
    assert await told(driver, shop, "deploy", deploy) == []
    fewer = {"definition": {"parts": [{"name": "web", "command": ["other"]}]}}
    gone = [(path, "", "remove", "stable", "deleting", "None") for path in (a, b, bc)]
    changed = (web, "", "deploy", "stable", "updating", "stable")
    assert await told(driver, shop, "deploy", fewer) == [*gone, changed]
    assert await told(driver, shop, "teardown", {}) == [*gone, (web, *gone[0][1:])]
    assert await told(driver, shop, "delete") == [*gone, (web, *gone[0][1:])]


async def test_a_lease_names_its_hosts_and_a_host_its_leases(driver: StoreDriver) -> None:
    for host in HOSTS:
        await driver.finish(await driver.grant(host, "add", spec={}))
    booked = [(host, "", "book", "UP", "UP", "UP") for host in HOSTS[:2]]
    assert (await told(driver, LEASE, "create", {**HOUR, "hosts": 2}))[-2:] == booked
    await driver.finish(await driver.grant(LEASE, "create", spec={**HOUR, "hosts": 2}))
    assert await told(driver, LEASE, "update", {"end": "2026-01-01 15:00"}) == booked
    assert await told(driver, LEASE, "delete") == [(host, "", "release", "UP", "UP", "UP") for host in HOSTS[:2]]
    swap = (LEASE, "", "reallocate: r1 lost h1, got h3", "PENDING", "PENDING", "PENDING")
    assert await told(driver, HOSTS[0], "fail") == [swap]


async def test_the_end_of_a_lease_names_the_mci_that_it_suspends(driver: StoreDriver) -> None:
    await driver.make()
    reservation = {"resource_type": "mci", "mci": WEB, "on_end": "suspend"}
    await driver.finish(await driver.grant(LEASE, "create", spec={**HOUR, "reservations": [reservation]}))
    assert await told(driver, LEASE, "delete") == [], "it has not started"
    start = await driver.grant(LEASE, "start", spec={"due": "2026-01-01T13:00:00Z"})
    moves = [
        Move(path=f"{LEASE}:reservation:r1", to="active"),
        Move(path=f"{LEASE}:event:start_lease", to="DONE", action="start"),
    ]
    stepped = await driver.inventory.apply_step(Step(path=LEASE, epoch=start.epoch, at=driver.now(), moves=moves))
    assert stepped.made, stepped
    await driver.finish(start)
    suspend = (WEB, "", "suspend", "Running:2 (R:2/2)", "Suspending", "at rest")
    assert (await told(driver, LEASE, "end", {}))[-1] == suspend


async def _connect(driver: StoreDriver, cloudlet: str) -> None:
    """A cloudlet whose CRM is Ready, with a cluster."""
    await driver.finish(await driver.grant(cloudlet, "create", spec={}))
    said = ConnectReport(cloudlet=cloudlet, said=CrmConnect(notify_id=1, backend="simulated"), at=NOON)
    await driver.database.run_transaction(partial(accept_connection, doubt=no_doubt, fact=said))
    ready = AnswerReport(cloudlet=cloudlet, said=CrmResponse(state="Ready", notify_id=1), at=NOON)
    await driver.database.run_transaction(partial(record_answer, doubt=no_doubt, fact=ready))
    await driver.finish(await driver.grant(f"{cloudlet}:cluster:c1", "create", spec={}))


async def test_a_failover_and_a_cascade_name_the_apps(driver: StoreDriver) -> None:
    for cloudlet in (BERLIN, MUNICH):
        await _connect(driver, cloudlet)
    cluster = f"{BERLIN}:cluster:c1"
    for app in (f"{cluster}:app:mail", f"{cluster}:app:shop", f"{MUNICH}:cluster:c1:app:mail"):
        await driver.finish(await driver.grant(app, "create", spec={}))
    there = f"{MUNICH}:cluster:c1:app:shop"
    assert await told(driver, BERLIN, "maintenance-start", {"failover": True}) == [
        (f"{cluster}:app:mail", "", "cannot fail over", "Ready", "Ready", "Ready"),
        (there, "", "create", "NotPresent", "CreateRequested", "Ready"),
    ]
    assert await told(driver, BERLIN, "maintenance-start", {}) == []
    assert await told(driver, cluster, "delete", {"cascade": True}) == [
        (f"{cluster}:app:{name}", "", "delete", "Ready", "DeletePrepare", "NotPresent") for name in ("mail", "shop")
    ]


async def test_what_changes_in_a_spec_is_shown_before_the_action_stores_it(driver: StoreDriver) -> None:
    await _connect(driver, BERLIN)
    changed: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
        (BERLIN, "upgrade", {"version": "v2"}, {"version": ["v1", "v2"]}),
        (f"{BERLIN}:cluster:c1", "update", {"nodes": 3}, {"nodes": [1, 3]}),
    ]
    for path, action, spec, wanted in changed:
        assert (await preview(driver, path, action, spec)).spec_changes == wanted


async def test_what_begins_along_with_an_action_is_named_with_its_place(account: StoreDriver) -> None:
    """A VM has it in its row; a machine, in what is known about it."""
    await account.make()
    vm = ("aws/eu-1", "suspend", "Running", "Suspending", "Suspended")
    assert await told(account, WEB, "suspend") == [(FRONT_1, *vm), (FRONT_2, *vm)]
    stopping = GrantExtras(moves=[Move(path=DB, to="STOPPING", action="stop")])
    account.hooks["account"] = Hooks(admit=lambda *_: stopping)
    assert await told(account, ACME, "disable") == [(DB, "n1", "stop", "RUNNING", "STOPPING", "HALTED")]
