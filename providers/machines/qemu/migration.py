"""The end of a live migration: how it went, and which process has the machine if it was cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from domain.errors import Rejected, UnknownOutcome
from providers.machines.qemu.process import QemuMonitor

MIGRATION_SECONDS = 120.0
CONNECT_SECONDS = 10.0
CHANNEL = "migration"
_WAITING = ("inmigrate", "prelaunch")  # run states of a target that has not received the machine
_SENT = ("postmigrate", "finish-migrate")  # run states of a source that has stopped the machine


def find_owner(states: Mapping[str, str]) -> str:
    """Returns the node that has the machine, given the run state of its process on each node.

    The target has it once it has received all of it; until then the source has it.
    """
    received = [node for node, state in states.items() if state not in (*_WAITING, *_SENT)]
    sent = [node for node, state in states.items() if state in _SENT]
    return (received or sent or list(states))[0]


async def wait_for_migration_end(monitor: QemuMonitor) -> None:
    """Waits until the source says how the migration ended. Raises Rejected if it failed."""
    until = asyncio.get_running_loop().time() + MIGRATION_SECONDS
    while asyncio.get_running_loop().time() < until:
        told = await monitor.execute("query-migrate")
        if told.get("status") == "completed":
            return
        if told.get("status") in ("failed", "cancelled"):
            raise Rejected(f"the migration {told['status']}: {told.get('error-desc', 'QEMU gives no reason')}")
        await asyncio.sleep(0.01)
    raise UnknownOutcome(f"the migration has not ended within {MIGRATION_SECONDS:g} s")
