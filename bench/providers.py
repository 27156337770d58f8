"""Our time over the provider's own for the same calls. Run: python3 run.py bench providers [qemu|ironic|nova …]

The baseline makes the same calls to the same provider in the same run, without us: QEMU's processes and QMP, Ironic's
and Nova's HTTP APIs. It keeps no ledger and looks for nothing first, so it would not survive a crash.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import yaml

from bench.stack import BenchStack, measure_seconds, print_comparison, print_table_head, rig, run, run_at_once
from domain.model import ActionResult
from providers.machines.qemu import QemuOptions
from providers.machines.qemu.accelerator import find_accelerator
from providers.machines.qemu.node import identify_host
from providers.machines.qemu.process import DiskFile, QemuProcess
from tests.ironic import Ironic, ironic_running
from tests.openstack.rig import IMAGE, REGIONS, OpenStack, openstack_running
from tests.openstack.tokens import MEMBER_TOKEN
from tests.test_machines.qemu import end_qemu_processes, qemu_options

NUMBER = 20
TURNS = 2  # the first one warms up
DEPLOY_SECONDS = 5  # of the fake hardware; a real deploy takes minutes
GOAL = "<= 1.2"

BenchRun = Callable[[], Awaitable[Any]]


async def compare(site: BenchStack, title: str, steps: dict[str, tuple[BenchRun, BenchRun]], actions: int = 1) -> None:
    """Carries out every step in both ways, in turns, and prints the fastest time of each.

    The last row is the floor of a step's overhead: as many workflows as it has actions, each with one empty activity.
    """
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in steps}
    for _ in range(TURNS):
        for side in (0, 1):
            for name, ways in steps.items():
                times[name][side].append(await measure_seconds(ways[side]()))
    print_table_head(title, "ours", "provider")
    for name, sides in times.items():
        ours, theirs = (min(side[1:]) for side in sides)
        print_comparison(name, ours, theirs, "{:.2f} s", GOAL)
    ours, theirs = (sum(min(sides[side][1:]) for sides in times.values()) for side in (0, 1))
    print_comparison("all of it", ours, theirs, "{:.2f} s", GOAL)
    floor = min([await measure_seconds(site.run_bare_workflows(f"bare-{uuid4()}", actions)) for _ in range(TURNS)][1:])
    overhead = (ours - theirs) / len(steps)
    print_comparison(f"overhead per step (bare Temporal: {actions} workflows)", overhead, floor, "{:.2f} s", "told")


async def succeed(site: BenchStack, path: str, action: str, spec: dict[str, Any] | None = None) -> None:
    outcome = await site.do(path, action, spec)
    assert outcome.result is ActionResult.SUCCEEDED, outcome


# QEMU.


async def qemu(folder: Path) -> None:
    if not (shutil.which("qemu-system-x86_64") and shutil.which("qemu-img")):
        print("\nQEMU is not measured: apt install qemu-system-x86 qemu-utils")
        return
    options = _with_idle_guests(qemu_options(folder / "qemu"))
    spec = options.model_dump(mode="json", exclude_defaults=True) | {"provider": "qemu"}
    try:
        async with rig(connections=_write(folder, {"hypervisor": spec})) as site:
            for path in ("account:bench", "image:u", "node:n1", "account:bench:cloudspace:dev"):
                await succeed(site, path, "create", {"memory": 1000} if path == "node:n1" else None)
            await compare(site, f"QEMU: {NUMBER} machines at once", _qemu_steps(site, folder), NUMBER)
    finally:
        end_qemu_processes(folder)


def _with_idle_guests(options: QemuOptions) -> QemuOptions:
    """Gives guests a firmware that halts at once. Twenty that boot, or spin, would be measured instead of us."""
    halting, program = options.folder.parent / "halting.rom", options.folder.parent / "qemu-with-idle-guest"
    halting.write_bytes(b"\xf4\xeb\xfd".rjust(0xFFF3, b"\x90").ljust(0x10000, b"\x90"))  # from the reset vector: hlt
    program.write_text(f'#!/bin/sh\nexec {options.program} -bios {halting} "$@"\n')
    program.chmod(0o700)
    return options.model_copy(update={"program": str(program)})


def _qemu_steps(site: BenchStack, folder: Path) -> dict[str, tuple[BenchRun, BenchRun]]:
    options = _with_idle_guests(qemu_options(folder / "raw"))
    now = {"ours": 0, "raw": 0}  # the number of the turn

    def machines() -> list[str]:
        return [f"account:bench:cloudspace:dev:machine:m{now['ours']}-{n}" for n in range(NUMBER)]

    def processes() -> list[QemuProcess]:
        return [QemuProcess(options, folder / "raw" / f"{now['raw']}-{n}", "n1") for n in range(NUMBER)]

    async def create_ours() -> None:
        now["ours"] += 1
        spec = {"image": "u", "node": "n1", "memory": 1}
        await run_at_once(NUMBER, (succeed(site, path, "create", spec) for path in machines()))

    async def create_raw() -> None:
        now["raw"] += 1
        accelerator = await find_accelerator(options, identify_host())
        homes = [folder / "raw" / f"{now['raw']}-{n}" for n in range(NUMBER)]
        await run_at_once(NUMBER, (_start_process(options, home, accelerator) for home in homes))

    def ours(action: str) -> BenchRun:
        return lambda: run_at_once(NUMBER, (succeed(site, path, action) for path in machines()))

    def raw(command: str) -> BenchRun:
        return lambda: run_at_once(NUMBER, (_command(process, command) for process in processes()))

    async def stop_raw() -> None:
        await run_at_once(NUMBER, (process.end() for process in processes()))

    return {
        "create: a disk from an image, a process, cont": (create_ours, create_raw),
        "pause": (ours("pause"), raw("stop")),
        "resume": (ours("resume"), raw("cont")),
        "stop": (ours("stop"), stop_raw),
    }


async def _start_process(options: Any, home: Path, accelerator: str) -> None:
    home.mkdir(parents=True)  # noqa: ASYNC240  one call
    disk = home / "boot.qcow2"
    words = ("create", "-q", "-f", "qcow2", "-b", str(options.images["u"]), "-F", "qcow2", str(disk))
    await (await asyncio.create_subprocess_exec(options.image_program, *words)).wait()
    process = QemuProcess(options, home, "n1")
    await process.start(home.name, 1, [DiskFile.for_object_path(home.name, disk)], accelerator=accelerator)
    await _command(process, "cont")


async def _command(process: QemuProcess, command: str) -> None:
    async with process.open_monitor() as monitor:
        await monitor.execute(command)


# Ironic.


async def ironic(folder: Path) -> None:
    async with ironic_running(folder / "ironic", deploy=DEPLOY_SECONDS) as running, _ironic_client(running) as client:
        names = [f"h{n}" for n in range(NUMBER)]
        for name in names:
            await client.post("/v1/nodes", json={"name": name, "driver": "fake-hardware"})
        for target, state in (("manage", "manageable"), ("provide", "available")):
            await _provision_all(client, names, target, state)
        async with rig(connections=_write(folder, {"hosts": {"provider": "ironic", "url": running.url}})) as site:
            await run_at_once(NUMBER, (succeed(site, f"pool:bench:host:{name}", "add", {}) for name in names))
            title = f"Ironic: {NUMBER} hosts in one lease, {DEPLOY_SECONDS} s for a deploy"
            await compare(site, title, _ironic_steps(site, client, names))


def _ironic_client(running: Ironic) -> httpx.AsyncClient:
    headers = {"X-OpenStack-Ironic-API-Version": "1.81"}
    return httpx.AsyncClient(base_url=running.url, headers=headers, timeout=120, trust_env=False)


def _ironic_steps(
    site: BenchStack, client: httpx.AsyncClient, names: list[str]
) -> dict[str, tuple[BenchRun, BenchRun]]:
    now = [0]

    def lease() -> str:
        return f"project:bench:lease:l{now[0]}"

    async def start_ours() -> None:
        now[0] += 1
        await succeed(site, lease(), "create", {"hosts": NUMBER, "pool": "bench", "start": "now", "end": "+2h"})
        while (await site.service.inventory.read_object(lease())).status != "ACTIVE":  # noqa: ASYNC110
            await asyncio.sleep(0.1)

    async def end_ours() -> None:
        await succeed(site, lease(), "delete")
        await _wait_for_nodes(client, "available")

    return {
        "start: every node is deployed": (start_ours, lambda: _provision_all(client, names, "active", "active")),
        "end: every node is undeployed and cleaned": (
            end_ours,
            lambda: _provision_all(client, names, "deleted", "available"),
        ),
    }


async def _provision_all(client: httpx.AsyncClient, names: list[str], target: str, state: str) -> None:
    await asyncio.gather(*(_provision(client, name, target) for name in names))
    await _wait_for_nodes(client, state)


async def _provision(client: httpx.AsyncClient, name: str, target: str) -> None:
    """Orders a node's next state. Ironic resets some of many connections that come at once: those are sent again."""
    while True:
        try:
            answer = await client.put(f"/v1/nodes/{name}/states/provision", json={"target": target})
        except httpx.TransportError:
            continue
        answer.raise_for_status()
        return


async def _wait_for_nodes(client: httpx.AsyncClient, state: str) -> None:
    """Asks for all nodes in one call, until each is in a state."""
    while True:
        answer = await client.get("/v1/nodes", params={"fields": "provision_state"})
        if answer.is_success and {node["provision_state"] for node in answer.json()["nodes"]} == {state}:
            return
        await asyncio.sleep(0.1)


# Nova.


async def nova(folder: Path) -> None:
    with openstack_running(folder / "openstack") as running:
        lab = running.document(REGIONS[0], "bench", **running.there)
        async with (
            rig(connections=_write(folder, {"connections": {"lab": lab}})) as site,
            _nova_client(running) as client,
        ):
            await compare(site, f"Nova: {NUMBER} servers in one MCI", _nova_steps(site, client, running))


def _nova_client(running: OpenStack) -> httpx.AsyncClient:
    headers = {"X-Auth-Token": MEMBER_TOKEN}
    url = f"{running.url}/{REGIONS[0]}/compute/v2.1"  # by the proxy, as ours
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=120, trust_env=False)


def _nova_steps(
    site: BenchStack, client: httpx.AsyncClient, running: OpenStack
) -> dict[str, tuple[BenchRun, BenchRun]]:
    now = [0]
    servers: list[str] = []
    group = {"name": "lab", "connectionName": "lab", "subGroupSize": NUMBER}
    there = {
        "networks": [{"uuid": running.there["network"]}],
        "security_groups": [{"name": name} for name in running.there["security_groups"]],
        "key_name": running.there["key_name"],
    }

    def mci() -> str:
        return f"ns:bench:mci:m{now[0]}"

    async def create_ours() -> None:
        now[0] += 1
        await succeed(site, mci(), "create", {"subGroups": [group]})

    async def create_raw() -> None:
        wanted = {"name": "raw", "flavorRef": "1", "imageRef": IMAGE, **there}
        answers = await asyncio.gather(*(client.post("/servers", json={"server": wanted}) for _ in range(NUMBER)))
        servers[:] = [answer.json()["server"]["id"] for answer in answers]
        await until({"ACTIVE"})

    async def until(states: set[str]) -> None:
        while True:
            found = (await client.get("/servers/detail", params={"name": "raw"})).json()["servers"]
            if {server["status"] for server in found} == states and len(found) == (NUMBER if states else 0):
                return
            await asyncio.sleep(0.05)

    def ours(action: str) -> BenchRun:
        return lambda: succeed(site, mci(), action)

    def raw(action: str, state: str) -> BenchRun:
        async def act() -> None:
            calls = (client.post(f"/servers/{server}/action", json={action: None}) for server in servers)
            for answer in await asyncio.gather(*calls):
                answer.raise_for_status()
            await until({state})

        return act

    async def delete_raw() -> None:
        await asyncio.gather(*(client.delete(f"/servers/{server}") for server in servers))
        await until(set())

    return {
        "create": (create_ours, create_raw),
        "suspend": (ours("suspend"), raw("os-stop", "SHUTOFF")),
        "resume": (ours("resume"), raw("os-start", "ACTIVE")),
        "terminate": (ours("terminate"), delete_raw),
    }


def _write(folder: Path, document: dict[str, Any]) -> Path:
    file = folder / "connections.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


async def main(wanted: list[str]) -> None:
    benches = {"qemu": qemu, "ironic": ironic, "nova": nova}
    for name in wanted or benches:
        with tempfile.TemporaryDirectory() as folder:
            try:
                await benches[name](Path(folder))
            except pytest.skip.Exception as reason:  # what it needs cannot be installed here
                print(f"\n{name} is not measured: {reason}")


if __name__ == "__main__":
    run(main(sys.argv[1:]))
