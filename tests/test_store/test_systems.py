"""Systems in the store, on both databases: admission, numbers, replacing a subtree and back, what backends say."""

from __future__ import annotations

import asyncio
from functools import partial
from threading import Thread
from typing import Any

import pytest
import sqlalchemy as sa

from domain.model import Grant, Move, Result, Step
from domain.systems.backend import Acceptance, Reversal, Work
from domain.systems.rules import Facts, tree_path
from store.systems import SqlSystems, _accept, _accept_removal, _observe
from tests.test_store.scene import Scene
from tests.test_store.test_races import overtaken

SHOP = "system:shop"
RUN: dict[str, Any] = {"command": ["run"]}
TREE = {"parts": [{"name": "web", **RUN}, {"name": "a", "parts": [{"name": "b", **RUN}, {"name": "bc", **RUN}]}]}


@pytest.fixture
def systems(scene: Scene) -> SqlSystems:
    return SqlSystems(scene.database)


async def create(scene: Scene) -> None:
    await scene.finish(await scene.grant(SHOP, "create", spec={"backend": "simulated"}))


async def deploy(scene: Scene, path: str = SHOP, definition: dict[str, Any] = TREE, run: str = "") -> Grant:
    return await scene.grant(path, "deploy", run, spec={"definition": definition})


def work(grant: Grant) -> Work:
    return Work(path=grant.path, epoch=grant.epoch, backend="simulated", record=str(grant.details.get("record", "")))


async def accept(scene: Scene, systems: SqlSystems, grant: Grant, definition: dict[str, Any] = TREE) -> None:
    stepped = await systems.accept(Acceptance(work=work(grant), definition=definition, at=scene.now()))
    assert stepped.made, stepped


async def states(scene: Scene) -> dict[str, str]:
    return {tree_path(view.path): view.phase for view in await scene.inventory.list_objects("part", SHOP)}


async def landed(scene: Scene, systems: SqlSystems, grant: Grant) -> None:
    """Everything that the deploy touched is stable, and it ends."""

    touched = [part.path for part in await systems.touched(work(grant)) if part.path != grant.path]
    moves = [Move(path=path, to="stable", action="deploy") for path in touched]
    moves += [Move(path=work(grant).record, to=stage) for stage in ("in progress", "succeeded")]
    stepped = await scene.inventory.advance(Step(path=grant.path, epoch=grant.epoch, at=scene.now(), moves=moves))
    assert stepped.made, stepped
    await scene.finish(grant)


async def whole(scene: Scene, systems: SqlSystems) -> None:
    await create(scene)
    grant = await deploy(scene)
    await accept(scene, systems, grant)
    await landed(scene, systems, grant)


async def test_a_deploy_that_is_tried_again_is_the_same_deploy(scene: Scene, systems: SqlSystems) -> None:
    await create(scene)
    first = await deploy(scene, run="r1")
    assert await deploy(scene, run="r1") == first
    assert first.details == {"backend": "simulated", "name": "d1", "record": f"{SHOP}::deploy:d1"}
    await accept(scene, systems, first)
    before = await scene.dump()
    await accept(scene, systems, first)
    assert await scene.dump() == before
    await landed(scene, systems, first)
    again = await scene.grant(SHOP, "teardown", "r2")
    assert await scene.grant(SHOP, "teardown", "r2") == again
    for _ in range(2):
        assert (await systems.accept_removal(Reversal(work=work(again), at=scene.now()))).made
    assert set((await states(scene)).values()) == {"deleting"}
    await scene.finish(again, Result.FAILED)
    assert set((await states(scene)).values()) == {"stable"}
    assert await scene.inventory.holds() == []


async def test_deploys_of_siblings_get_numbers_of_their_own_however_close_they_come(
    scene: Scene, systems: SqlSystems, rival: Scene
) -> None:
    await create(scene)
    some = {"parts": [{"name": f"s{n}", **RUN} for n in range(10)]}
    grant = await deploy(scene, definition=some)
    await accept(scene, systems, grant, some)
    await landed(scene, systems, grant)
    asked = [deploy((scene, rival)[n % 2], f"{SHOP}:s{n}", RUN) for n in range(10)]
    names = [granted.details["name"] for granted in await asyncio.gather(*asked)]
    assert sorted(names) == sorted(f"d{n}" for n in range(2, 12))


async def test_a_refused_deploy_changes_nothing_and_takes_no_number(scene: Scene, systems: SqlSystems) -> None:
    await whole(scene, systems)
    before = await scene.dump()
    refusal = await scene.refusal(f"{SHOP}:no:x", "deploy", spec={"definition": RUN})
    assert refusal.message == f"there is no {SHOP}:no"
    assert await scene.dump() == before
    assert (await scene.check(f"{SHOP}:web", "deploy", spec={"definition": RUN})).grant
    assert await scene.dump() == before
    held = await deploy(scene, f"{SHOP}:web", RUN)
    refusal = await scene.refusal(SHOP, "teardown")
    assert refusal.message.endswith("locked by deploy d2")
    await scene.finish(held)


async def test_a_subtree_is_replaced_and_put_back(scene: Scene, systems: SqlSystems) -> None:
    await whole(scene, systems)
    before = {part.path: part.spec for part in await systems.services(SHOP)}
    new = {"parts": [{"name": "b", **RUN, "instances": 2}, {"name": "c", **RUN}]}
    grant = await deploy(scene, f"{SHOP}:a", new)
    await accept(scene, systems, grant, new)
    assert await states(scene) == {
        "/a": "updating", "/a/b": "scaling", "/a/bc": "deleting", "/a/c": "pending", "/web": "stable",
    }  # fmt: skip
    for _ in range(2):  # it may be done twice
        assert (await systems.revert(Reversal(work=work(grant), at=scene.now()))).made
        assert await states(scene) == {
            "/a": "updating", "/a/b": "scaling", "/a/bc": "stable", "/a/c": "deleting", "/web": "stable",
        }  # fmt: skip
    kept = {part.path: part.spec for part in await systems.services(SHOP) if part.status != "deleting"}
    assert kept == before
    await scene.finish(grant, Result.FAILED)


async def test_what_a_backend_says_while_a_deploy_is_judged_comes_before_it_or_after_it(
    scene: Scene, systems: SqlSystems, rival: Scene
) -> None:
    """In between, the deploy would be granted, and change nothing."""
    await whole(scene, systems)
    ill = [Facts(f"{SHOP}:web", 1, 1, 1, 0, 0, 1, "gone")]
    saying = Thread(target=lambda: asyncio.run(SqlSystems(rival.database).observe(ill, scene.now())))

    @sa.event.listens_for(scene.database.engine, "before_cursor_execute")
    def get_in_between(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.startswith("INSERT INTO actions"):  # it has been judged, and is about to be written
            saying.start()
            saying.join(0.5)  # time enough to get in between, if that can be

    grant = await deploy(scene, f"{SHOP}:web", RUN)
    saying.join()
    assert (await scene.inventory.get(f"{SHOP}:web")).epoch == grant.epoch
    assert (await states(scene))["/web"] == "updating"


async def test_a_definition_is_judged_by_parts_that_no_backend_changes_meanwhile(pair: tuple[Scene, Scene]) -> None:
    """Else a service that degrades in that moment would be taken for one that is alike and well."""
    scene = pair[0]
    await whole(scene, SqlSystems(scene.database))
    grant = await deploy(scene)
    asked = Acceptance(work=work(grant), definition=TREE, at=scene.now())
    ill = [Facts(f"{SHOP}:a:b", 1, 1, 1, 0, 0, 1, "gone")]
    stepped = await overtaken(pair, partial(_observe, facts=ill, at=scene.now()), partial(_accept, acceptance=asked))
    assert stepped.made
    assert [part.path for part in await SqlSystems(scene.database).touched(work(grant))] == [f"{SHOP}:a:b"]


async def test_a_removal_takes_along_what_a_backend_calls_ill_in_that_moment(pair: tuple[Scene, Scene]) -> None:
    scene = pair[0]
    await whole(scene, SqlSystems(scene.database))
    grant = await scene.grant(SHOP, "teardown")
    ill = [Facts(f"{SHOP}:a:b", 1, 1, 1, 0, 0, 1, "gone")]
    asked = Reversal(work=work(grant), at=scene.now())
    stepped = await overtaken(pair, partial(_observe, facts=ill, at=scene.now()), partial(_accept_removal, asked=asked))
    assert stepped.made
    assert set((await states(scene)).values()) == {"deleting"}


async def test_what_a_backend_says_changes_services_at_rest_only(scene: Scene, systems: SqlSystems) -> None:
    await whole(scene, systems)
    ill = [Facts(f"{SHOP}:{name}", 1, 1, 1, 0, 0, 1, "gone") for name in ("web", "a:b", "nobody")]
    well = [Facts(f"{SHOP}:{name}", 9, 1, 1, 1, 1) for name in ("web", "a:b")]
    held = await deploy(scene, f"{SHOP}:web", RUN)
    assert await systems.observe(ill, scene.now()) == 1
    assert await systems.observe(ill, scene.now()) == 0
    assert (await states(scene))["/web"] == "updating"
    assert await scene.status(SHOP) == "degraded"
    assert (await scene.last(f"{SHOP}:a:b")).message == "0 of 1 healthy: gone"
    assert await systems.observe(well, scene.now()) == 1
    assert (await states(scene))["/a/b"] == "stable"
    await scene.finish(held)


def few(*names: str) -> list[Facts]:
    """None of the instances is there, and none has failed."""
    return [Facts(f"{SHOP}:{name}", 1, 1) for name in names]


async def broken(scene: Scene) -> list[str]:
    """Promises that are not kept, and objects that seem to be under way."""
    found = await scene.inventory.kept("")
    return [*(str(each) for each in found.findings), *(path for path, _, _ in found.under_way)]


async def test_a_service_with_too_few_instances_of_which_none_failed_rests_in_scaling(
    scene: Scene, systems: SqlSystems
) -> None:
    await whole(scene, systems)
    assert await systems.observe(few("web"), scene.now()) == 1
    view = await scene.inventory.get(f"{SHOP}:web")
    assert (view.phase, view.target_action, view.error) == ("scaling", "None", "0 of 1 healthy")
    assert await scene.status(SHOP) == "scaling"
    assert await broken(scene) == []
    assert await systems.observe([Facts(f"{SHOP}:web", 1, 1, 1, 0)], scene.now()) == 1
    assert (await states(scene))["/web"] == "degraded"
    assert await systems.observe(few("web"), scene.now()) == 1
    assert await systems.observe([Facts(f"{SHOP}:web", 1, 1, 1, 1, 1)], scene.now()) == 1
    assert await scene.status(SHOP) == "stable"
    assert await broken(scene) == []


@pytest.mark.parametrize("again", [TREE, {"parts": [{"name": "web", **RUN, "instances": 2}]}, {"parts": []}])
@pytest.mark.parametrize("at", ["", ":web"])
async def test_an_action_on_a_service_that_rests_in_scaling_begins_there_and_if_it_dies_it_goes_back_there(
    scene: Scene, systems: SqlSystems, again: dict[str, Any], at: str
) -> None:
    await whole(scene, systems)
    await systems.observe(few("web", "a:b"), scene.now())
    definition = RUN if at else again
    grant = await deploy(scene, SHOP + at, definition, run="r9")
    assert (await systems.accept(Acceptance(work=work(grant), definition=definition, at=scene.now()))).made
    assert f"{SHOP}:web" in [part.path for part in await systems.touched(work(grant))]
    assert await systems.observe(few("web"), scene.now()) == 0
    await scene.inventory.bury(SHOP + at, "r9", scene.now(), "it died")
    assert (await states(scene))["/web"] == "scaling"
    assert (await states(scene))["/a/b"] == "scaling"
    assert await broken(scene) == []


async def test_a_removal_that_is_taken_back_leaves_a_service_that_rested_in_scaling_at_rest(
    scene: Scene, systems: SqlSystems
) -> None:
    await whole(scene, systems)
    await systems.observe(few("web"), scene.now())
    grant = await deploy(scene, definition={"parts": []})
    await accept(scene, systems, grant, {"parts": []})
    assert (await systems.revert(Reversal(work=work(grant), at=scene.now()))).made
    view = await scene.inventory.get(f"{SHOP}:web")
    assert (view.phase, view.target_action) == ("scaling", "None")
    assert f"{SHOP}:web" not in [part.path for part in await systems.touched(work(grant))]
    await scene.finish(grant, Result.FAILED)
    assert await broken(scene) == []


async def test_a_service_that_landed_and_is_seen_miscounted_is_still_taken_back(
    scene: Scene, systems: SqlSystems
) -> None:
    await whole(scene, systems)
    new = {"parts": [{"name": "web", "command": ["new"]}, {"name": "a", "parts": []}]}
    grant = await deploy(scene, definition=new)
    await accept(scene, systems, grant, new)
    step = Step(
        path=SHOP, epoch=grant.epoch, at=scene.now(), moves=[Move(path=f"{SHOP}:web", to="stable", action="deploy")]
    )
    assert (await scene.inventory.advance(step)).made
    assert await systems.observe(few("web"), scene.now()) == 1
    assert f"{SHOP}:web" not in [part.path for part in await systems.touched(work(grant))]
    assert (await systems.revert(Reversal(work=work(grant), at=scene.now()))).made
    (web,) = [part for part in await systems.touched(work(grant)) if part.path == f"{SHOP}:web"]
    assert (web.status, web.spec["command"]) == ("updating", ["run"])


async def test_with_a_system_go_its_records_and_its_numbers_but_not_its_history(
    scene: Scene, systems: SqlSystems
) -> None:
    await whole(scene, systems)
    grant = await scene.grant(SHOP, "delete")
    await systems.accept_removal(Reversal(work=work(grant), at=scene.now()))

    moves = [Move(path=part.path, to="None", action="remove") for part in await systems.touched(work(grant))]
    await scene.inventory.advance(Step(path=SHOP, epoch=grant.epoch, at=scene.now(), moves=moves))
    await scene.finish(grant)
    for kind in ("system", "part", "deploy"):
        assert await scene.inventory.list_objects(kind) == []
    assert [to for _, _, to in await scene.told(f"{SHOP}::deploy:d1")][-1] == "None"
    await create(scene)
    assert (await deploy(scene)).details["name"] == "d1"
