"""CRMs as real processes: started, killed, upgraded. Those that an upgrade starts load the program by themselves."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from providers.edge.handover import is_crm_process
from providers.edge.platform import CloudletPlatform
from tests.test_platform.forkserver import Child, ForkServer
from workers.crm import platform_file, stop_crm_processes


@dataclass
class CrmProcess:
    """One CRM, and the platform that it works on."""

    process: Child
    platform: CloudletPlatform

    @property
    def running(self) -> bool:
        return self.process.returncode is None and is_crm_process(self.process.pid)

    async def kill(self) -> None:
        if self.running:
            self.process.send_signal(signal.SIGKILL)
        await self.process.wait()

    def pid_of(self, version: str) -> int:
        """The process of this version, if one runs."""
        pid = int(self.platform.read_crm_value(f"pid-{version}", 0))
        return pid if is_crm_process(pid) else 0


_forkservers: list[ForkServer] = []  # none, or one


async def _crm_forkserver() -> ForkServer:
    """Loading the program takes more than two seconds of CPU. A CRM is told by its command line, so it says so."""
    if not _forkservers:
        _forkservers.append(await ForkServer.open("crm", "--cloudlet"))
    return _forkservers[0]


async def close_crm_forkserver() -> None:
    while _forkservers:
        await _forkservers.pop().close()


@asynccontextmanager
async def crm_process(
    home: Path,
    address: str,
    cloudlet: str,
    version: str = "v1",
    program: Sequence[str] = ("workers.crm",),
    backend: str = "simulated",
    settings: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[CrmProcess]:
    """Killed at the end together with whatever it started."""
    environment = {**os.environ, "RATCHET_HOME": str(home), "TEMPORAL_ADDRESS": address, "RATCHET_LOG_LEVEL": "error"}
    module, *more = program
    words = [*more, "--cloudlet", cloudlet, "--version", version, "--latency", "0.1", "--backend", backend]
    main = f"{module}:run_crm_command" if module == "workers.crm" else module
    process = await (await _crm_forkserver()).start(words, {**environment, **settings}, os.devnull, main)
    platform = CloudletPlatform(platform_file(home, cloudlet))
    found = CrmProcess(process, platform)
    try:
        yield found
    finally:
        await found.kill()
        platform.close()
        await stop_crm_processes(home, cloudlet)
