"""CRMs as real processes: started, killed, upgraded."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from providers.edge.handover import is_crm_process
from providers.edge.platform import CloudletPlatform
from workers.crm import platform_file, stop_crm_processes


@dataclass
class CrmProcess:
    """One CRM, and the platform that it works on."""

    process: asyncio.subprocess.Process
    platform: CloudletPlatform

    @property
    def running(self) -> bool:
        return self.process.returncode is None

    async def kill(self) -> None:
        if self.running:
            self.process.send_signal(signal.SIGKILL)
        await self.process.wait()

    def pid_of(self, version: str) -> int:
        """The process of this version, if one runs."""
        pid = int(self.platform.read_crm_value(f"pid-{version}", 0))
        return pid if is_crm_process(pid) else 0


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
    words = [*program, "--cloudlet", cloudlet, "--version", version, "--latency", "0.1", "--backend", backend]
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", *words, env={**environment, **settings})
    platform = CloudletPlatform(platform_file(home, cloudlet))
    found = CrmProcess(process, platform)
    try:
        yield found
    finally:
        await found.kill()
        platform.close()
        await stop_crm_processes(home, cloudlet)
