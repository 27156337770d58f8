"""Real containers: what they may and see, how they are checked, updated and ended."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from domain.errors import Rejected
from domain.services.definition import Node
from domain.services.ports import ServiceOrder
from providers.services.confinement import CGROUPS
from providers.services.container import ContainerRules
from providers.services.ledger import SupervisedInstance
from providers.sockets import find_free_port
from tests.patience import PATIENCE, eventually
from tests.test_systems.containers import folder, image, instance, living, message_of, needs_containers
from tests.test_systems.images import make_image, sleeper, web
from tests.test_systems.supervising import ANY_IMAGE, forget, keeping, make_runner, probe, until, want
from tests.test_systems.test_processes import get, runs

__all__ = ["folder", "image"]  # fixtures

pytestmark = needs_containers


async def test_a_container_runs_is_healthy_serves_and_is_gone(folder: Path, image: Path) -> None:
    port = find_free_port()
    async with keeping(folder) as supervisor:
        units = await want(supervisor, 1, web(image, port, instances=2))
        assert len(living(folder)) == 2
        assert b"version 1" in await get(port)
        await forget(supervisor)
    assert not any(runs(unit.pid) for unit in units)
    assert not list(CGROUPS.glob(f"*/ratchet/{units[0].token}"))
    assert {entry.name for entry in image.iterdir()} == {"bin"}  # its files were never written to


async def test_an_update_drops_no_request(folder: Path, image: Path) -> None:
    port, answers, done = find_free_port(), list[bytes](), asyncio.Event()

    async def ask_on() -> None:
        while not done.is_set():
            answers.append(await get(port))

    async with keeping(folder) as supervisor:
        before = await want(supervisor, 1, web(image, port, instances=2))
        client = [asyncio.create_task(ask_on()) for _ in range(3)]
        after = await want(supervisor, 2, web(image, port, "2", instances=2))
        done.set()
        await asyncio.gather(*client)
        assert b"version 2" in await get(port)
        await forget(supervisor)
    assert len(answers) > 20
    assert [answer for answer in answers if b"200 OK" not in answer] == []
    assert not {unit.token for unit in before if unit.number} & {unit.token for unit in after}


async def output(folder: Path, unit: SupervisedInstance, words: str, rules: ContainerRules = ANY_IMAGE) -> str:
    """What an instance writes until these words are in it."""
    runner = make_runner(folder, rules)
    log = runner.log_folder_of_service(unit.path) / f"{unit.number}.log"
    await runner.start_instance(unit)
    try:
        async with asyncio.timeout(PATIENCE):
            while words not in (text := log.read_text()):
                await asyncio.sleep(0.02)
    finally:
        await runner.stop_instance(unit)
    return text


async def test_a_container_has_no_rights_and_sees_nothing_of_the_machine(
    folder: Path, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_WORKER", "hunter2")
    look = "id; cat /proc/self/status; cat /proc/net/dev; echo pids /proc/[0-9]*; hostname; env; touch /x; touch /bin/x"
    unit = instance(image, f"{look}; touch /data/x /tmp/x && echo own; unshare -U true", environment={"MINE": "1"})
    text = await output(folder, unit, "done")
    assert "uid=0" not in text
    for line in ("CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"):
        assert line in text
    devices = text.partition("compressed\n")[2].partition("pids")[0].splitlines()
    assert [line.split(":")[0].strip() for line in devices] == ["lo"]
    assert "hunter2" not in text
    assert "MINE=1" in text
    assert "job-1" in text
    assert "/x: Permission denied" in text
    assert "own" in text
    assert "unshare" in text.partition("own")[2]  # refused
    assert (folder / "services" / "s" / "job" / ".home" / "x").exists()


async def test_a_read_only_root_cannot_be_written_but_the_own_folder_can(folder: Path, image: Path) -> None:
    unit = instance(image, "touch /bin/x; touch /data/x && echo own", readOnly=True)
    text = await output(folder, unit, "done")
    assert "Read-only file system" in text
    assert "own" in text


async def test_the_machines_network_only_where_the_worker_allows_it(folder: Path, image: Path) -> None:
    unit = instance(image, "ls /proc/self/net; cat /proc/net/dev", network="host")
    with pytest.raises(Rejected, match="RATCHET_CONTAINER_NETWORK"):
        await make_runner(folder).start_instance(unit)
    await output(folder, unit, "done", replace(ANY_IMAGE, host_network=True))


@pytest.mark.parametrize("wanted", ["outside", "other", "../outside", "missing"])
async def test_an_image_that_is_not_listed_does_not_run(folder: Path, image: Path, wanted: str) -> None:
    (folder / "images" / "inside").mkdir(parents=True)
    (folder / "images" / "other").symlink_to(image)
    make_image(folder / "outside")
    rules = ContainerRules([f"{folder / 'images'}/"])
    with pytest.raises(Rejected, match="RATCHET_IMAGES"):
        rules.find_image(wanted)
    with pytest.raises(Rejected, match="RATCHET_IMAGES"):
        rules.find_image(str(folder / wanted))
    assert rules.find_image("inside").rootfs == folder / "images" / "inside"


async def test_an_oci_bundle_says_what_runs_and_cannot_give_itself_rights(folder: Path, image: Path) -> None:
    bundle = folder / "bundle"
    make_image(bundle / "root")
    said = {
        "args": ["sh", "-c", "echo $WORD in $PWD; id; echo done; sleep 1000"],
        "env": ["WORD=hello"],
        "cwd": "/bin",
        "user": {"uid": 0, "gid": 0},
        "capabilities": {"effective": ["CAP_SYS_ADMIN"], "permitted": ["CAP_SYS_ADMIN"]},
    }
    mounts = [{"destination": "/host", "type": "bind", "source": "/", "options": ["rbind"]}]
    (bundle / "config.json").write_text(json.dumps({"root": {"path": "root"}, "process": said, "mounts": mounts}))
    unit = SupervisedInstance("b" * 32, "system:s:job", 1, "", Node(image=str(bundle)))
    text = await output(folder, unit, "done")
    assert "hello in /bin" in text
    assert "uid=0" not in text
    (bundle / "config.json").write_text(json.dumps({"root": {"path": "../.."}, "process": said}))
    with pytest.raises(Rejected, match="not a folder inside it"):
        ANY_IMAGE.find_image(str(bundle))


async def test_a_secret_reaches_the_program_and_no_file(folder: Path, image: Path) -> None:
    (folder / "secrets" / "s").mkdir(parents=True)
    (folder / "secrets" / "s" / "db").write_text("hunter3")
    (folder / "secrets" / "s" / "db").chmod(0o600)
    node = sleeper(image, secretFrom={"DB": {"file": "db"}}) | {"command": ["sh", "-c", "echo ${#DB}; sleep 1000"]}
    unit = SupervisedInstance("c" * 32, "system:s:job", 1, "", Node.model_validate(node))
    runner = make_runner(folder)
    await runner.start_instance(unit)
    try:
        assert "DB=hunter3" in Path(f"/proc/{unit.pid}/environ").read_text()
        kept = [file for file in (folder / "services").rglob("*") if file.is_file() and file.stat().st_size < 1_000_000]
        assert [file for file in kept if b"hunter3" in file.read_bytes()] == []
    finally:
        await runner.stop_instance(unit)


@pytest.mark.parametrize(
    ("health", "well"),
    [
        ({"tcp": True}, True),
        ({"http": "/health"}, True),
        ({"http": "/none"}, False),
        ({"command": ["test", "-e", "/tmp/www/health"]}, True),
        ({"command": ["false"]}, False),
        ({"command": ["no-such-program"]}, False),
        ({"command": ["sleep", "10"], "timeout": 0.3}, False),
    ],
)
async def test_health_is_checked_inside(folder: Path, image: Path, health: dict[str, Any], well: bool) -> None:
    runner = make_runner(folder)
    node = Node.model_validate(web(image, find_free_port()) | {"health": health})
    unit = SupervisedInstance(os.urandom(16).hex(), "system:s:web", 1, "", node)
    async with asyncio.timeout(PATIENCE):
        assert bool(await probe(runner, unit, well)) is not well


async def test_an_instance_is_asked_to_end_and_made_to_if_it_will_not(folder: Path, image: Path) -> None:
    polite = "trap 'echo asked > /data/asked; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    stubborn = "trap '' TERM; echo up; while :; do sleep 0.05; done"
    async with keeping(folder) as supervisor:
        plain = "exec sleep 1000"
        for name, script, seconds in (("polite", polite, PATIENCE), ("stubborn", stubborn, 0.5), ("plain", plain, 0.5)):
            order = sleeper(image, stopSeconds=seconds) | {"command": ["sh", "-c", script]}
            await supervisor.apply_orders([ServiceOrder(f"system:s:{name}", 1, order)])
        await until(supervisor, 3, 1)
        for name in ("polite", "stubborn"):  # it counts as healthy when it has run for a while: is the trap set?
            assert eventually((folder / "services" / "s" / name / "1.log").read_text) == "up\n"
        await forget(supervisor)
    assert (folder / "services" / "s" / "polite" / ".home" / "asked").read_text() == "asked\n"


async def test_how_a_container_ended_is_told(folder: Path, image: Path) -> None:
    async with keeping(folder) as supervisor:
        order = sleeper(image) | {"command": ["sh", "-c", "exit 3"]}
        await supervisor.apply_orders([ServiceOrder("system:s:job", 1, order)])
        assert "ended with exit code 3" in await message_of(supervisor, "exit code")
        await forget(supervisor)


async def test_a_worker_without_root_or_runc_makes_no_system(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Rejected, match="needs no-runc"):
        await make_runner(folder, replace(ANY_IMAGE, runc="no-runc")).prepare_system("system:s", 1)
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    with pytest.raises(Rejected, match="needs a worker that is root"):
        await make_runner(folder).prepare_system("system:s", 1)
