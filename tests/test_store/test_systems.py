"""Systems in the store, on both databases: admission, numbers, replacing and restoring subtrees, backend reports."""

from __future__ import annotations

import asyncio
from datetime import datetime
from functools import partial
from threading import Thread
from typing import Any

import pytest
import sqlalchemy as sa

from domain.model import ActionResult, Grant, Move, Step, StepResult
from domain.services.rollout import ServiceFacts
from domain.systems.ports import AcceptDeploy, RevertDeploy, SystemWork
from domain.systems.rules import tree_path
from store.recovery import abandon_run
from store.steps import apply_step
from store.systems.hooks import (
    HOOKS,
    SqlSystemStore,
    _accept_deploy,
    _accept_removal,
    _record_observations,
    _revert_deploy,
)
from tests.test_store.driver import StoreDriver
from tests.test_store.test_races import overtaken

SHOP = "system:shop"
RUN: dict[str, Any] = {"command": ["run"]}
TREE = {"parts": [{"name": "web", **RUN}, {"name": "a", "parts": [{"name": "b", **RUN}, {"name": "bc", **RUN}]}]}


@pytest.fixture
def systems(driver: StoreDriver) -> SqlSystemStore:
    return SqlSystemStore(driver.database)


async def create(driver: StoreDriver) -> None:
    await driver.finish(await driver.grant(SHOP, "create", spec={"backend": "simulated"}))


async def deploy(driver: StoreDriver, path: str = SHOP, definition: dict[str, Any] = TREE, run: str = "") -> Grant:
    return await driver.grant(path, "deploy", run, spec={"definition": definition})


def work(grant: Grant) -> SystemWork:
    return SystemWork(
        path=grant.path, epoch=grant.epoch, backend="simulated", record=str(grant.details.get("record", ""))
    )


async def accept(driver: StoreDriver, systems: SqlSystemStore, grant: Grant, definition: dict[str, Any] = TREE) -> None:
    stepped = await systems.accept_deploy(AcceptDeploy(work=work(grant), definition=definition, at=driver.now()))
    assert stepped.made, stepped


async def states(driver: StoreDriver) -> dict[str, str]:
    return {tree_path(view.path): view.phase for view in await driver.inventory.list_objects("part", SHOP)}


async def landed(driver: StoreDriver, systems: SqlSystemStore, grant: Grant) -> None:
    """Everything that the deploy touched is stable, and it ends."""

    touched = [part.path for part in await systems.list_changed_parts(work(grant)) if part.path != grant.path]
    moves = [Move(path=path, to="stable", action="deploy") for path in touched]
    moves += [Move(path=work(grant).record, to=stage) for stage in ("in progress", "succeeded")]
    stepped = await driver.inventory.apply_step(Step(path=grant.path, epoch=grant.epoch, at=driver.now(), moves=moves))
    assert stepped.made, stepped
    await driver.finish(grant)


async def whole(driver: StoreDriver, systems: SqlSystemStore) -> None:
    await create(driver)
    grant = await deploy(driver)
    await accept(driver, systems, grant)
    await landed(driver, systems, grant)


async def test_a_deploy_that_is_tried_again_is_the_same_deploy(driver: StoreDriver, systems: SqlSystemStore) -> None:
    await create(driver)
    first = await deploy(driver, run="r1")
    assert await deploy(driver, run="r1") == first
    assert first.details == {"backend": "simulated", "name": "d1", "record": f"{SHOP}::deploy:d1"}
    await accept(driver, systems, first)
    before = await driver.dump()
    await accept(driver, systems, first)
    assert await driver.dump() == before
    await landed(driver, systems, first)
    again = await driver.grant(SHOP, "teardown", "r2")
    assert await driver.grant(SHOP, "teardown", "r2") == again
    for _ in range(2):
        assert (await systems.accept_removal(RevertDeploy(work=work(again), at=driver.now()))).made
    assert set((await states(driver)).values()) == {"deleting"}
    await driver.finish(again, ActionResult.FAILED)
    assert set((await states(driver)).values()) == {"stable"}
    assert await driver.inventory.list_locks() == []


async def test_deploys_of_siblings_get_numbers_of_their_own_however_close_they_come(
    driver: StoreDriver, systems: SqlSystemStore, rival: StoreDriver
) -> None:
    await create(driver)
    some = {"parts": [{"name": f"s{n}", **RUN} for n in range(10)]}
    grant = await deploy(driver, definition=some)
    await accept(driver, systems, grant, some)
    await landed(driver, systems, grant)
    asked = [deploy((driver, rival)[n % 2], f"{SHOP}:s{n}", RUN) for n in range(10)]
    names = [granted.details["name"] for granted in await asyncio.gather(*asked)]
    assert sorted(names) == sorted(f"d{n}" for n in range(2, 12))


async def test_a_refused_deploy_changes_nothing_and_takes_no_number(
    driver: StoreDriver, systems: SqlSystemStore
) -> None:
    await whole(driver, systems)
    before = await driver.dump()
    refusal = await driver.refusal(f"{SHOP}:no:x", "deploy", spec={"definition": RUN})
    assert refusal.message == f"there is no {SHOP}:no"
    assert await driver.dump() == before
    assert (await driver.check(f"{SHOP}:web", "deploy", spec={"definition": RUN})).grant
    assert await driver.dump() == before
    held = await deploy(driver, f"{SHOP}:web", RUN)
    refusal = await driver.refusal(SHOP, "teardown")
    assert refusal.message.endswith("locked by deploy d2")
    await driver.finish(held)


async def test_a_subtree_is_replaced_and_put_back(driver: StoreDriver, systems: SqlSystemStore) -> None:
    await whole(driver, systems)
    before = {part.path: part.spec for part in await systems.list_services(SHOP)}
    new = {"parts": [{"name": "b", **RUN, "instances": 2}, {"name": "c", **RUN}]}
    grant = await deploy(driver, f"{SHOP}:a", new)
    await accept(driver, systems, grant, new)
    assert await states(driver) == {
        "/a": "updating", "/a/b": "scaling", "/a/bc": "deleting", "/a/c": "pending", "/web": "stable",
    }  # fmt: skip
    for _ in range(2):  # it may be done twice
        assert (await systems.revert_deploy(RevertDeploy(work=work(grant), at=driver.now()))).made
        assert await states(driver) == {
            "/a": "updating", "/a/b": "scaling", "/a/bc": "updating", "/a/c": "deleting", "/web": "stable",
        }  # fmt: skip
    kept = {part.path: part.spec for part in await systems.list_services(SHOP) if part.status != "deleting"}
    assert kept == before
    await driver.finish(grant, ActionResult.FAILED)


async def test_what_a_backend_says_while_a_deploy_is_judged_comes_before_it_or_after_it(
    driver: StoreDriver, systems: SqlSystemStore, rival: StoreDriver
) -> None:
    """In between, the deploy would be granted, and change nothing."""
    await whole(driver, systems)
    ill = [ServiceFacts(f"{SHOP}:web", 1, 1, 1, 0, 0, 1, "gone")]
    saying = Thread(target=lambda: asyncio.run(SqlSystemStore(rival.database).record_observations(ill, driver.now())))

    def get_in_between(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.startswith("INSERT INTO actions"):  # it has been judged, and is about to be written
            saying.start()
            saying.join(0.5)  # time enough to get in between, if that can be

    sa.event.listen(driver.database.engine, "before_cursor_execute", get_in_between)
    try:
        grant = await deploy(driver, f"{SHOP}:web", RUN)
    finally:
        sa.event.remove(driver.database.engine, "before_cursor_execute", get_in_between)
    saying.join()
    assert (await driver.inventory.read_object(f"{SHOP}:web")).epoch == grant.epoch
    assert (await states(driver))["/web"] == "updating"


async def test_a_definition_is_judged_by_parts_that_no_backend_changes_meanwhile(
    pair: tuple[StoreDriver, StoreDriver],
) -> None:
    """Else a service that degrades in that moment would be taken for one that is alike and well."""
    driver = pair[0]
    await whole(driver, SqlSystemStore(driver.database))
    grant = await deploy(driver)
    asked = AcceptDeploy(work=work(grant), definition=TREE, at=driver.now())
    ill = [ServiceFacts(f"{SHOP}:a:b", 1, 1, 1, 0, 0, 1, "gone")]
    seen = partial(_record_observations, facts=ill, at=driver.now())
    stepped = await overtaken(pair, seen, lambda connection: _accept_deploy(connection, asked))
    assert stepped.made
    assert [part.path for part in await SqlSystemStore(driver.database).list_changed_parts(work(grant))] == [
        f"{SHOP}:a:b"
    ]


async def test_a_removal_takes_along_what_a_backend_calls_ill_in_that_moment(
    pair: tuple[StoreDriver, StoreDriver],
) -> None:
    driver = pair[0]
    await whole(driver, SqlSystemStore(driver.database))
    grant = await driver.grant(SHOP, "teardown")
    ill = [ServiceFacts(f"{SHOP}:a:b", 1, 1, 1, 0, 0, 1, "gone")]
    asked = RevertDeploy(work=work(grant), at=driver.now())
    seen = partial(_record_observations, facts=ill, at=driver.now())
    stepped = await overtaken(pair, seen, lambda connection: _accept_removal(connection, asked))
    assert stepped.made
    assert set((await states(driver)).values()) == {"deleting"}


async def test_a_step_moves_a_part_from_what_a_backend_calls_it_in_that_moment(
    pair: tuple[StoreDriver, StoreDriver],
) -> None:
    driver, part = pair[0], f"{SHOP}:a:b"
    await whole(driver, SqlSystemStore(driver.database))
    grant = await deploy(driver)
    ill = [ServiceFacts(part, 1, 1, 1, 0, 0, 1, "gone")]
    moves = [Move(path=part, to="updating", action="deploy")]
    step = Step(path=SHOP, epoch=grant.epoch, at=driver.now(), moves=moves)
    says = partial(_record_observations, facts=ill, at=driver.now())
    assert (await overtaken(pair, says, partial(apply_step, hooks=HOOKS, step=step))).made
    assert (await driver.told(part))[-1] == ("deploy", "degraded", "updating")


@pytest.mark.parametrize("late", ["accept", "remove", "revert"])
@pytest.mark.parametrize("since", ["nothing", "deleted", "made anew"])
async def test_a_worker_that_wakes_after_its_action_writes_nothing(
    driver: StoreDriver, systems: SqlSystemStore, late: str, since: str
) -> None:
    await create(driver)
    grant = await deploy(driver)
    await driver.inventory.abandon_run(SHOP, grant.run, driver.now(), "gone")
    if since != "nothing":
        assert (await driver.finish(await driver.grant(SHOP, "delete"))).status == "None"
    if since == "made anew":
        await create(driver)
        await accept(driver, systems, await deploy(driver))
    before = await driver.dump()
    stepped = await late_write(systems, late, grant, driver.now())
    assert (stepped.made, stepped.refusals) == (False, [f"{SHOP}: ignored: the action no longer owns the object"])
    assert await driver.dump() == before


async def late_write(systems: SqlSystemStore, late: str, grant: Grant, at: datetime) -> StepResult:
    if late == "accept":
        return await systems.accept_deploy(AcceptDeploy(work=work(grant), definition=TREE, at=at))
    asked = RevertDeploy(work=work(grant), at=at)
    return await (systems.accept_removal(asked) if late == "remove" else systems.revert_deploy(asked))


@pytest.mark.parametrize("late", [_accept_deploy, _revert_deploy])
async def test_a_write_that_waited_for_the_end_of_its_action_changes_nothing(
    pair: tuple[StoreDriver, StoreDriver], late: Any
) -> None:
    driver = pair[0]
    await whole(driver, SqlSystemStore(driver.database))
    grant = await deploy(driver)
    asked = (
        AcceptDeploy(work=work(grant), definition=TREE, at=driver.now())
        if late is _accept_deploy
        else RevertDeploy(work=work(grant), at=driver.now())
    )
    given_up = partial(abandon_run, hooks=HOOKS, owner=SHOP, run=grant.run, at=driver.now(), message="gone")
    stepped = await overtaken(pair, given_up, lambda connection: late(connection, asked))
    assert not stepped.made
    assert set((await states(driver)).values()) == {"stable"}


async def test_what_a_backend_says_changes_services_at_rest_only(driver: StoreDriver, systems: SqlSystemStore) -> None:
    await whole(driver, systems)
    ill = [ServiceFacts(f"{SHOP}:{name}", 1, 1, 1, 0, 0, 1, "gone") for name in ("web", "a:b", "nobody")]
    well = [ServiceFacts(f"{SHOP}:{name}", 9, 1, 1, 1, 1) for name in ("web", "a:b")]
    held = await deploy(driver, f"{SHOP}:web", RUN)
    assert await systems.record_observations(ill, driver.now()) == 1
    assert await systems.record_observations(ill, driver.now()) == 0
    assert (await states(driver))["/web"] == "updating"
    assert await driver.status(SHOP) == "degraded"
    assert (await driver.last(f"{SHOP}:a:b")).message == "0 of 1 healthy: gone"
    assert await systems.record_observations(well, driver.now()) == 1
    assert (await states(driver))["/a/b"] == "stable"
    await driver.finish(held)


def few(*names: str) -> list[ServiceFacts]:
    """None of the instances is there, and none has failed."""
    return [ServiceFacts(f"{SHOP}:{name}", 1, 1) for name in names]


async def broken(driver: StoreDriver) -> list[str]:
    """Promises that are not kept, and objects that seem to be under way."""
    found = await driver.inventory.check_store_invariants("")
    return [*(str(finding) for finding in found.findings), *(path for path, _, _ in found.under_way)]


async def test_a_service_with_too_few_instances_of_which_none_failed_rests_in_scaling(
    driver: StoreDriver, systems: SqlSystemStore
) -> None:
    await whole(driver, systems)
    assert await systems.record_observations(few("web"), driver.now()) == 1
    view = await driver.inventory.read_object(f"{SHOP}:web")
    assert (view.phase, view.target_action, view.error) == ("scaling", "None", "0 of 1 healthy")
    assert await driver.status(SHOP) == "scaling"
    assert await broken(driver) == []
    assert await systems.record_observations([ServiceFacts(f"{SHOP}:web", 1, 1, 1, 0)], driver.now()) == 1
    assert (await states(driver))["/web"] == "degraded"
    assert await systems.record_observations(few("web"), driver.now()) == 1
    assert await systems.record_observations([ServiceFacts(f"{SHOP}:web", 1, 1, 1, 1, 1)], driver.now()) == 1
    assert await driver.status(SHOP) == "stable"
    assert await broken(driver) == []


@pytest.mark.parametrize("again", [TREE, {"parts": [{"name": "web", **RUN, "instances": 2}]}, {"parts": []}])
@pytest.mark.parametrize("at", ["", ":web"])
async def test_an_action_on_a_service_that_rests_in_scaling_begins_there_and_if_it_dies_it_goes_back_there(
    driver: StoreDriver, systems: SqlSystemStore, again: dict[str, Any], at: str
) -> None:
    await whole(driver, systems)
    await systems.record_observations(few("web", "a:b"), driver.now())
    definition = RUN if at else again
    grant = await deploy(driver, SHOP + at, definition, run="r9")
    assert (await systems.accept_deploy(AcceptDeploy(work=work(grant), definition=definition, at=driver.now()))).made
    assert f"{SHOP}:web" in [part.path for part in await systems.list_changed_parts(work(grant))]
    assert await systems.record_observations(few("web"), driver.now()) == 0
    await driver.inventory.abandon_run(SHOP + at, "r9", driver.now(), "it died")
    assert (await states(driver))["/web"] == "scaling"
    assert (await states(driver))["/a/b"] == "scaling"
    assert await broken(driver) == []


async def test_a_removal_that_is_taken_back_orders_the_service_again_which_then_rests_as_before(
    driver: StoreDriver, systems: SqlSystemStore
) -> None:
    await whole(driver, systems)
    await systems.record_observations(few("web"), driver.now())
    grant = await deploy(driver, definition={"parts": []})
    await accept(driver, systems, grant, {"parts": []})
    assert (await systems.revert_deploy(RevertDeploy(work=work(grant), at=driver.now()))).made
    view = await driver.inventory.read_object(f"{SHOP}:web")
    assert (view.phase, view.target_action) == ("updating", "deploy")  # its backend may have stopped it
    assert f"{SHOP}:web" in [part.path for part in await systems.list_changed_parts(work(grant))]
    await driver.finish(grant, ActionResult.FAILED)
    assert (await states(driver))["/web"] == "scaling"
    assert await broken(driver) == []


async def test_a_service_that_landed_and_is_seen_miscounted_is_still_taken_back(
    driver: StoreDriver, systems: SqlSystemStore
) -> None:
    await whole(driver, systems)
    new = {"parts": [{"name": "web", "command": ["new"]}, {"name": "a", "parts": []}]}
    grant = await deploy(driver, definition=new)
    await accept(driver, systems, grant, new)
    step = Step(
        path=SHOP, epoch=grant.epoch, at=driver.now(), moves=[Move(path=f"{SHOP}:web", to="stable", action="deploy")]
    )
    assert (await driver.inventory.apply_step(step)).made
    assert await systems.record_observations(few("web"), driver.now()) == 1
    assert f"{SHOP}:web" not in [part.path for part in await systems.list_changed_parts(work(grant))]
    assert (await systems.revert_deploy(RevertDeploy(work=work(grant), at=driver.now()))).made
    (web,) = [part for part in await systems.list_changed_parts(work(grant)) if part.path == f"{SHOP}:web"]
    assert (web.status, web.spec["command"]) == ("updating", ["run"])


async def test_with_a_system_go_its_records_and_its_numbers_but_not_its_history(
    driver: StoreDriver, systems: SqlSystemStore
) -> None:
    await whole(driver, systems)
    grant = await driver.grant(SHOP, "delete")
    await systems.accept_removal(RevertDeploy(work=work(grant), at=driver.now()))

    moves = [Move(path=part.path, to="None", action="remove") for part in await systems.list_changed_parts(work(grant))]
    await driver.inventory.apply_step(Step(path=SHOP, epoch=grant.epoch, at=driver.now(), moves=moves))
    await driver.finish(grant)
    for kind in ("system", "part", "deploy"):
        assert await driver.inventory.list_objects(kind) == []
    assert [to for _, _, to in await driver.told(f"{SHOP}::deploy:d1")][-1] == "None"
    await create(driver)
    assert (await deploy(driver)).details["name"] == "d1"


async def test_parts_whose_removal_was_cut_off_go_once_their_backend_has_removed_them(
    driver: StoreDriver, systems: SqlSystemStore
) -> None:
    await whole(driver, systems)
    grant = await driver.grant(SHOP, "teardown")
    asked = RevertDeploy(work=work(grant), at=driver.now())
    assert (await systems.accept_removal(asked)).made
    assert await driver.status(work(grant).record) == "accepted"
    begins = Move(path=work(grant).record, to="in progress")
    await driver.inventory.apply_step(Step(path=SHOP, epoch=grant.epoch, at=driver.now(), moves=[begins]))
    begun = await driver.dump()
    assert (await systems.accept_removal(asked)).made  # tried again
    assert await driver.dump() == begun
    await driver.finish(grant, ActionResult.FAILED)
    left = await systems.list_parts_being_removed("simulated")
    web, a, b, bc = (f"{SHOP}:{name}" for name in ("web", "a", "a:b", "a:bc"))
    assert set(left) == {web, a, b, bc}
    assert await systems.delete_removed_parts({web: left[web] - 1}, driver.now()) == 0  # an action came between
    assert await systems.delete_removed_parts({path: left[path] for path in (a, bc)}, driver.now()) == 1
    assert set(await states(driver)) == {"/web", "/a", "/a/b"}  # a part stays as long as one is below it
    assert await systems.delete_removed_parts({path: left[path] for path in (web, a, b)}, driver.now()) == 3
    assert await states(driver) == {}
    assert (await driver.last(web)).message == "its backend has removed it"
