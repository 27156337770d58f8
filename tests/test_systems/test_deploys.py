"""Deploys on a real server: what they change, what they leave alone, which run in parallel, how they fail."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from client.actions import ActionClient
from client.errors import Unanswered
from domain.model import ActionResult, Outcome, Request
from store.systems.hooks import SqlSystemStore
from tests.test_systems.kit import RUN, Shop, growing, service, system
from workers.service import WorkerService

pytestmark = pytest.mark.stores("postgres")

TREE = system(service("web"), system(service("b"), service("bc"), service("c"), name="a"))
TWO = {**RUN, "command": ["two"]}
NEVER = {"environment": {"SIMULATED": "unhealthy"}}
CRASH = {"environment": {"SIMULATED": "crash"}}


async def test_a_system_is_stable_when_it_was_made_and_what_its_services_are_afterwards(shop: Shop) -> None:
    assert await shop.states() == {"/": "stable"}
    outcome = await shop.deploy("/", TREE)
    assert (outcome.result, outcome.status) == (ActionResult.SUCCEEDED, "stable")
    assert set((await shop.states()).values()) == {"stable"}
    assert await shop.way(shop.at("/a/b")) == ["pending", "stable"]
    assert await shop.way(f"{shop.path}::deploy:d1") == ["pending", "accepted", "in progress", "succeeded"]
    assert await shop.locks() == set()


async def test_a_deploy_replaces_exactly_its_subtree(shop: Shop) -> None:
    await shop.deploy("/", TREE)
    before = {tree: await shop.see(tree) for tree in ("/web", "/a/bc", "/a/c")}
    await shop.deploy("/a/b", {"command": ["other"]})
    assert {tree: await shop.see(tree) for tree in before} == before
    assert (await shop.see("/a/b")).spec == {"command": ["other"]}
    await shop.deploy("/a", system(service("b", instances=2), service("new")))
    assert sorted(await shop.states()) == ["/", "/a", "/a/b", "/a/new", "/web"]
    assert await shop.see("/web") == before["/web"]
    assert {facts.path: facts.wanted for facts in await shop.supervisor.describe_services(shop.path)} == {
        shop.at("/a/b"): 2,
        shop.at("/a/new"): 1,
        shop.at("/web"): 1,
    }


async def test_a_new_part_can_be_put_into_a_system_and_a_service_can_become_a_system(shop: Shop) -> None:
    await shop.deploy("/", TREE)
    await shop.deploy("/a/d", system(service("x")))
    assert (await shop.states())["/a/d/x"] == "stable"
    await shop.deploy("/web", system(service("front"), service("back")))
    assert {"/web", "/web/front", "/web/back"} <= set(await shop.states())
    assert shop.at("/web") not in {facts.path for facts in await shop.supervisor.describe_services(shop.path)}
    await shop.deploy("/web", RUN)
    assert not {"/web/front", "/web/back"} & set(await shop.states())


async def test_only_the_number_changes_is_scaling_and_restarts_nothing(shop: Shop) -> None:
    await shop.deploy("/", TREE)
    first = {unit.token for unit in await shop.units("/web")}
    await shop.deploy("/web", {**RUN, "instances": 3})
    assert await shop.way(shop.at("/web")) == ["pending", "stable", "updating", "scaling", "stable"]
    more = {unit.token for unit in await shop.units("/web")}
    assert first < more
    assert len(more) == 3
    await shop.deploy("/web", {**RUN, "instances": 1})
    assert {unit.token for unit in await shop.units("/web")} < more
    await shop.deploy("/", TREE)  # as it was: nothing to do
    assert "updating" not in (await shop.way(shop.at("/a/c")))


async def test_siblings_deploy_at_the_same_time(shop: Shop) -> None:
    await shop.deploy("/", TREE)
    shop.hold("/a/b", "/a/bc", "/web")
    running = [await shop.begin(tree, TWO) for tree in ("/a/b", "/a/bc", "/web")]
    for name in ("d2", "d3", "d4"):
        await shop.until_record(name, "in progress")
    assert await shop.records() == {"d1": "succeeded", "d2": "in progress", "d3": "in progress", "d4": "in progress"}
    assert {("/a/b", "X"), ("/a/bc", "X"), ("/web", "X"), ("/a", "IX"), ("/", "IX")} == await shop.locks()
    assert (await shop.states())["/"] == "updating"
    shop.let_go()
    assert {outcome.result for outcome in await asyncio.gather(*running)} == {ActionResult.SUCCEEDED}
    assert await shop.locks() == set()


async def test_above_below_and_at_the_same_path_deploys_conflict_and_name_each_other(shop: Shop) -> None:
    await shop.deploy("/", TREE)
    shop.hold("/a/b", "/a/c")
    first, second = await shop.begin("/a/b", TWO), await shop.begin("/a/c", TWO)
    for tree in ("/", "/a"):
        assert (await shop.refused(tree, "deploy", {"definition": TREE})).endswith("locked by deploys d2, d3")
    assert (await shop.refused("/", "teardown")).endswith("locked by deploys d2, d3")
    await shop.until_record("d2", "in progress")
    for tree in ("/a/b", "/a/b/below"):
        message = await shop.refused(tree, "deploy", {"definition": RUN})
        assert message.startswith(f"409 Conflict: other action currently happening on {shop.at('/a/b')}: deploy since ")
        assert message.endswith("locked by deploy d2")
    assert (await shop.deploy("/a/bc", TWO)).result is ActionResult.SUCCEEDED
    shop.let_go()
    assert {(await first).result, (await second).result} == {ActionResult.SUCCEEDED}
    assert len(await shop.records()) == 4  # those that were refused left nothing


async def test_a_busy_path_is_refused_also_when_nobody_can_say_which_deploy_it_is(shop: Shop) -> None:
    class Unheard(ActionClient):
        async def run_query(self, *_what: Any, **_how: Any) -> Any:
            raise Unanswered("the worker could not answer")

    shop.hold("/web")
    first = await shop.begin("/web", RUN)
    request = Request(path=shop.at("/web"), action="deploy", spec={"definition": TWO})
    ticket = await Unheard(shop.asking.client).request_action(request)
    assert ticket.admission.refusal
    assert ticket.admission.refusal.message.startswith(
        f"409 Conflict: other action currently happening on {request.path}"
    )
    shop.let_go()
    assert (await first).result is ActionResult.SUCCEEDED


async def test_a_teardown_excludes_everything_and_leaves_an_empty_system(shop: Shop) -> None:
    await shop.deploy("/", TREE)
    shop.hold("/web")
    ticket = await shop.admitted("/", "teardown")
    await shop.until_record("t1", "in progress")
    for tree in ("/web", "/a", "/a/b", "/other"):
        assert (await shop.refused(tree, "deploy", {"definition": RUN})).endswith("locked by teardown t1")
    assert (await shop.refused("/", "teardown")).endswith("locked by teardown t1")
    assert (await shop.refused("/", "deploy", {"definition": TREE})).endswith("locked by teardown t1")
    assert (await shop.states())["/web"] == "deleting"
    shop.let_go()
    assert (await shop.asking.wait_for_outcome(ticket.path, ticket.run)).result is ActionResult.SUCCEEDED
    assert await shop.states() == {"/": "stable"}
    assert await shop.supervisor.describe_services(shop.path) == []
    assert await shop.way(f"{shop.path}::teardown:t1") == ["pending", "accepted", "in progress", "succeeded"]
    assert (await shop.deploy("/", TREE)).result is ActionResult.SUCCEEDED


async def test_a_service_that_keeps_crashing_fails_the_deploy_at_once(shop: Shop) -> None:
    await shop.deploy("/", TREE)
    outcome = await shop.deploy("/a", system(service("b"), service("bad", **CRASH)), deadline=60)
    assert outcome.result is ActionResult.FAILED
    assert "/a/bad has 0 of 1 healthy: ended by itself" in outcome.message
    states = await shop.states()
    assert (states["/a/bad"], states["/a/b"], states["/a"], states["/"]) == ("failed", "stable", "degraded", "degraded")
    assert "/a/c" not in states  # the definition is the new one all the same
    assert (await shop.records())["d2"] == "failed"
    assert (await shop.deploy("/a/bad", RUN)).result is ActionResult.SUCCEEDED
    assert (await shop.states())["/"] == "stable"


async def test_crashes_of_the_former_definition_do_not_fail_the_deploy_that_mends_it(shop: Shop) -> None:
    await shop.deploy("/", system(service("bad", **CRASH)), deadline=60)
    shop.hold("/bad")  # the former instance takes its time to go
    mending = await shop.begin("/bad", RUN)

    async def both() -> bool:
        return len(await shop.units("/bad")) == 2

    await shop.until(both)
    [facts] = await shop.supervisor.describe_services(shop.path)
    assert not facts.is_failing(facts.generation)
    shop.let_go()
    assert (await mending).result is ActionResult.SUCCEEDED


async def test_a_deadline_passes_and_the_former_definition_comes_back(shop: Shop) -> None:
    broken = system(service("b", **NEVER), service("new", instances=2), service("c", instances=3))
    for deadline in growing(0.7):
        await shop.deploy("/", TREE)
        before = {tree: (await shop.see(tree)).spec for tree in ("/a", "/a/b", "/a/bc", "/a/c")}
        units = {unit.token for unit in await shop.units("/a/b")}
        outcome = await shop.deploy("/a", broken, deadline=deadline, rollback=True)
        if "as simulated" in outcome.message and "could not be rolled back" not in outcome.message:  # both were in time
            break
    assert outcome.result is ActionResult.FAILED
    assert f"not stable within {deadline:g} s" in outcome.message
    assert f"{shop.path[7:]}/a/b has 0 of 1 healthy" in outcome.message
    assert "1 of the former definition: not well, as simulated" in outcome.message
    assert outcome.message.endswith("rolled back to the former definition")
    assert {tree: (await shop.see(tree)).spec for tree in before} == before
    assert sorted(await shop.states()) == ["/", "/a", "/a/b", "/a/bc", "/a/c", "/web"]
    assert set((await shop.states()).values()) == {"stable"}
    assert {unit.token for unit in await shop.units("/a/b")} == units  # they were never stopped
    assert len(await shop.units("/a/c")) == 1


async def test_a_new_part_that_fails_and_is_rolled_back_leaves_nothing(shop: Shop) -> None:
    await shop.deploy("/", TREE)
    for tree, definition in (("/x", {**RUN, **CRASH}), ("/y", system(service("z", **CRASH), service("ok")))):
        assert (await shop.deploy(tree, definition, rollback=True)).result is ActionResult.FAILED
    assert sorted(await shop.states()) == ["/", "/a", "/a/b", "/a/bc", "/a/c", "/web"]


async def test_a_deploy_without_rollback_that_fails_at_its_deadline_leaves_the_truth(shop: Shop) -> None:
    await shop.deploy("/", TREE)
    assert (await shop.deploy("/web", {**RUN, **NEVER}, deadline=0.5)).result is ActionResult.FAILED
    assert (await shop.states())["/web"] == "degraded"
    assert len([unit for unit in await shop.units("/web") if unit.healthy]) == 1  # the old one still serves
    await shop.deploy("/web", RUN)


@pytest.mark.parametrize("rollback", [False, True])
async def test_a_cancelled_deploy_ends_and_frees_its_path(shop: Shop, rollback: bool) -> None:
    await shop.deploy("/", TREE)
    running = await shop.begin("/a", system(service("b", **NEVER)), rollback=rollback)
    await shop.until_record("d2", "in progress")
    await shop.asking.cancel_action(shop.at("/a"))
    assert (await running).result is ActionResult.CANCELLED
    assert await shop.locks() == set()
    assert (await shop.records())["d2"] == "failed"
    states = await shop.states()
    assert states["/a/b"] == ("stable" if rollback else "degraded")
    assert ("/a/c" in states) is rollback


async def test_delete_takes_over_from_whatever_runs_and_leaves_nothing(shop: Shop) -> None:
    await shop.deploy("/", TREE)
    below = [await shop.begin(tree, {**RUN, **NEVER}) for tree in ("/a/b", "/web")]
    outcome = await shop.do("/", "delete")
    assert (outcome.result, outcome.status) == (ActionResult.SUCCEEDED, "None")
    assert {(await running).result for running in below} == {ActionResult.CANCELLED}
    assert (await shop.states(), await shop.records(), await shop.locks()) == ({}, {}, set())
    assert await shop.supervisor.describe_services(shop.path) == []
    await shop.create()
    assert (await shop.deploy("/", TREE)).message.startswith("d1: ")


async def test_delete_takes_over_from_a_deploy_of_the_whole_system(shop: Shop) -> None:
    running = await shop.begin("/", system(service("web", **NEVER)), rollback=True)
    await shop.until_record("d1", "in progress")
    assert (await shop.do("/", "delete")).status == "None"
    assert (await running).result is ActionResult.CANCELLED
    assert await shop.states() == {}


async def test_nothing_can_be_asked_of_a_system_that_is_being_deleted(shop: Shop) -> None:
    await shop.deploy("/", TREE)
    shop.hold("/web")
    ticket = await shop.admitted("/", "delete")
    await shop.until_state("/", "deleting")
    assert "delete since" in await shop.refused("/web", "deploy", {"definition": RUN})
    assert "delete since" in await shop.refused("/", "teardown")
    assert "delete since" in await shop.refused("/", "deploy", {"definition": TREE})
    shop.let_go()
    assert (await shop.asking.wait_for_outcome(ticket.path, ticket.run)).status == "None"


async def test_bad_input_is_refused_and_changes_nothing(shop: Shop) -> None:
    await shop.deploy("/", TREE)
    before = await shop.states()
    assert "must be a system" in await shop.refused("/", "deploy", {"definition": RUN})
    assert f"there is no {shop.at('/no')}" in await shop.refused("/no/where", "deploy", {"definition": RUN})
    assert "is a service" in await shop.refused("/web/below", "deploy", {"definition": RUN})
    assert "named x" in await shop.refused("/web", "deploy", {"definition": {**RUN, "name": "x"}})
    assert "exists already" in await shop.refused("/", "create", {})
    assert await shop.states() == before
    assert await shop.records() == {"d1": "succeeded"}


async def test_what_is_not_there_is_not_found(asking: ActionClient, stack: WorkerService, ns: str) -> None:
    nowhere = Shop(asking, stack, f"system:{ns}")
    for tree in ("/", "/a"):
        assert "there is no such System" in await nowhere.refused(tree, "deploy", {"definition": system(service("a"))})
    assert "there is no such System" in await nowhere.refused("/", "teardown")
    assert "there is no such System" in await nowhere.refused("/", "delete")
    assert await nowhere.states() == {}


async def test_the_same_request_made_twice_is_carried_out_once(shop: Shop) -> None:
    spec = {"definition": TREE}
    first = await shop.do("/", "deploy", spec, request_id="once")
    ticket = await shop.ask("/", "deploy", spec, request_id="once")
    assert ticket.admission.outcome == first
    assert await shop.records() == {"d1": "succeeded"}


async def test_services_change_by_themselves_as_their_instances_come_and_go(shop: Shop) -> None:
    await shop.deploy("/", TREE)
    (unit,) = await shop.units("/web")
    shop.hold("/web")
    shop.runner.crash_instance(unit.token)
    await shop.until_state("/", "degraded")
    assert (await shop.see("/web")).error.startswith("0 of 1 healthy")
    shop.let_go()
    await shop.until_state("/", "stable")
    assert await shop.way(shop.at("/web")) == ["pending", "stable", "degraded", "stable"]


async def test_a_service_whose_turn_never_came_has_failed_and_is_no_broken_promise(shop: Shop) -> None:
    waiting = system(service("first", **NEVER), service("second", after=["first"]))
    assert (await shop.deploy("/a", waiting, deadline=0.7)).result is ActionResult.FAILED
    assert (await shop.states())["/a/second"] == "failed"
    assert "never started" in (await shop.see("/a/second")).error
    await shop.all_promises_are_kept()


async def _torn_down_but_for_b(shop: Shop) -> tuple[str, float, Outcome]:
    """A teardown whose deadline passes when all is gone but /a/b, which is held: its name, its deadline and its end."""
    for deadline in growing(0.7):
        shop.let_go()
        await shop.deploy("/", system(service("web"), system(service("b"), service("c"), name="a")))
        shop.hold("/a/b")
        outcome = await shop.do("/", "teardown", {"deadline": deadline})
        if not {"/web", "/a/c"} & (await shop.states()).keys():
            break
    return f"t{sum(name.startswith('t') for name in await shop.records())}", deadline, outcome


async def test_a_teardown_that_fails_by_its_deadline_leaves_degraded_and_the_backends_reason(shop: Shop) -> None:
    name, deadline, outcome = await _torn_down_but_for_b(shop)
    assert (outcome.result, outcome.status) == (ActionResult.FAILED, "degraded")
    assert outcome.message.startswith(f"not gone within {deadline:g} s; ")
    assert f"{shop.path.removeprefix('system:')}/a/b has 1 instance left" in outcome.message
    assert await shop.states() == {"/": "degraded", "/a": "degraded", "/a/b": "degraded"}  # the others are gone
    assert (await shop.see("/a/b")).error.startswith("1 instance left")
    assert (await shop.records())[name] == "failed"
    shop.let_go()
    assert (await shop.do("/", "teardown")).status == "stable"
    assert await shop.states() == {"/": "stable"}


async def test_a_teardown_that_is_cancelled_leaves_what_is_left_as_degraded(shop: Shop) -> None:
    await shop.deploy("/", system(service("web"), service("b")))
    shop.hold("/b")
    ticket = await shop.admitted("/", "teardown")
    await shop.until_record("t1", "in progress")
    await shop.asking.client.get_workflow_handle(ticket.path).cancel()
    outcome = await shop.asking.wait_for_outcome(ticket.path, ticket.run)
    assert (outcome.result, outcome.status) == (ActionResult.CANCELLED, "degraded")
    assert (await shop.states())["/b"] == "degraded"
    shop.let_go()
    assert (await shop.do("/", "teardown")).status == "stable"


async def test_what_goes_after_its_teardown_has_failed_leaves_no_part_behind(shop: Shop) -> None:
    assert (await _torn_down_but_for_b(shop))[2].result is ActionResult.FAILED
    shop.let_go()

    async def nothing_runs() -> bool:
        return not await shop.supervisor.describe_services(shop.path)

    await shop.until(nothing_runs)
    await shop.all_promises_are_kept()
    await shop.until_gone("/a", "/a/b")
    assert await shop.states() == {"/": "stable"}
    lines = await shop.service.inventory.read_history(shop.at("/a/b"), 100)
    assert [(line.source, line.to) for line in lines if line.actor == "Backend"][-1:] == [("degraded", "None")]


async def test_what_is_deployed_again_after_a_failed_teardown_stays(shop: Shop) -> None:
    tree = system(service("web"), system(service("b"), name="a"), system(name="empty"))
    await shop.deploy("/", tree)
    shop.hold("/a/b")
    assert (await shop.do("/", "teardown", {"deadline": 0.7})).result is ActionResult.FAILED
    shop.let_go()
    assert (await shop.deploy("/", tree)).result is ActionResult.SUCCEEDED
    leaving = await SqlSystemStore(shop.service.database).list_parts_being_removed(shop.backend)
    assert not [path for path in leaving if path.startswith(f"{shop.path}:")]
    assert await shop.states() == {
        "/": "stable",
        "/web": "stable",
        "/a": "stable",
        "/a/b": "stable",
        "/empty": "stable",
    }


@pytest.mark.parametrize("deadline", [0.001, 0.01, 0.02, 0.05])
async def test_a_teardown_with_hardly_any_time_leaves_the_truth(shop: Shop, deadline: float) -> None:
    await shop.deploy("/", system(service("web"), system(service("b"), service("c"), name="a")))
    await shop.do("/", "teardown", {"deadline": deadline})
    await shop.all_promises_are_kept()


async def test_jobs_are_kept_with_their_system_and_do_not_change_what_it_is(shop: Shop) -> None:
    jobs = [{"name": "migrate", "command": ["migrate"]}]
    tree = {**system(service("web"), {**system(service("b"), name="a"), "jobs": jobs}), "jobs": jobs}
    assert (await shop.deploy("/", tree)).status == "stable"
    assert [(await shop.see(tree_path)).spec["jobs"] for tree_path in ("/", "/a")] == [jobs, jobs]
    units = await shop.units("/web")
    bad = {**system(service("web", **CRASH)), "jobs": []}
    assert (await shop.deploy("/", bad, rollback=True)).result is ActionResult.FAILED
    assert (await shop.see("/")).spec["jobs"] == jobs  # they come back with the rest
    assert (await shop.deploy("/", system(service("web")))).status == "stable"
    assert "jobs" not in (await shop.see("/")).spec
    assert (await shop.see("/")).spec["backend"] == "simulated"
    assert len(await shop.units("/web")) == len(units)
