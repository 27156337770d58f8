"""Known clouds: those with rate limits and those of connections. A cloud whose queue no worker polls is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.pollers import PollerCheck
from domain.connections import Connections
from domain.dryrun import DryRun
from domain.errors import Category, Refused, Superseded
from domain.limits import CAPS_BY_CLOUD, CloudCaps, ConcurrencyCaps
from domain.model import ActionResult, Refusal, Request
from domain.wire import cloud_queue
from tests.patience import PATIENCE, within
from tests.user import User
from workers import process
from workers.connections import parse_connections
from workers.service import WorkerService, all_queues
from workers.settings import WorkerSettings

MOON = {"connections": {"sea": {"provider": "simulated", "csp": "moon", "region": "tranquillity"}}}
NOBODY = "no worker serves the cloud 'mars': nothing was changed"


def on(csp: str, region: str = "r1", **more: Any) -> dict[str, Any]:
    return {"subGroups": [{"name": "front", "subGroupSize": 2, "csp": csp, "region": region, **more}]}


def named(connection: str) -> dict[str, Any]:
    return {"subGroups": [{"name": "front", "connectionName": connection}]}


@pytest.fixture
async def moon(client: Client, settings: WorkerSettings, tmp_path: Path) -> AsyncIterator[WorkerService]:
    """A worker beside the others, for a cloud that only its own connections name."""
    file = tmp_path / "connections.yaml"
    file.write_text("connections: {sea: {provider: simulated, csp: moon, region: tranquillity}}")
    service = WorkerService(client, settings.model_copy(update={"connections": file}))
    async with service.serve_queues([cloud_queue("moon")]):
        async with within(PATIENCE, "nobody polls for moon"):
            while await PollerCheck(client).queues_without_workers([cloud_queue("moon")]):
                pass  # Temporal lists a new worker only after a while
        yield service
    await service.close()


def test_a_worker_polls_for_the_clouds_of_the_table_and_for_those_that_its_connections_name() -> None:
    assert Connections().served_clouds() == list(CAPS_BY_CLOUD)
    assert parse_connections(MOON, "c.yaml").served_clouds() == [*CAPS_BY_CLOUD, "moon"]
    named, plain = (all_queues(some, WorkerSettings()) for some in (parse_connections(MOON, "c.yaml"), Connections()))
    extra = set(named).difference(plain)
    assert extra == {"cloud-moon"}
    assert process.validate_queues(WorkerSettings(), ["cloud-aws"]) == ["cloud-aws"]


def test_a_cloud_that_the_table_does_not_name_has_the_limits_of_others() -> None:
    limits = ConcurrencyCaps().limits_of_cloud("moon")
    assert (limits.regions, limits.vms("r1")) == (10, 30)
    assert CloudCaps(10, 30) == CAPS_BY_CLOUD["other"]


async def test_only_queues_that_nobody_polls_are_missing(user: User, client: Client) -> None:
    assert await PollerCheck(client).queues_without_workers(["cloud-aws", "cloud-mars", "cloud-gcp"]) == ["cloud-mars"]
    assert await PollerCheck(client, {"cloud-mars"}).queues_without_workers(["cloud-mars"]) == [], (
        "our own queue is not asked about"
    )


async def test_one_call_that_fails_says_nothing_about_the_workers(
    user: User, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe, failures = client.workflow_service.describe_task_queue, iter(range(1))

    async def fail_once(request: Any, **options: Any) -> Any:
        for _ in failures:
            raise RPCError("shard is moving", RPCStatusCode.UNAVAILABLE, b"")
        return await describe(request, **options)

    monkeypatch.setattr(client.workflow_service, "describe_task_queue", fail_once)
    assert await PollerCheck(client).queues_without_workers(["cloud-mars"]) == ["cloud-mars"]


async def test_a_cloud_that_no_worker_serves_is_refused_before_anything_is_kept(user: User) -> None:
    ticket = await user.ask(user.mci(), "create", spec=on("mars"))
    refusal = ticket.admission.refusal
    assert refusal
    assert (refusal.category, refusal.message) == (Category.INVALID, NOBODY)
    assert refusal.hint.startswith("clouds here are: aws, azure, gcp,")
    assert await user.history(user.mci()) == []


@pytest.mark.parametrize(
    ("spec", "meant"),
    [
        (on("gpc"), "did you mean gcp? clouds here are"),
        (on("gcp", "europe-west33"), "did you mean europe-west3?"),
    ],
)
async def test_a_cloud_or_region_that_is_misspelt_is_bad_input_and_the_right_one_is_named(
    user: User, spec: dict[str, Any], meant: str
) -> None:
    refusal = (await user.ask(user.mci(), "create", spec=spec)).admission.refusal
    assert refusal
    assert refusal.category is Category.INVALID
    assert meant in f"{refusal.message} {refusal.hint}"


async def test_a_cloud_that_only_another_workers_connections_name_is_served(user: User, moon: WorkerService) -> None:
    outcome = await user.do(user.mci(), "create", spec=on("moon", "tranquillity"))
    assert (outcome.result, outcome.done) == (ActionResult.SUCCEEDED, 2), outcome
    assert [str(vm.state) for vm in await moon.simulated["moon"].list_all_vms()] == ["running", "running"]
    assert (await user.do(user.mci(), "scale-out", spec={"subGroup": "front"})).result is ActionResult.SUCCEEDED
    assert (await user.do(user.mci(), "delete")).result is ActionResult.SUCCEEDED
    assert {str(vm.state) for vm in await moon.simulated["moon"].list_all_vms()} == {"terminated"}


async def test_a_worker_that_lacks_a_cloud_says_so_instead_of_breaking_down(stack: WorkerService) -> None:
    with pytest.raises(Superseded, match="mars is not served by this worker"):
        stack.context.clouds["mars"]


async def rehearsed(user: User, spec: dict[str, Any], action: str = "create") -> DryRun:
    return await user.asking.check_request(Request(path=user.mci(), action=action, spec=spec, requested_by="tester"))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (on("mars"), NOBODY),
        (named("aws-mars-1"), "there is no connection 'aws-mars-1'"),
        (on("aws", "eu-nowhere-7"), "aws has no region 'eu-nowhere-7'"),
        (on("aws", specId="enormous"), "has no spec 'enormous'"),
        (on("aws", provider="openstack"), "aws/r1 is served by simulated, not by openstack"),
    ],
)
async def test_a_dry_run_is_refused_as_the_action_is(user: User, spec: dict[str, Any], words: str) -> None:
    try:
        told: Refusal | None = (await rehearsed(user, spec)).refusal
    except Refused as refused:  # a read that is refused
        told = Refusal.from_error(refused)
    refusal = (await user.ask(user.mci(), "create", spec=spec)).admission.refusal
    assert told
    assert refusal
    assert words in refusal.message
    assert (told.category, told.message, told.hint) == (refusal.category, refusal.message, refusal.hint)


async def test_a_dry_run_of_what_would_be_done_says_so_and_changes_nothing(user: User) -> None:
    for spec in (named("aws-eu-central-1"), user.groups("aws", "gcp")):
        assert (await rehearsed(user, spec)).grant
    assert await user.history(user.mci()) == []
    await user.do(user.mci(), "create", spec=user.groups("aws", size=1))
    assert (await rehearsed(user, {"subGroup": "aws", "count": 2}, "scale-out")).grant
    assert (await user.see(user.mci())).counts == {"Running": 1}


async def test_a_dry_run_names_every_target_its_place_and_what_it_becomes(user: User) -> None:
    groups = {"subGroups": [{"name": "a", "subGroupSize": 2, "csp": "aws", "region": "eu-central-1"}]}
    created = await rehearsed(user, groups)
    assert created.preview
    assert [change.model_dump() for change in created.preview.changes] == [
        {
            "path": user.vm(f"a-{n}"),
            "action": "create",
            "placement": "aws/eu-central-1",
            "simulated": True,
            "came_from": "None",
            "during": "Creating",
            "then": "Running",
        }
        for n in (1, 2)
    ]
    assert created.preview.locks == [user.mci()]
    await user.do(user.mci(), "create", spec=groups)
    more = await rehearsed(user, {"subGroup": "a", "count": 2}, "scale-out")
    fewer = await rehearsed(user, {"subGroup": "a"}, "scale-in")
    assert more.preview
    assert fewer.preview
    assert [change.path for change in more.preview.changes] == [user.vm("a-3"), user.vm("a-4")]
    assert [(change.path, change.then) for change in fewer.preview.changes] == [(user.vm("a-2"), "Terminated")]
    assert (await user.see(user.mci())).counts == {"Running": 2}, "nothing was changed"


async def test_a_name_that_is_taken_is_refused_with_the_status_that_readers_see(user: User) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    await user.do(user.mci(), "terminate")
    refusal = (await rehearsed(user, user.groups())).refusal
    assert refusal
    assert refusal.message == "MCI exists already, under Terminated:2 (R:0/2)"
    now = f"{user.mci()} is Terminated:2 (R:0/2); allowed now: scale-out, scale-in, delete"
    assert refusal.hint == f"take another name, or act on this one: {now}"
