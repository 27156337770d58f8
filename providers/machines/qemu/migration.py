"""Live migration between two QEMU processes, and what to do with one that was interrupted."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

from domain.errors import Rejected
from providers.machines.qemu.process import DiskFile, QemuMonitor, QemuProcess

MIGRATION_SECONDS = 120.0
CHANNEL = "migration"
_WAITING = ("inmigrate", "prelaunch")  # run states of a target that has not received the machine
_SENT = ("postmigrate", "finish-migrate")  # run states of a source that has stopped the machine


async def migrate_to_process(
    source: QemuProcess, target: QemuProcess, name: str, memory: int, disks: Sequence[DiskFile]
) -> None:
    """Moves a running or paused machine to another process. If it fails, the source keeps the machine."""
    await target.start(name, memory, disks, incoming=True)
    runs = False
    try:
        async with source.open_monitor() as leaving, target.open_monitor() as arriving:
            runs = await leaving.read_status() == "running"
            ours, theirs = socket.socketpair()
            with ours, theirs:  # once passed on, both processes hold their ends: the migration does not need us
                await arriving.pass_descriptor(CHANNEL, theirs.fileno())
                await arriving.execute("migrate-incoming", uri=f"fd:{CHANNEL}")
                await leaving.pass_descriptor(CHANNEL, ours.fileno())
                await leaving.execute("migrate", uri=f"fd:{CHANNEL}")
            await _wait_for_migration_end(leaving)
            if runs:
                await arriving.execute("cont")
    except BaseException:
        await end_duplicate_process(source, target, runs)
        raise
    await source.end()


async def end_duplicate_process(one: QemuProcess, other: QemuProcess, runs: bool) -> QemuProcess:
    """Ends one of a machine's two processes after an interrupted migration. Returns the other, which has the machine.

    The target has the machine once it has received all of it; until then the source has it. `runs` says whether the
    machine runs, or is paused.
    """
    states = {process: await read_status(process) for process in (one, other) if process.find_pid()}
    received = [process for process, status in states.items() if status not in (*_WAITING, *_SENT)]
    sent = [process for process, status in states.items() if status in _SENT]
    kept = (received or sent or [one])[0]
    for process in states:
        if process is not kept:
            await process.end()
    if runs and kept.find_pid():
        async with kept.open_monitor() as monitor:
            await monitor.execute("cont")
    return kept


async def read_status(process: QemuProcess) -> str:
    """Returns the run state of a living process, such as running, paused or inmigrate."""
    async with process.open_monitor() as monitor:
        return await monitor.read_status()


async def _wait_for_migration_end(monitor: QemuMonitor) -> None:
    """Waits until the source says how the migration ended. Raises Rejected if it failed."""
    async with asyncio.timeout(MIGRATION_SECONDS):
        while True:
            told = await monitor.execute("query-migrate")
            if told.get("status") == "completed":
                return
            if told.get("status") in ("failed", "cancelled"):
                raise Rejected(f"the migration {told['status']}: {told.get('error-desc', 'QEMU gives no reason')}")
            await asyncio.sleep(0.01)
