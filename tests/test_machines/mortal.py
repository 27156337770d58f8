"""A worker process of QEMU machines that gives one order after the other, until it is killed. Run as a program."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

from domain.machines.ports import HypervisorOrder
from providers.machines.qemu import QemuHypervisor, QemuOptions
from providers.machines.qemu.process import QemuMonitor
from store.engine import Database

ROOT = Path(__file__).parents[2]
MACHINE = "account:a:cloudspace:dev:machine:db"


async def kill_amid_orders(folder: Path, orders: str, first: int, after: float) -> None:
    """Starts a worker that gives `orders` (migrations or snapshots), and kills it so many seconds after the first."""
    words = (sys.executable, "-m", __name__, str(folder), orders, str(first))
    worker = await asyncio.create_subprocess_exec(*words, cwd=ROOT, stdout=PIPE)
    assert worker.stdout is not None
    assert await worker.stdout.readline()
    await asyncio.sleep(after)  # the fault itself: any moment of an order
    worker.kill()
    await worker.wait()


async def die_before(folder: Path, command: str, orders: str, first: int) -> int:
    """Starts a worker that kills itself where it would give QEMU this command. Returns how it ended."""
    words = (sys.executable, "-m", __name__, str(folder), orders, str(first), command)
    worker = await asyncio.create_subprocess_exec(*words, cwd=ROOT, stdout=PIPE)
    await worker.communicate()
    return worker.returncode or 0


async def give_orders(folder: Path, orders: str, first: int) -> None:
    options = QemuOptions(provider="qemu", folder=folder / "qemu", nodes=("n1", "n2"))
    hypervisor = QemuHypervisor(options, Database(f"sqlite:///{folder}/cloud.db"))
    for number in range(first, first + 1_000):
        about: dict[str, Any]
        if orders == "migrations":
            here = (await hypervisor.describe_object(MACHINE)).node
            verb, about = "migrate", {"node": {"n1": "n2", "n2": "n1"}[here]}
        else:
            verb = ("snapshot", "rollback", "delete-snapshot")[number % 3]
            about = {"snapshot": f"s{number // 3}"}
        sys.stdout.write(f"{verb}\n")
        sys.stdout.flush()
        await hypervisor.perform_order(verb, HypervisorOrder(MACHINE, "machine", f"m{number}", about, number))


def _die_at(command: str) -> None:
    execute = QemuMonitor.execute

    async def die_or_execute(monitor: QemuMonitor, given: str, **arguments: Any) -> Any:
        if given == command:
            os.kill(os.getpid(), signal.SIGKILL)
        return await execute(monitor, given, **arguments)

    QemuMonitor.execute = die_or_execute  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    if len(sys.argv) > 4:
        _die_at(sys.argv[4])
    asyncio.run(give_orders(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
