"""A service that its backend's worker does not allow is refused when it is requested, whatever the action."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus

from client.connection import connect_temporal
from domain.errors import Category
from domain.model import Request
from domain.systems.ports import backend_queue
from starter.systems.definitions import find_rollback_definition
from tests.patience import PATIENCE
from tests.stack import PROCESS_BACKEND, opened, until_polled
from tests.test_systems.kit import Shop
from workers.plugin import temporal_plugin
from workers.service import WorkerService
from workers.settings import WorkerSettings

SLEEP, TAIL, CAT = (os.path.realpath(shutil.which(name) or "") for name in ("sleep", "tail", "cat"))
WEB = {"command": [SLEEP, "1000"]}
OTHER = {"command": [TAIL, "-f", "/dev/null"]}


def tree(*parts: dict[str, Any], **named: dict[str, Any]) -> dict[str, Any]:
    return {"parts": [*parts, *({"name": name, **part} for name, part in named.items())]}


UNLISTED = {
    "a system": ("/", tree(web={"command": [CAT]})),
    "below it": ("/", tree(web=WEB, more=tree(deep={"command": [CAT]}))),
    "a new part": ("/new", {"command": [CAT]}),
    "an update": ("/web", {"command": [CAT]}),
    "a health check": ("/web", {**WEB, "health": {"command": [CAT]}}),
    "by its name": ("/web", {"command": ["cat"]}),
}


@pytest.fixture(params=["one worker does all", "another worker has the backend"])
async def shop(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Shop]:
    """A system of processes. One program is listed, by a link, and by the worker that has the backend alone."""
    (tmp_path / "listed").symlink_to(SLEEP)
    (home := tmp_path / "home").mkdir(mode=0o700)
    listed = {"backends": "process", "programs": str(tmp_path / "listed")}
    apart = "another" in request.param
    async with AsyncExitStack() as left, asyncio.timeout(4 * PATIENCE):
        settings: dict[str, Any] = {"backends": "simulated", "programs": CAT} if apart else listed
        site = await left.enter_async_context(opened(home, **settings))
        if apart:
            given = WorkerSettings.model_validate({"home": home, **PROCESS_BACKEND, **listed})
            other = WorkerService(await connect_temporal(home, temporal_plugin()), given)
            left.push_async_callback(other.close)
            await left.enter_async_context(other.serve_queues([backend_queue("process")]))
        asking = await until_polled(site.client, backend_queue("process"))
        found = await Shop(asking, site.stack, "system:shop", "process").create()
        yield found
        await found.do("/", "delete")


async def refused(shop: Shop, path: str, definition: dict[str, Any], program: str) -> None:
    """It is refused with the reason, in a dry run too, and leaves nothing."""

    async def everything() -> list[Any]:
        kinds = ("system", "part", "deploy")
        there = [view.path for kind in kinds async for view in shop.asking.iterate_objects(kind, shop.path)]
        return [(await shop.asking.read_object(path), await shop.asking.read_history(path)) for path in there]

    before = await everything()
    asked = Request(path=path, action="deploy", spec={"definition": definition}, requested_by="tester")
    ticket = await shop.asking.request_action(asked)
    for refusal in (ticket.admission.refusal, (await shop.asking.check_request(asked)).refusal):
        assert refusal, ticket
        assert refusal.category is Category.NOT_ALLOWED
        assert f"RATCHET_PROGRAMS of the worker does not list {program}" in refusal.message
        assert refusal.message.endswith(": nothing was changed")
        assert "backend-process" in refusal.hint
    assert await everything() == before


async def test_a_program_that_is_not_listed_is_refused_by_every_action_that_would_start_it(
    shop: Shop, tmp_path: Path
) -> None:
    assert "1 service" in (await shop.deploy("/", tree(web=WEB))).message
    for where, definition in UNLISTED.values():
        await refused(shop, shop.at(where), definition, CAT if definition.get("command") != ["cat"] else "")
    (tmp_path / "listed").unlink()
    (tmp_path / "listed").symlink_to(TAIL)
    assert (await shop.deploy("/", tree(web=OTHER))).message.startswith("d2:")
    back = await find_rollback_definition(shop.asking, shop.path, "")
    await refused(shop, back.path, back.definition, SLEEP)


async def test_force_for_a_program_that_is_not_listed_does_not_end_the_deploy_that_runs(shop: Shop) -> None:
    await shop.deploy("/", tree(web=WEB))
    never_healthy = {**WEB, "health": {"command": [SLEEP, "1000"], "timeout": 60, "failures": 20}}
    running = await shop.admitted("/web", "deploy", {"definition": never_healthy})
    await shop.until_state("/web", "updating")
    spec = {"definition": {"command": [CAT]}}
    refusal = (await shop.ask("/web", "deploy", spec, force=True)).admission.refusal
    assert refusal
    assert f"RATCHET_PROGRAMS of the worker does not list {CAT}" in refusal.message
    run = shop.asking.client.get_workflow_handle(running.path, run_id=running.run)
    assert (await run.describe()).status is WorkflowExecutionStatus.RUNNING
    await shop.asking.cancel_action(running.path)
    assert (await shop.asking.wait_for_outcome(running.path, running.run)).result == "cancelled"
