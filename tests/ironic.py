"""A real Ironic for tests: its API and conductor in one process, with fake hardware, in an environment of its own."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from providers.sockets import find_free_port
from tests.locked import install_locked
from tests.patience import PATIENCE

CONFIG = """
[DEFAULT]
auth_strategy = noauth
rpc_transport = none
enabled_hardware_types = fake-hardware
enabled_boot_interfaces = fake
enabled_deploy_interfaces = fake
enabled_management_interfaces = fake
enabled_power_interfaces = fake
enabled_network_interfaces = noop
default_network_interface = noop
enabled_inspect_interfaces = no-inspect
enabled_raid_interfaces = no-raid
enabled_vendor_interfaces = no-vendor
enabled_console_interfaces = no-console
enabled_bios_interfaces = no-bios
enabled_rescue_interfaces = no-rescue
enabled_storage_interfaces = noop
enabled_firmware_interfaces = no-firmware
host = tests
state_path = {folder}
[api]
host_ip = 127.0.0.1
port = {port}
api_workers = 1
[database]
connection = sqlite:///{folder}/ironic.db
[conductor]
heartbeat_interval = 1
heartbeat_timeout = 5
sync_power_state_interval = -1
[fake]
deploy_delay = {deploy}
clean_delay = 0
[oslo_concurrency]
lock_path = {folder}
"""


def programs() -> Path:
    """The folder of Ironic's programs."""
    return install_locked("ironic", "Ironic")


@dataclass
class Ironic:
    """One process that can be killed and started again on the same database."""

    folder: Path
    port: int
    deploy: int = 0  # seconds of each deploy
    _process: asyncio.subprocess.Process | None = field(default=None)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def _config(self) -> Path:
        return self.folder / "ironic.conf"

    async def start(self) -> None:
        self._config.write_text(CONFIG.format(folder=self.folder, port=self.port, deploy=self.deploy))
        if not (self.folder / "ironic.db").exists():
            created = await self._run("ironic-dbsync", "create_schema")
            assert await created.wait() == 0, (self.folder / "ironic.log").read_text()[-2000:]
        self._process = await self._run("ironic")
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    if (await self.call("GET", "/v1/nodes")).status_code == 200:
                        return
                except httpx.HTTPError:
                    assert self._process.returncode is None, (self.folder / "ironic.log").read_text()[-2000:]
                await asyncio.sleep(0.1)

    async def kill(self) -> None:
        """Kills the API, the conductor and their master, which would start them again."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    async def call(self, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {"X-OpenStack-Ironic-API-Version": "1.81"}
        async with httpx.AsyncClient(base_url=self.url, timeout=PATIENCE, headers=headers) as client:
            return await client.request(method, path, **more)

    async def see(self, node: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.call("GET", f"/v1/nodes/{node}")).json()
        return found

    async def state(self, node: str) -> str:
        return str((await self.see(node))["provision_state"])

    async def until(self, node: str, *states: str) -> str:
        async with asyncio.timeout(PATIENCE):
            while (state := await self.state(node)) not in states:
                await asyncio.sleep(0.05)
        return state

    async def enroll(self, *names: str) -> None:
        """Makes nodes that can be deployed."""
        for name in names:
            made = await self.call("POST", "/v1/nodes", json={"name": name, "driver": "fake-hardware"})
            assert made.status_code == 201, made.text
            for target, state in (("manage", "manageable"), ("provide", "available")):
                await self.provision(name, target)
                await self.until(name, state)

    async def provision(self, node: str, target: str) -> None:
        answer = await self.call("PUT", f"/v1/nodes/{node}/states/provision", json={"target": target})
        assert answer.status_code == 202, answer.text

    async def _run(self, program: str, *words: str) -> asyncio.subprocess.Process:
        with (self.folder / "ironic.log").open("a") as log:
            return await asyncio.create_subprocess_exec(
                programs() / program,
                "--config-file",
                self._config,
                *words,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


@asynccontextmanager
async def ironic_running(folder: Path, deploy: int = 0) -> AsyncIterator[Ironic]:
    await asyncio.to_thread(programs)
    folder.mkdir(parents=True, exist_ok=True)
    ironic = Ironic(folder, find_free_port(), deploy)
    await ironic.start()
    try:
        yield ironic
    finally:
        await ironic.kill()
