"""A worker killed with -9 during a deploy of real processes: nothing is lost, doubled, or left locked."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from domain import wire
from domain.locks import LocksView
from domain.model import ObjectsView, ObjectView, Outcome, ReadQuery
from tests.chaos.world import World, world
from tests.patience import PATIENCE
from tests.stack import is_locked

SHOP = f"system:shop-{os.getpid()}"  # others may have a shop on this machine just now


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path / "world") as made:
        yield made
        if made.worker is None or made.worker.returncode is not None:
            await made.start_worker()
        await made.do(SHOP, "delete")


def gated(gate: Path, version: str) -> dict[str, Any]:
    """A service that is well as soon as a file is there."""
    health = {"command": ["test", "-e", str(gate)], "interval": 0.1}
    return {"command": ["sleep", "1000"], "environment": {"VERSION": version}, "health": health, "stopSeconds": 1}


def processes() -> dict[int, str]:
    """Every instance of ours that runs on this machine, by its number: which service it is of. No health checks."""
    found = {}
    for folder in Path("/proc").iterdir():
        try:
            if not folder.name.isdecimal() or not (folder / "cmdline").read_bytes().startswith(b"sleep"):
                continue
            known = (folder / "environ").read_bytes().decode("latin-1").split("\0")
        except OSError:
            continue
        service = [word for word in known if word.startswith(f"RATCHET_SERVICE={SHOP}:")]
        if service:
            found[int(folder.name)] = service[0].partition("=")[2]
    return found


async def stage(place: World, name: str) -> str:
    page = await place.asking.run_query(
        wire.READ_OBJECTS, ReadQuery(kind="deploy", path=SHOP), ObjectsView, seconds=PATIENCE
    )
    return next((view.status for view in page.objects if view.path.endswith(f":{name}")), "")


async def until(place: World, name: str, wanted: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while await stage(place, name) != wanted:
            await asyncio.sleep(0.05)


async def locks(place: World) -> set[tuple[str, str]]:
    held = (await place.asking.run_query(wire.READ_LOCKS, ReadQuery(path=SHOP), LocksView, seconds=PATIENCE)).locks
    return {(lock.path, lock.mode) for lock in held}


async def test_a_deploy_outlives_its_worker_keeps_its_lock_and_doubles_no_process(place: World, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    assert (await place.do(SHOP, "create", spec={"backend": "process"})).result == "succeeded"
    definition = {
        "parts": [{"name": "job", **gated(gate, "1"), "instances": 2}, {"name": "other", "command": ["sleep", "1000"]}]
    }
    ticket = await place.ask(SHOP, "deploy", spec={"definition": definition})
    await until(place, "d1", "in progress")
    async with asyncio.timeout(PATIENCE):
        while len(processes()) < 3:
            await asyncio.sleep(0.05)
    before = processes()
    await place.kill_worker()
    assert processes() == before  # they do not care
    await place.start_worker()
    assert await locks(place) == {(SHOP, "X")}
    refused = await place.ask(f"{SHOP}:job", "deploy", spec={"definition": gated(gate, "2")})
    assert refused.admission.refusal is not None
    assert refused.admission.refusal.message.endswith("locked by deploy d1")
    gate.touch()
    async with asyncio.timeout(PATIENCE):
        outcome: Outcome = await place.asking.wait_for_outcome(SHOP, ticket.run)
    assert (outcome.result, outcome.status) == ("succeeded", "stable")
    assert processes() == before
    assert await locks(place) == set()
    assert await place.verify(SHOP) == []


async def test_what_died_while_no_worker_was_there_is_started_again_and_the_rest_is_left_alone(
    place: World, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    await place.do(SHOP, "create", spec={"backend": "process"})
    definition = {"parts": [{"name": "job", **gated(gate, "1"), "instances": 2}]}
    assert (await place.do(SHOP, "deploy", spec={"definition": definition})).result == "succeeded"
    lost, kept = sorted(processes())
    await place.kill_worker()
    os.kill(lost, 9)
    await place.start_worker()
    async with asyncio.timeout(PATIENCE):
        while len(processes()) < 2 or lost in processes():
            await asyncio.sleep(0.05)
    assert kept in processes()
    async with asyncio.timeout(PATIENCE):
        while (
            await place.asking.run_query(wire.READ_OBJECT, ReadQuery(path=SHOP), ObjectView, seconds=PATIENCE)
        ).status != "stable":
            await asyncio.sleep(0.05)
    assert (await place.do(SHOP, "teardown")).result == "succeeded"
    assert processes() == {}


async def test_a_deploy_that_is_cancelled_while_its_worker_is_dead_is_cancelled_and_did_not_fail(place: World) -> None:
    """Its call to the backend times out, as nobody is there to end it: that is not the deploy's deadline."""
    never = {"command": ["run"], "environment": {"SIMULATED": "unhealthy"}}
    await place.do(SHOP, "create", spec={"backend": "simulated"})
    ticket = await place.ask(SHOP, "deploy", spec={"definition": {"parts": [{"name": "web", **never}]}})
    handle = place.client.get_workflow_handle(SHOP, run_id=ticket.run)
    async with asyncio.timeout(PATIENCE):
        while not any(
            call.last_worker_identity for call in (await handle.describe()).raw_description.pending_activities
        ):
            await asyncio.sleep(0.05)
    await place.kill_worker()
    await handle.cancel()
    await place.start_worker()
    async with asyncio.timeout(PATIENCE):
        outcome = await place.asking.wait_for_outcome(SHOP, ticket.run)
    assert outcome.result == "cancelled", outcome.message


async def test_a_stopped_worker_does_not_keep_others_from_running_services(place: World) -> None:
    """As by Ctrl-Z: the one that waits for its lock ends it, so that it cannot go on beside its successor."""
    part = {"parts": [{"name": "web", "command": ["run"]}]}
    await place.do(SHOP, "create", spec={"backend": "simulated"})
    assert (await place.do(SHOP, "deploy", spec={"definition": part})).result == "succeeded"
    stopped = place.worker
    assert stopped
    async with asyncio.timeout(PATIENCE):
        stopped.send_signal(signal.SIGSTOP)
        while is_locked(place.home):  # it was in a transaction
            stopped.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.05)
            stopped.send_signal(signal.SIGSTOP)
    await place.start_worker()
    changed = {"parts": [{"name": "web", "command": ["run", "again"]}]}
    async with asyncio.timeout(PATIENCE):
        assert (await place.do(SHOP, "deploy", spec={"definition": changed})).result == "succeeded"
        assert await stopped.wait() == -signal.SIGKILL
