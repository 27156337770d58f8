"""Containers when things go wrong: workers killed at any step, runc slow, wrong or answering twice, a full host."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from domain.errors import NoCapacity
from domain.services.ports import ServiceOrder
from providers.services.container import ContainerRules, runner
from providers.sockets import find_free_port
from tests.patience import PATIENCE
from tests.test_platform.forkserver import ForkServer
from tests.test_systems.containers import folder, image, instance, living, message_of, needs_containers, runc
from tests.test_systems.images import sleeper, web
from tests.test_systems.supervising import ANY_IMAGE, forget, keeping, make_runner, until, want
from tests.test_systems.test_processes import runs

__all__ = ["folder", "image"]  # fixtures

pytestmark = needs_containers


def shims(folder: Path) -> list[int]:
    """Every process of ours in this folder that makes or watches a container."""
    found = []
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if process.name.isdecimal() and os.readlink(process / "cwd").startswith(str(folder)):
                found.append(int(process.name))
    return found


KILLS = 12  # of the steps that a supervisor takes


@pytest.mark.parametrize("moment", range(KILLS))
async def test_a_worker_killed_at_any_step_leaves_nothing_doubled_and_nothing_behind(
    folder: Path, image: Path, moment: int, forkserver: ForkServer
) -> None:
    """It runs a service, updates it and removes it; its successor ends with exactly what is wanted."""
    last = 1 + moment * 52 // (KILLS - 1)
    words = [str(folder), str(image), str(last)]
    keeper = await forkserver.start(words, dict(os.environ), os.devnull, "tests.test_systems.keeper")
    async with asyncio.timeout(PATIENCE):
        assert await keeper.wait() == -signal.SIGKILL
        async with keeping(folder) as supervisor:
            (unit,) = await want(supervisor, 2_000, sleeper(image, environment={"VERSION": "3"}))
            assert living(folder) == [unit.token]
            assert len(shims(folder)) == 1
            assert b"VERSION=3" in Path(f"/proc/{unit.pid}/environ").read_bytes()
            await supervisor.remove_services("system:s", 3_000)
            await until(supervisor, 0, 0)
    assert shims(folder) == []


async def test_the_next_supervisor_finds_the_same_containers(folder: Path, image: Path) -> None:
    async with asyncio.timeout(PATIENCE):
        async with keeping(folder) as first:
            before = await want(first, 1, sleeper(image, instances=3))
        os.kill(before[0].pid, signal.SIGKILL)  # while nobody looks
        async with keeping(folder) as second:
            while len(living(folder)) < 3:  # what is on record may be from before
                await asyncio.sleep(0.05)
            await until(second, 1, 1)
            after = await second.ledger.list_instances()
            assert {unit.pid for unit in before[1:]} < {unit.pid for unit in after}
            await forget(second)
    assert not any(runs(unit.pid) for unit in [*before, *after])


# Chaos: runc and the world around it.


def wrapped(folder: Path, script: str) -> ContainerRules:
    """The rules of a worker whose runc behaves otherwise; `$verb` is what it is asked for."""
    program = folder / "runc-wrapped"
    verb = 'for verb in "$@"; do case $verb in create|start|delete|state|exec) break;; esac; done'
    program.write_text(f'#!/bin/sh\n{verb}\n{script}\nexec runc "$@"\n')
    program.chmod(0o755)
    return replace(ANY_IMAGE, runc=str(program))


@pytest.mark.parametrize(
    "script",
    [
        '[ $verb = create ] && { runc "$@"; runc "$@"; exit $?; }',  # twice: the second says that it exists
        '[ $verb = start ] && { runc "$@"; runc "$@"; exit $?; }',
        '[ $verb = delete ] && { runc "$@"; runc "$@"; exit 1; }',
        '[ $verb = create ] && { runc "$@"; exit 1; }',  # the answer is wrong
        "[ $verb = delete ] && exit 1",  # it does not do it
        "sleep 0.2",
    ],
)
async def test_an_answer_of_runc_is_not_trusted(folder: Path, image: Path, script: str) -> None:
    async with asyncio.timeout(PATIENCE), keeping(folder, wrapped(folder, script)) as supervisor:
        (unit,) = await want(supervisor, 1, sleeper(image))
        assert living(folder) == [unit.token]
        assert unit.crashes == 0
        await forget(supervisor)


@pytest.mark.parametrize("verb", ["create", "start"])
async def test_a_runc_that_hangs_is_given_up_told_and_tried_again(folder: Path, image: Path, verb: str) -> None:
    hang = folder / "hang"
    hang.touch()
    rules = replace(wrapped(folder, f"[ $verb = {verb} ] && [ -e {hang} ] && exec sleep 1000"), seconds=2)
    async with asyncio.timeout(PATIENCE), keeping(folder, rules) as supervisor:
        await supervisor.apply_orders([ServiceOrder("system:s:job", 1, sleeper(image))])
        assert "within 2 s" in await message_of(supervisor, f"runc {verb} gave no answer")
        assert await supervisor.runner.find_instance((await supervisor.ledger.list_instances())[0]) is False
        hang.unlink()
        await until(supervisor, 1, 1)
        assert len(living(folder)) == 1
        await forget(supervisor)


async def test_a_container_killed_outside_comes_back(
    folder: Path, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "SHIM_SECONDS", PATIENCE)  # the shim says by what it was ended
    async with asyncio.timeout(PATIENCE), keeping(folder) as supervisor:
        (unit,) = await want(supervisor, 1, sleeper(image))
        await runc(folder, "delete", "--force", unit.token)  # its state is gone, too
        await message_of(supervisor, "was ended by SIGKILL")
        await until(supervisor, 1, 1)
        assert living(folder) == [unit.token]
        await forget(supervisor)


async def test_a_paused_container_is_unhealthy_and_replaced(folder: Path, image: Path) -> None:
    health = {"http": "/health", "interval": 0.1, "timeout": 5, "failures": 1}
    async with asyncio.timeout(PATIENCE), keeping(folder) as supervisor:
        units = await want(supervisor, 1, web(image, find_free_port(), health=health, stopSeconds=0.5))
        (unit,) = [unit for unit in units if unit.number]
        await runc(folder, "pause", unit.token)
        await message_of(supervisor, "no longer healthy")
        await until(supervisor, 1, 1)
        assert unit.pid not in {unit.pid for unit in await supervisor.ledger.list_instances()}
        await forget(supervisor)


async def test_a_full_host_and_a_full_container_are_told_clearly(folder: Path, image: Path) -> None:
    async with asyncio.timeout(PATIENCE), keeping(folder, replace(ANY_IMAGE, limit=1)) as supervisor:
        await supervisor.apply_orders([ServiceOrder("system:s:job", 1, sleeper(image, instances=2))])
        assert "RATCHET_MAX_CONTAINERS" in await message_of(supervisor, "no room for another container")
        assert len(living(folder)) <= 1  # it may be made just now
        greedy = sleeper(image, resources={"memory": 16}) | {
            "command": ["sh", "-c", "exec dd if=/dev/zero bs=64M of=/data/x"]
        }
        await supervisor.apply_orders([ServiceOrder("system:s:job", 2, greedy)])
        assert "reached its memory limit of 16 MiB" in await message_of(supervisor, "memory limit")
        await forget(supervisor)
    with pytest.raises(NoCapacity):
        await make_runner(folder, replace(ANY_IMAGE, limit=0)).start_instance(instance(image, "true"))
