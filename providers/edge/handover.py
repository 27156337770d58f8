"""Hand-over between CRM processes: the old one starts the new one, the new one ends the old one."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from domain.edge.faults import CrmFaultKind
from providers.edge.platform import CloudletPlatform

GRACE_SECONDS = 3.0
WATCH_SECONDS = 0.2


class CrmHandover:
    """Starts and ends CRM processes. `command` is this process's own command line, without the version."""

    def __init__(self, platform: CloudletPlatform, version: str, command: Sequence[str], predecessor: str = "") -> None:
        self._platform, self._version, self._command = platform, version, command
        self._predecessor = predecessor
        self._watching = False

    def register_process(self) -> None:
        """Stores the pid of this version's process: the other version finds it there in the hand-over of an upgrade."""
        self._platform.write_crm_value(f"pid-{self._version}", os.getpid())

    async def start_successor(self, version: str) -> str | None:
        """Starts the next CRM, or finds it started, and watches it. Returns why it failed.

        If it takes over, it ends this process before this returns. Returns None if it is being watched already.
        """
        if self._watching:
            return None
        self._watching = True
        try:
            return await self._start_process(version)
        finally:
            self._watching = False

    async def _start_process(self, version: str) -> str:
        if is_crm_process(pid := int(self._platform.read_crm_value(f"pid-{version}", 0))):
            while is_crm_process(pid):  # noqa: ASYNC110
                await asyncio.sleep(WATCH_SECONDS)  # not our child, so there is no event
            return f"{version} ended before it took over"
        fault = self._platform.take_matching_fault("start", version, self._version, (CrmFaultKind.FAIL,))
        if fault:
            return fault.message or f"{version} could not be started"
        words = [*self._command, "--version", version, "--takeover", self._version]
        log = os.open(f"{self._platform.file}.{version}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            process = await asyncio.create_subprocess_exec(
                *words, stdout=log, stderr=log, stdin=asyncio.subprocess.DEVNULL, start_new_session=True
            )
        finally:
            os.close(log)
        self._platform.write_crm_value(f"pid-{version}", process.pid)
        code = await process.wait()
        return f"{version} ended with {code} before it took over"

    async def end_failed_successor(self, version: str) -> None:
        """Ends the CRM process that failed to take over."""
        pid = int(self._platform.read_crm_value(f"pid-{version}", 0))
        if pid and pid != os.getpid():
            await end_process(pid)
        self._platform.write_crm_value(f"pid-{version}", 0)

    async def end_predecessor(self) -> None:
        """Ends the previous CRM process, once this one can serve."""
        if self._predecessor:
            await end_process(int(self._platform.read_crm_value(f"pid-{self._predecessor}", 0)))
            self._predecessor = ""


async def end_process(pid: int) -> None:
    """Ends a CRM process: SIGTERM, then SIGKILL after GRACE_SECONDS."""
    if not is_crm_process(pid) or pid == os.getpid():
        return
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        for _ in range(int(GRACE_SECONDS / 0.05)):
            await asyncio.sleep(0.05)
            if not is_crm_process(pid):
                return
        os.kill(pid, signal.SIGKILL)


def is_crm_process(pid: int) -> bool:
    """Tells whether the pid is a CRM process, as pids are reused; assumes so where /proc is missing."""
    if not pid:
        return False
    words = Path(f"/proc/{pid}/cmdline")
    if not Path("/proc/self/cmdline").exists():
        return True
    try:
        told = words.read_bytes()
    except OSError:
        return False
    return b"crm" in told and b"--cloudlet" in told
