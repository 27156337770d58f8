"""Ports of one machine: two services never get the same one, whoever asks at the same moment, on both databases."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from domain.errors import Category
from domain.model import ActionEnding, ActionResult, Admission, Grant, Move
from domain.systems.ports import AcceptDeploy, RevertDeploy, SystemWork
from store import begin, finish, recovery
from store.hostports import host_ports
from store.systems.hooks import SqlSystemStore
from tests.test_store.driver import EVERYBODY, HOOKS, NOON, StoreDriver, claim
from tests.test_store.test_edge_races import BERLIN, CLUSTER, site
from tests.test_store.test_races import beginning, granted, overtaken, together

SHOP, BLOG = "system:shop", "system:blog"
PORT = 28_080
APP = f"{CLUSTER}:app"


def tree(**ports: int | None) -> dict[str, Any]:
    """A definition with a service for each name, which has that port."""
    parts = [{"name": name, "command": ["run"], **({"port": port} if port else {})} for name, port in ports.items()]
    return {"definition": {"parts": parts}}


async def systems(driver: StoreDriver, backend: str = "process", *names: str) -> None:
    for name in names or (SHOP, BLOG):
        await driver.finish(await driver.grant(name, "create", spec={"backend": backend}))


async def accept(driver: StoreDriver, grant: Grant, spec: dict[str, Any]) -> SystemWork:
    work = SystemWork(path=grant.path, epoch=grant.epoch, backend="process", record=str(grant.details["record"]))
    await SqlSystemStore(driver.database).accept_deploy(AcceptDeploy(work=work, definition=spec["definition"], at=NOON))
    return work


async def end(driver: StoreDriver, grant: Grant, result: ActionResult = ActionResult.SUCCEEDED) -> None:
    """Ends a deploy: what it removes goes, and the rest is as it is."""
    work = SystemWork(path=grant.path, epoch=grant.epoch, backend="process")
    left = await SqlSystemStore(driver.database).list_changed_parts(work)
    moves = [
        Move(path=part.path, to="None" if part.status == "deleting" else "stable", action=_doing(part.status))
        for part in left
        if part.path != grant.path
    ]
    ending = ActionEnding(epoch=grant.epoch, run=grant.run, path=grant.path, result=result, at=NOON, moves=moves)
    await driver.inventory.finish_action(ending)


def _doing(status: str) -> str:
    return "remove" if status == "deleting" else "deploy"


async def deploy(driver: StoreDriver, path: str, spec: dict[str, Any]) -> None:
    grant = await driver.grant(path, "deploy", spec=spec)
    await accept(driver, grant, spec)
    await end(driver, grant)


async def ports(driver: StoreDriver) -> dict[int, str]:
    def read(connection: sa.Connection) -> dict[int, str]:
        return {row.port: row.path for row in connection.execute(sa.select(host_ports))}

    return await driver.database.run_transaction(read)


async def test_a_service_with_the_port_of_another_systems_service_is_refused_and_nothing_is_written(
    driver: StoreDriver,
) -> None:
    await systems(driver)
    await deploy(driver, SHOP, tree(web=PORT))
    before = await driver.dump()
    refusal = await driver.refusal(BLOG, "deploy", spec=tree(other=PORT + 1, page=PORT))
    assert refusal.category is Category.NOT_ALLOWED
    assert refusal.message == f"a machine has each port once: port 28080 of {BLOG}:page is that of {SHOP}:web"
    assert refusal.hint == "choose another port, or take it away there first"
    assert await driver.dump() == before
    assert (await driver.check(BLOG, "deploy", spec=tree(page=PORT))).refusal == refusal.model_copy()
    assert await driver.dump() == before
    await driver.grant(BLOG, "deploy", spec=tree(page=PORT + 1))


async def test_a_port_that_an_open_deploy_asks_for_is_taken_before_it_is_in_any_definition(driver: StoreDriver) -> None:
    await systems(driver)
    await driver.grant(SHOP, "deploy", spec=tree(web=PORT))
    refusal = await driver.refusal(BLOG, "deploy", spec=tree(page=PORT))
    assert f"is that of {SHOP}:web, by deploy of {SHOP}, which is not finished" in refusal.message
    assert refusal.hint.endswith(f"starter wait {SHOP}")


@pytest.mark.parametrize("backends", [("process", "container"), ("container", "process")])
async def test_processes_and_containers_share_the_ports_of_a_machine(
    driver: StoreDriver, backends: tuple[str, str]
) -> None:
    for name, backend in zip((SHOP, BLOG), backends, strict=True):
        await systems(driver, backend, name)
    spec = tree(web=PORT)
    for part in spec["definition"]["parts"]:
        part["image"] = "busybox"
    with_image = {"process": tree(web=PORT), "container": spec}
    await driver.grant(SHOP, "deploy", spec=with_image[backends[0]])
    assert "port 28080" in (await driver.refusal(BLOG, "deploy", spec=with_image[backends[1]])).message


async def test_simulated_services_have_no_ports_on_any_machine(driver: StoreDriver) -> None:
    await systems(driver, "simulated")
    for name in (SHOP, BLOG):
        await driver.grant(name, "deploy", spec=tree(web=PORT))
    assert await ports(driver) == {}


async def test_a_service_keeps_its_port_through_updates_and_frees_the_one_that_it_leaves(driver: StoreDriver) -> None:
    await systems(driver)
    await deploy(driver, SHOP, tree(web=PORT))
    await deploy(driver, SHOP, tree(web=PORT, more=None))
    grant = await driver.grant(SHOP, "deploy", spec=tree(web=PORT + 1))
    assert await ports(driver) == {PORT: f"{SHOP}:web", PORT + 1: f"{SHOP}:web"}  # it may have to go back
    await accept(driver, grant, tree(web=PORT + 1))
    assert "port 28080" in (await driver.refusal(BLOG, "deploy", spec=tree(page=PORT))).message
    await end(driver, grant)
    assert await ports(driver) == {PORT + 1: f"{SHOP}:web"}
    await deploy(driver, BLOG, tree(page=PORT))


async def test_two_services_of_a_system_may_exchange_their_ports(driver: StoreDriver) -> None:
    await systems(driver)
    await deploy(driver, SHOP, tree(a=PORT, b=PORT + 1))
    await deploy(driver, SHOP, tree(a=PORT + 1, b=PORT))
    assert await ports(driver) == {PORT: f"{SHOP}:b", PORT + 1: f"{SHOP}:a"}


async def test_a_port_of_a_service_that_the_same_deploy_removes_is_refused_as_that_one_goes_last(
    driver: StoreDriver,
) -> None:
    await systems(driver)
    await deploy(driver, SHOP, tree(a=PORT))
    refusal = await driver.refusal(SHOP, "deploy", spec=tree(b=PORT))
    assert refusal.message == f"port 28080 of {SHOP}:b is that of {SHOP}:a, which this deploy removes last"
    await deploy(driver, SHOP, tree(b=None))
    await deploy(driver, SHOP, tree(b=PORT))


async def test_a_port_of_a_service_beside_the_deployed_part_is_refused(driver: StoreDriver) -> None:
    await systems(driver)
    await deploy(driver, SHOP, tree(a=PORT))
    spec = {"definition": {"command": ["run"], "port": PORT}}
    assert f"is that of {SHOP}:a" in (await driver.refusal(f"{SHOP}:b", "deploy", spec=spec)).message


async def test_a_deploy_that_is_undone_gives_its_new_port_back(driver: StoreDriver) -> None:
    await systems(driver)
    await deploy(driver, SHOP, tree(web=PORT))
    grant = await driver.grant(SHOP, "deploy", spec=tree(web=PORT + 1))
    work = await accept(driver, grant, tree(web=PORT + 1))
    await SqlSystemStore(driver.database).revert_deploy(RevertDeploy(work=work, at=NOON))
    await end(driver, grant, ActionResult.FAILED)
    assert await ports(driver) == {PORT: f"{SHOP}:web"}


async def test_a_deploy_that_is_abandoned_before_its_definition_is_written_gives_its_port_back(
    driver: StoreDriver,
) -> None:
    await systems(driver)
    grant = await driver.grant(SHOP, "deploy", spec=tree(web=PORT))
    dead = partial(recovery.abandon_run, hooks=HOOKS, owner=SHOP, run=grant.run, at=NOON, message="dead")
    await driver.database.run_transaction(dead)
    assert await ports(driver) == {}
    await driver.grant(BLOG, "deploy", spec=tree(page=PORT))


async def test_a_teardown_and_a_removal_that_the_backend_ends_later_free_the_ports(driver: StoreDriver) -> None:
    await systems(driver)
    await deploy(driver, SHOP, tree(web=PORT))
    store = SqlSystemStore(driver.database)
    grant = await driver.grant(SHOP, "teardown")
    work = SystemWork(path=SHOP, epoch=grant.epoch, backend="process", record=str(grant.details["record"]))
    await store.accept_removal(RevertDeploy(work=work, at=NOON))
    await driver.finish(grant, ActionResult.FAILED)
    assert await ports(driver) == {PORT: f"{SHOP}:web"}  # it may still listen
    await store.delete_removed_parts(await store.list_parts_being_removed("process"), NOON)
    assert await ports(driver) == {}


async def test_a_port_that_nothing_needs_any_more_is_free_although_it_is_still_reserved(driver: StoreDriver) -> None:
    await systems(driver)
    lost = {"host": "services", "port": PORT, "path": f"{SHOP}:gone", "run": "lost"}
    await driver.database.run_transaction(lambda connection: connection.execute(sa.insert(host_ports), lost))
    await driver.grant(BLOG, "deploy", spec=tree(page=PORT))
    assert await ports(driver) == {PORT: f"{BLOG}:page"}


async def test_of_many_systems_that_ask_for_one_port_at_once_one_gets_it(
    driver: StoreDriver, rival: StoreDriver
) -> None:
    names = [f"system:s{number}" for number in range(12)]
    await systems(driver, "process", *names)
    works = [
        beginning(claim(name, "deploy", spec=tree(a=PORT + number % 2, b=PORT + 1 - number % 2)))
        for number, name in enumerate(names)
    ]
    assert len(granted(together([driver, rival], works))) == 1


def first_of(path: str, **spec: Any) -> Callable[[sa.Connection], Admission]:
    return partial(begin.begin_action, hooks=HOOKS, access=EVERYBODY, claim=claim(path, "deploy", **spec))


async def test_the_second_of_two_begins_waits_for_the_first_and_is_refused(
    pair: tuple[StoreDriver, StoreDriver],
) -> None:
    await systems(pair[0])
    second = await overtaken(pair, first_of(SHOP, spec=tree(web=PORT)), first_of(BLOG, spec=tree(page=PORT)))
    assert second.refusal
    assert f"that of {SHOP}:web, by deploy of {SHOP}" in second.refusal.message


async def test_a_begin_that_waited_for_a_finish_gets_the_port_that_was_released(
    pair: tuple[StoreDriver, StoreDriver],
) -> None:
    await systems(pair[0])
    grant = await pair[0].grant(SHOP, "deploy", spec=tree(web=PORT))
    ending = ActionEnding(epoch=grant.epoch, run=grant.run, path=SHOP, result=ActionResult.FAILED, at=NOON)
    ends = partial(finish.finish_action, hooks=HOOKS, ending=ending)
    second = await overtaken(pair, ends, first_of(BLOG, spec=tree(page=PORT)))
    assert second.grant
    assert await ports(pair[0]) == {PORT: f"{BLOG}:page"}


async def clustered(driver: StoreDriver) -> None:
    await site(driver)
    await ready(driver, await driver.grant(CLUSTER, "create", spec={}))


async def ready(driver: StoreDriver, grant: Grant, **changes: Any) -> None:
    """Ends an action of an instance well, as its CRM says."""
    through = {"create": ("Creating", "Ready"), "update": ("Updating", "Ready")}[grant.action]
    moves = [Move(path=grant.path, to=to, actor="CRM") for to in through]
    moves[-1] = moves[-1].model_copy(update=changes)
    ending = ActionEnding(
        epoch=grant.epoch, run=grant.run, path=grant.path, result=ActionResult.SUCCEEDED, at=NOON, moves=moves
    )
    outcome = await driver.inventory.finish_action(ending)
    assert outcome.status == "Ready", outcome


async def test_two_apps_of_a_cloudlet_cannot_have_one_port(driver: StoreDriver) -> None:
    await clustered(driver)
    await ready(driver, await driver.grant(f"{APP}:a", "create", spec={"port": PORT}))
    refusal = await driver.refusal(f"{APP}:b", "create", spec={"port": PORT})
    assert refusal.category is Category.NOT_ALLOWED
    assert refusal.message == f"a cloudlet has each port once: port 28080 of {APP}:b is that of {APP}:a"


async def test_the_port_of_an_update_is_taken_while_it_runs_and_its_former_one_is_free_afterwards(
    driver: StoreDriver,
) -> None:
    await clustered(driver)
    await ready(driver, await driver.grant(f"{APP}:a", "create", spec={"port": PORT}))
    grant = await driver.grant(f"{APP}:a", "update", spec={"port": PORT + 1})
    refusal = await driver.refusal(f"{APP}:b", "create", spec={"port": PORT + 1})
    assert f"is that of {APP}:a, by update of {APP}:a, which is not finished" in refusal.message
    assert "port 28080" in (await driver.refusal(f"{APP}:b", "create", spec={"port": PORT})).message
    await ready(driver, grant, spec={**grant.details["spec"]})
    assert await ports(driver) == {PORT + 1: f"{APP}:a"}
    await driver.grant(f"{APP}:b", "create", spec={"port": PORT})


async def test_an_update_that_fails_leaves_the_app_its_port_and_gives_the_new_one_back(driver: StoreDriver) -> None:
    await clustered(driver)
    await ready(driver, await driver.grant(f"{APP}:a", "create", spec={"port": PORT}))
    grant = await driver.grant(f"{APP}:a", "update", spec={"port": PORT + 1})
    await driver.finish(grant, ActionResult.FAILED)
    assert await ports(driver) == {PORT: f"{APP}:a"}


async def test_apps_of_two_cloudlets_may_have_one_port(driver: StoreDriver) -> None:
    await clustered(driver)
    await driver.grant(f"{APP}:a", "create", spec={"port": PORT})
    far = BERLIN.replace("berlin", "paris")
    await driver.finish(await driver.grant(far, "create", spec={}))
    ignoring = {"override": "ignore-crm"}
    cluster = await driver.grant(f"{far}:cluster:c1", "create", spec=ignoring)
    ending = ActionEnding(
        epoch=cluster.epoch, run=cluster.run, path=cluster.path, result=ActionResult.SUCCEEDED, at=NOON
    )
    await driver.inventory.finish_action(ending)
    await driver.grant(f"{far}:cluster:c1:app:a", "create", spec={"port": PORT, **ignoring})


async def test_of_two_updates_to_one_port_the_second_waits_and_is_refused(
    pair: tuple[StoreDriver, StoreDriver],
) -> None:
    await clustered(pair[0])
    for name in ("a", "b"):
        await ready(pair[0], await pair[0].grant(f"{APP}:{name}", "create", spec={}))
    works = [
        partial(
            begin.begin_action,
            hooks=HOOKS,
            access=EVERYBODY,
            claim=claim(f"{APP}:{name}", "update", spec={"port": PORT}),
        )
        for name in ("a", "b")
    ]
    second = await overtaken(pair, works[0], works[1])
    assert second.refusal
    assert f"is that of {APP}:a, by update" in second.refusal.message
