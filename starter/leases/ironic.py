"""An Ironic of our own on this machine: API and conductor in one process, with fake hardware, for a demo and tests."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domain.errors import Category, Refused

if TYPE_CHECKING:
    import httpx

START_SECONDS = 120.0  # on a busy machine; usually six
CALL_SECONDS = 60.0
POLL_SECONDS = 0.2  # each look costs Ironic more than what it is at
API_VERSION = "1.81"
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
host = ratchet
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


@dataclass
class IronicProcess:
    """One process that can be killed and started again on the same database."""

    programs: Path  # the folder of Ironic's programs
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
        """Starts it, and waits until it answers."""
        import httpx

        self.folder.mkdir(parents=True, exist_ok=True)
        self._config.write_text(CONFIG.format(folder=self.folder, port=self.port, deploy=self.deploy))
        if (
            not (self.folder / "ironic.db").exists()
            and await (await self._run("ironic-dbsync", "create_schema")).wait()
        ):
            raise self._failure("makes no database")
        self._process = await self._run("ironic")
        async with asyncio.timeout(START_SECONDS):
            while True:
                try:
                    if (await self.call("GET", "/v1/nodes")).status_code == 200:
                        return
                except httpx.HTTPError:
                    if self._process.returncode is not None:
                        raise self._failure("does not start") from None
                await asyncio.sleep(2 * POLL_SECONDS)

    async def kill(self) -> None:
        """Kills the API, the conductor and their master, which would start them again, with -9."""
        if self._process is not None and self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    async def call(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Makes one call to its API."""
        import httpx

        headers = {"X-OpenStack-Ironic-API-Version": API_VERSION}
        nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # plain HTTP: to load all certificates would take longer
        async with httpx.AsyncClient(
            base_url=self.url, timeout=CALL_SECONDS, headers=headers, trust_env=False, verify=nobody
        ) as client:
            return await client.request(method, path, **more)

    async def read_node(self, node: str) -> dict[str, Any]:
        """Returns a node as Ironic describes it."""
        found: dict[str, Any] = (await self.call("GET", f"/v1/nodes/{node}")).json()
        return found

    async def state(self, node: str) -> str:
        """Returns a node's provision state."""
        return str((await self.read_node(node))["provision_state"])

    async def until(self, node: str, *states: str) -> str:
        """Waits until a node is in one of these states, and returns it."""
        async with asyncio.timeout(START_SECONDS):
            while (state := await self.state(node)) not in states:  # noqa: ASYNC110  Ironic tells nobody
                await asyncio.sleep(POLL_SECONDS)
        return state

    async def enroll(self, *names: str) -> None:
        """Makes nodes that can be deployed."""
        for name in names:
            made = await self.call("POST", "/v1/nodes", json={"name": name, "driver": "fake-hardware"})
            made.raise_for_status()
            for target, state in (("manage", "manageable"), ("provide", "available")):
                await self.provision(name, target)
                await self.until(name, state)

    async def provision(self, node: str, target: str) -> None:
        """Orders a change of a node's provision state."""
        (await self.call("PUT", f"/v1/nodes/{node}/states/provision", json={"target": target})).raise_for_status()

    async def _run(self, program: str, *words: str) -> asyncio.subprocess.Process:
        with (self.folder / "ironic.log").open("a") as log:
            return await asyncio.create_subprocess_exec(
                self.programs / program,
                "--config-file",
                self._config,
                *words,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _failure(self, what: str) -> Refused:
        said = (self.folder / "ironic.log").read_text()[-2_000:]
        return Refused(Category.NOT_ALLOWED, f"Ironic {what}: {said}", "see docs/metal.md")


@asynccontextmanager
async def run_ironic(ironic: IronicProcess) -> AsyncIterator[IronicProcess]:
    """Runs Ironic while the block lasts."""
    try:
        await ironic.start()
        yield ironic
    finally:
        await ironic.kill()
