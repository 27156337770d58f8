"""ClusterInst and AppInst: every action through a real server, a real worker and a real CRM."""

from __future__ import annotations

import asyncio

import pytest

from domain.model import ActionResult
from tests.patience import PATIENCE, progress_of
from tests.test_edge.kit import Edge, fault, words

LONGER = (1, 4, 12)  # times as long, if the machine was too busy for `Creating` to come before it is missed

pytestmark = pytest.mark.stores("postgres")


async def test_an_app_lives_from_create_to_delete_by_the_rows_and_their_actors(edge: Edge) -> None:
    await edge.up(latency=0.05)
    cluster, app = edge.at("berlin", "c1"), edge.at("berlin", "c1", "shop")
    for path in (cluster, app):
        assert (await edge.user.do(path, "create", spec={})).status == "Ready"
    assert edge.things() == ["c1", "shop"]
    for path in (edge.at("berlin"), cluster, app):
        assert (await edge.user.asking.read_object(path)).simulated, path
    assert (await edge.user.do(app, "update", spec={"replicas": 3})).status == "Ready"
    spec = {"image": "nginx:stable", "replicas": 3, "command": ""}
    assert (await edge.see(app)).spec == edge.platform().list_instances()[app] == spec
    assert (await edge.user.do(app, "delete")).status == "None"
    assert edge.things() == ["c1"]
    assert await edge.walk(app) == [
        ("User", "None", "CreateRequested"),
        ("CRM", "CreateRequested", "Creating"),
        ("CRM", "Creating", "Ready"),
        ("User", "Ready", "UpdateRequested"),
        ("CRM", "UpdateRequested", "Updating"),
        ("CRM", "Updating", "Ready"),
        ("User", "Ready", "DeletePrepare"),
        ("Controller", "DeletePrepare", "DeleteRequested"),
        ("CRM", "DeleteRequested", "Deleting"),
        ("CRM", "Deleting", "None"),
    ]
    await edge.at_rest()


async def test_fields_of_an_app_that_do_not_fit_together_are_refused_and_an_update_may_add_what_was_missing(
    edge: Edge,
) -> None:
    await edge.up(latency=0.05)
    app, health = edge.at("berlin", "c1", "shop"), {"health": {"tcp": True}}
    await edge.user.do(edge.at("berlin", "c1"), "create", spec={})
    assert "needs a port" in await edge.user.refused(app, "create", spec=health)
    await edge.user.do(app, "create", spec={"port": 20_080, "environment": {"DB": "x"}})
    assert (await edge.user.do(app, "update", spec=health)).status == "Ready"
    assert "needs a port" in await edge.user.refused(app, "update", spec={"port": None})
    twice = await edge.user.refused(app, "update", spec={"secretFrom": {"DB": {"env": "DB"}}})
    assert "DB is in environment and in secretFrom" in twice
    assert (await edge.user.do(app, "update", spec={"port": None, "health": None})).status == "Ready"
    assert (await edge.see(app)).spec.keys() == {"image", "replicas", "command", "environment"}


async def test_an_intermediate_message_that_was_missed_changes_nothing(edge: Edge) -> None:
    await edge.up(latency=0.05)
    edge.set_faults(fault("no-ack"))
    path = edge.at("berlin", "c1")
    for action, spec in (("create", {}), ("update", {"nodes": 2}), ("delete", None)):
        assert (await edge.user.do(path, action, spec=spec)).result is ActionResult.SUCCEEDED
    assert words(await edge.walk(path)) == [
        *("CreateRequested", "Ready", "UpdateRequested", "Ready", "DeletePrepare", "DeleteRequested", "None")
    ]


async def test_a_failed_create_is_undone_and_the_caller_gets_the_original_error(edge: Edge) -> None:
    await edge.up(latency=0.05)
    edge.set_faults(fault("fail", "create", message="no capacity left", times=1))
    path = edge.at("berlin", "c1")
    outcome = await edge.user.do(path, "create", spec={})
    assert (outcome.result, outcome.status) == (ActionResult.FAILED, "None")
    assert outcome.message == "no capacity left"
    assert edge.things() == []
    assert words(await edge.walk(path)) == ["CreateRequested", "Creating", "CreateError", "None"]
    assert (await edge.user.do(path, "create", spec={})).status == "Ready"
    await edge.at_rest()


async def test_a_failed_update_commits_the_previous_spec_here_and_there(edge: Edge) -> None:
    await edge.up(latency=0.05)
    path = edge.at("berlin", "c1")
    await edge.user.do(path, "create", spec={"nodes": 2})
    edge.set_faults(fault("fail", "update", message="flavor is gone", times=1))
    outcome = await edge.user.do(path, "update", spec={"nodes": 5})
    assert (outcome.result, outcome.status, outcome.message) == (ActionResult.FAILED, "Ready", "flavor is gone")
    assert (await edge.see(path)).spec["nodes"] == 2
    assert (await edge.see(path)).error == "failed: flavor is gone"
    assert edge.platform().list_instances()[path]["nodes"] == 2
    assert words(await edge.walk(path))[2:] == ["Ready", "UpdateRequested", "Updating", "UpdateError", "Ready"]


async def test_a_failed_delete_leaves_the_instance_ready(edge: Edge) -> None:
    await edge.up(latency=0.05)
    path = edge.at("berlin", "c1")
    await edge.user.do(path, "create", spec={})
    edge.set_faults(fault("fail", "delete", message="volumes are attached", times=1))
    outcome = await edge.user.do(path, "delete")
    assert (outcome.result, outcome.status, outcome.message) == (ActionResult.FAILED, "Ready", "volumes are attached")
    assert edge.things() == ["c1"]
    assert words(await edge.walk(path))[-5:] == ["DeletePrepare", "DeleteRequested", "Deleting", "DeleteError", "Ready"]
    assert (await edge.user.do(path, "delete")).status == "None"


async def test_all_the_errors_that_a_crm_sends_are_joined(edge: Edge) -> None:
    await edge.up()
    edge.set_faults(fault("silent", "create"))
    ticket = await edge.begun(edge.at("berlin", "c1"), "create", spec={})
    await edge.say(ticket.path, "CreateError", errors=["no network", "no disk"])
    assert (await edge.end(ticket)).message == "no network; no disk"


async def test_dependent_and_conflicting_changes_never_run_at_the_same_time(edge: Edge) -> None:
    await edge.up()
    edge.set_faults(fault("silent"))
    cluster, app = edge.at("berlin", "c1"), edge.at("berlin", "c1", "shop")
    ticket = await edge.begun(cluster, "create", spec={})
    refused = await edge.user.refused(app, "create", spec={})
    assert refused.startswith(f"409 Conflict: other action currently happening on {cluster}: create since ")
    assert "409 Conflict" in await edge.user.refused(cluster, "delete")
    await edge.say(cluster, "Ready")
    assert (await edge.end(ticket)).status == "Ready"
    ticket = await edge.begun(app, "create", spec={})
    assert f"on {app}: create" in await edge.user.refused(cluster, "update", spec={"nodes": 2})
    other = await edge.begun(edge.at("berlin", "c2"), "create", spec={})  # a sibling runs beside it
    for each in (ticket, other):
        await edge.say(each.path, "Ready")
        assert (await edge.end(each)).result is ActionResult.SUCCEEDED


async def test_what_an_instance_needs_must_be_there(edge: Edge) -> None:
    assert "no such Cloudlet" in await edge.user.refused(edge.at("nowhere", "c1"), "create", spec={})
    await edge.up()
    assert "no such ClusterInst" in await edge.user.refused(edge.at("berlin", "c1", "shop"), "create", spec={})
    assert "no such ClusterInst" in await edge.user.refused(edge.at("berlin", "c1"), "update", spec={})
    assert await edge.user.history(edge.at("berlin", "c1")) == []


async def test_a_cluster_goes_only_when_it_is_empty_or_takes_its_apps_along(edge: Edge) -> None:
    await edge.up()
    cluster = edge.at("berlin", "c1")
    await edge.user.do(cluster, "create", spec={})
    apps = [edge.at("berlin", "c1", name) for name in ("one", "two")]
    for app in apps:
        await edge.user.do(app, "create", spec={})
    assert "it has 2 apps" in await edge.user.refused(cluster, "delete")
    edge.set_faults(fault("fail", "delete", "*:app:two", message="busy", times=1))
    outcome = await edge.user.do(cluster, "delete", spec={"cascade": True})
    assert outcome.message == f"1 of its apps could not be deleted: {apps[1]}: busy"
    assert [await edge.status(path) for path in (cluster, *apps)] == ["Ready", "None", "Ready"]
    outcome = await edge.user.do(cluster, "delete", spec={"cascade": True})
    assert outcome.status == "None"
    assert edge.things() == []
    assert words(await edge.walk(apps[1]))[-3:] == ["DeletePrepare", "DeleteRequested", "None"]
    await edge.at_rest()


async def test_ignore_crm_changes_only_our_own_books(edge: Edge) -> None:
    await edge.up()
    path = edge.at("berlin", "c1")
    outcome = await edge.user.do(path, "create", spec={"override": "ignore-crm"})
    assert (outcome.status, outcome.message) == ("Ready", "the CRM was not told")
    assert edge.things() == []
    await edge.stop_crm()
    await edge.until_missed(edge.at("berlin"))
    assert (await edge.user.do(path, "delete", spec={"override": "ignore-crm"})).status == "None"


async def test_ignore_crm_errors_tells_the_crm_and_succeeds_whatever_it_says(edge: Edge) -> None:
    await edge.up()
    edge.set_faults(fault("fail", message="no"))
    path = edge.at("berlin", "c1")
    outcome = await edge.user.do(path, "create", spec={"nodes": 3, "override": "ignore-crm-errors"})
    assert (outcome.result, outcome.status) == (ActionResult.SUCCEEDED, "Ready")
    assert outcome.message == "the CRM's error was ignored: no"
    assert (await edge.see(path)).spec == {"nodes": 3, "flavor": "small"}
    assert (await edge.user.do(path, "delete", spec={"override": "ignore-crm-errors"})).status == "None"


async def test_ignore_transient_state_takes_over_from_a_stuck_action_and_wants_force(edge: Edge) -> None:
    await edge.up(cleanup=1)
    path = edge.at("berlin", "c1")
    await edge.user.do(path, "create", spec={})
    edge.set_faults(fault("silent", "update"))
    stuck = await edge.begun(path, "update", spec={"nodes": 4})
    await edge.until(path, "UpdateRequested")
    refused = await edge.user.refused(path, "delete", spec={"override": "ignore-transient-state"})
    assert "409 Conflict" in refused
    both = {"override": "ignore-crm-and-transient-state"}
    assert (await edge.user.do(path, "delete", spec=both, force=True)).status == "None"
    assert (await edge.end(stuck)).result is ActionResult.CANCELLED
    await edge.user.do(path, "create", spec={"override": "ignore-crm"})
    assert "add --force" not in await edge.user.refused(path, "create", spec={})
    assert "takes over" in await edge.user.refused(path, "delete", spec={"override": "ignore-transient-state"})
    await edge.at_rest()


async def test_a_forced_create_over_a_living_cluster_is_refused_and_destroys_nothing(edge: Edge) -> None:
    """Its undo would have deleted the one that lives, as the CRM fails."""
    await edge.up(latency=0.05)
    path = edge.at("berlin", "c1")
    await edge.user.do(path, "create", spec={"nodes": 3})
    before = await edge.see(path)
    edge.set_faults(fault("fail", "create", message="no capacity left"))
    for spec in ({}, {"override": "ignore-transient-state"}):
        assert "exists already, under Ready" in await edge.user.refused(path, "create", spec=spec, force=True)
    assert await edge.see(path) == before
    assert edge.things() == ["c1"]
    await edge.at_rest()


async def test_a_cancelled_create_leaves_nothing_behind(edge: Edge) -> None:
    await edge.up(latency=0.05)
    edge.set_faults(fault("slow", "create", seconds=30))
    path = edge.at("berlin", "c1")
    ticket = await edge.begun(path, "create", spec={})
    await edge.until(path, "Creating")
    await edge.user.asking.cancel_action(path)
    outcome = await edge.end(ticket)
    assert (outcome.result, outcome.status) == (ActionResult.CANCELLED, "None")
    assert edge.things() == []
    assert words(await edge.walk(path))[-2:] == ["CreateError", "None"]
    await edge.at_rest()


async def test_progress_is_shown_while_it_goes_on_and_kept(edge: Edge) -> None:
    await edge.up()
    edge.set_faults(fault("silent"))
    path = edge.at("berlin", "c1")
    ticket = await edge.begun(path, "create", spec={})
    for task, step in ((1, "network"), (2, "nodes")):
        progress = {"task": task, "of": 5, "step": step, "message": "on it"}
        await edge.say(path, "Creating", progress=progress)
    async with asyncio.timeout(PATIENCE):
        while (seen := await progress_of(edge.user.asking, path)).done != 2:
            await asyncio.sleep(0.02)
    assert (seen.phase, seen.step, seen.targets) == ("Creating", "task 2 of 5: nodes on it", 5)
    await edge.say(path, "Ready", runtime={"endpoint": "10.0.0.1"})
    await edge.end(ticket)
    kept = (await edge.see(path)).info
    assert kept["progress"] == {"task": 2, "of": 5, "step": "nodes", "message": "on it"}
    assert kept["runtime"] == {"endpoint": "10.0.0.1"}


@pytest.mark.parametrize("action", ["create", "update", "delete"])
async def test_no_answer_at_all_is_an_error_and_is_undone(edge: Edge, action: str) -> None:
    await edge.up(create=0.3, update=0.3, delete=0.3)
    path = edge.at("berlin", "c1")
    if action != "create":
        await edge.user.do(path, "create", spec={"override": "ignore-crm"})
    edge.set_faults(fault("silent", action, times=1))
    outcome = await edge.user.do(path, action, spec={"nodes": 3} if action == "update" else None)
    assert (outcome.result, outcome.message) == (ActionResult.FAILED, "the CRM did not answer within 0.3 s")
    assert outcome.status == ("None" if action == "create" else "Ready")
    actor, _, error = (await edge.walk(path))[-2]
    assert (actor, error) == ("Controller", f"{action.capitalize()}Error")
    await edge.at_rest()


async def test_silence_while_at_work_is_asked_about_and_work_that_goes_on_is_waited_for(edge: Edge) -> None:
    for longer in LONGER:
        site = f"berlin{longer}"
        await edge.up(site, create=2 * longer, answer=60, cap=300)
        slow = fault("slow", "create", seconds=12.0 * longer, times=1)  # silent for longer than two between its tasks
        edge.set_faults(slow, name=site)
        path = edge.at(site, "c1")
        outcome = await edge.user.do(path, "create", spec={})
        if outcome.status == "Ready":
            break
    assert outcome.status == "Ready", outcome.message
    assert any("already Creating" in why for why in await edge.ignored(path))  # its answers to: are you still at it?


async def test_silence_while_at_work_that_is_not_answered_either_is_an_error(edge: Edge) -> None:
    fell_silent = "the CRM fell silent under Creating, and does not say whether it still works"
    for longer in LONGER:
        site = f"berlin{longer}"
        await edge.up(site, create=5 * longer, answer=0.3, cleanup=0.3)
        edge.set_faults(fault("silent"), fault("silent", "report"), name=site)
        path = edge.at(site, "c1")
        ticket = await edge.begun(path, "create", spec={})
        await edge.say(path, "Creating")
        outcome = await edge.end(ticket)
        if outcome.message.startswith(fell_silent):
            break
    assert outcome.message.startswith(fell_silent)
    assert "did not confirm" in outcome.message
    assert outcome.status == "None"


async def test_the_cap_ends_all_patience(edge: Edge) -> None:
    for longer in LONGER:
        site, cap = f"berlin{longer}", 8 * longer
        await edge.up(site, create=4 * longer, answer=60, cap=cap)
        edge.set_faults(fault("slow", "create", seconds=60.0 * longer, times=1), name=site)
        outcome = await edge.user.do(edge.at(site, "c1"), "create", spec={})
        if outcome.message == f"the CRM did not finish within {cap} s":
            break
    assert outcome.message == f"the CRM did not finish within {cap} s"
    assert outcome.status == "None"
    assert edge.things(site) == []
