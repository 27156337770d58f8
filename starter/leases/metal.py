"""`starter demo metal`: OpenStack's own client books bare metal, and Ironic is killed in the middle of the deploy."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from domain.errors import Category, Refused
from starter import terminal
from starter.demo import format_elapsed_seconds, print_heading, print_next_commands
from starter.errors import ExitCode
from starter.gateway import gateway_settings
from starter.leases.ironic import IronicProcess, run_ironic

NODES = ("metal-1", "metal-2")
LEASE = "night-run"
DEPLOY_SECONDS = 5  # of the fake hardware: long enough to be killed in it
LEASE_SECONDS = 300.0  # for the lease to become ACTIVE
POLL_SECONDS = 0.2


async def demo() -> ExitCode:
    """Runs the demo, with an Ironic and a stack of its own in a folder that goes with it."""
    from workers.embedded import find_free_port

    ironic, blazar = _find_program("ironic"), _find_program("blazar")
    with tempfile.TemporaryDirectory(prefix="ratchet-metal-") as folder:
        process = IronicProcess(ironic.parent, Path(folder) / "ironic", find_free_port(), DEPLOY_SECONDS)
        terminal.print_narration("Starting Ironic with two nodes of fake hardware")
        async with run_ironic(process):
            await process.enroll(*NODES)
            await _play(process, blazar, Path(folder))
    print_next_commands(
        ("starter demo leases", "docs/metal.md    # the same with your own Ironic"),
        "Done; nothing of it is left. What to try next:",
    )
    return ExitCode.DONE


async def _play(ironic: IronicProcess, blazar: Path, folder: Path) -> None:
    from gateway.process import serve_in_worker_process
    from workers import logs, process

    connections = folder / "connections.yaml"
    connections.write_text(json.dumps({"hosts": {"provider": "ironic", "url": ironic.url}}))
    settings = gateway_settings().model_copy(update={"home": folder / "home", "connections": connections})
    logs.configure_logging("error", "console")
    terminal.print_narration("Starting a Temporal server, a worker and a gateway")
    async with (
        process.run_stack(settings) as running,
        serve_in_worker_process(running.service, settings, running.ui) as url,
    ):
        story = _MetalStory(ironic, blazar, url)
        await story.book()
        await story.kill_ironic()
        await story.delete_lease()


class _MetalStory:
    def __init__(self, ironic: IronicProcess, blazar: Path, url: str) -> None:
        self._ironic = ironic
        self._blazar = blazar
        self._login = ("--os-auth-type", "none", "--os-endpoint", f"{url}/reservation/v1")
        self._began = time.monotonic()

    async def book(self) -> None:
        print_heading(1, "book", "the unmodified `blazar` books a node; Ironic deploys it")
        for node in NODES:
            await self._run("host-create", node)
        reservation = "resource_type=physical:host,min=1,max=1,hypervisor_properties=,resource_properties="
        await self._run("lease-create", "--reservation", reservation, LEASE)

    async def kill_ironic(self) -> None:
        print_heading(2, "crash", "Ironic is killed with -9 in the middle of the deploy; by itself it gives up")
        node = await self._wait_for_deploy()
        self._say(f"{node} is deploying")
        await self._ironic.kill()
        self._say("killed Ironic with -9", "yellow")
        await self._ironic.start()
        found = await self._ironic.read_node(node)
        error = f": {found['last_error'][:90]}" if found["last_error"] else ""
        self._say(f"Ironic is back, and {node} is {found['provision_state']}{error}")
        await self._wait_for_lease()
        self._say(
            f"{LEASE} is ACTIVE, and {node} is {await self._ironic.state(node)}: nobody had to look", "bold green"
        )

    async def delete_lease(self) -> None:
        print_heading(3, "give back", "the node is undeployed and cleaned")
        await self._run("lease-delete", LEASE)
        for node in NODES:
            self._say(f"{node} is {await self._ironic.until(node, 'available')}")

    async def _wait_for_deploy(self) -> str:
        async with asyncio.timeout(LEASE_SECONDS):
            while True:
                for node in NODES:
                    if await self._ironic.state(node) == "deploying":
                        return node
                await asyncio.sleep(POLL_SECONDS)

    async def _wait_for_lease(self) -> None:
        shown = ""
        async with asyncio.timeout(LEASE_SECONDS):
            while True:
                lease = json.loads(await self._call("lease-show", LEASE, "-f", "json"))
                if lease["status"] != shown:
                    shown = lease["status"]
                    self._say(f"blazar says that {LEASE} is {shown}")
                if shown == "ACTIVE":
                    return
                if shown == "ERROR":
                    raise Refused(Category.CONFLICT, f"the lease {LEASE} is in ERROR", "starter doctor")
                await asyncio.sleep(POLL_SECONDS)

    async def _run(self, *words: str) -> None:
        self._say(f"$ blazar {' '.join(words)}")
        await self._call(*words)

    async def _call(self, *words: str) -> str:
        process = await asyncio.create_subprocess_exec(
            str(self._blazar),
            *self._login,
            *words,
            env={"PATH": os.environ.get("PATH", os.defpath)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, errors = await process.communicate()
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
        if process.returncode:
            raise Refused(Category.CONFLICT, f"blazar {words[0]} failed: {errors.decode()[-500:]}", "docs/metal.md")
        return out.decode()

    def _say(self, text: str, style: str = "") -> None:
        terminal.print_narration(f"   {format_elapsed_seconds(self._began)}  {text}", style)


def _find_program(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise Refused(
            Category.INVALID, f"this demo needs the program {name}, and it is not in the path", "docs/metal.md says how"
        )
    return Path(found)
