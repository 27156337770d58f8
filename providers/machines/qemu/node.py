"""One node: the QEMU processes of a host. Every order about a process is carried out by a worker of that host."""

from __future__ import annotations

import fcntl
import os
import platform
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from domain.errors import Category, Refused, Unavailable, UnknownOutcome, format_one_line
from domain.message import FrozenModel
from providers.machines.qemu.accelerator import find_accelerator
from providers.machines.qemu.migration import CHANNEL, CONNECT_SECONDS, wait_for_migration_end
from providers.machines.qemu.options import QemuOptions
from providers.machines.qemu.process import DiskFile, QemuMonitor, QemuProcess

MACHINE_ID = Path("/etc/machine-id")


class NodeOrder(FrozenModel):
    """One order for a process, or a question about several."""

    node: str
    verb: str
    machine: str = ""
    memory: int = 0  # GiB
    disks: list[DiskFile] = []
    commands: list[str] = []
    tag: str = ""  # of a snapshot
    address: str = ""  # where a machine is sent; empty: to the socket of `target`
    target: str = ""
    machines: list[str] = []


class QemuNode:
    """The QEMU processes of one node. Its host is this one."""

    def __init__(self, options: QemuOptions, name: str) -> None:
        self.name = name
        self._options = options

    async def perform_order(self, order: NodeOrder) -> Any:
        """Carries out an order. Raises a ProviderError; Unavailable if another one for the machine goes on."""
        if order.verb == "list":
            return [machine for machine in order.machines if self._process(machine).find_pid()]
        effects: dict[str, Callable[[NodeOrder, QemuProcess], Awaitable[Any]]] = {
            "look": self._look,
            "start": self._start,
            "execute": self._execute,
            "end": self._end,
            "attach": partial(self._do_with_disk, do=QemuMonitor.attach_disk),
            "detach": partial(self._do_with_disk, do=QemuMonitor.detach_disk),
            "has-disk": partial(self._do_with_disk, do=QemuMonitor.has_disk),
            "snapshot": self._change_snapshot,
            "read-tags": self._read_tags,
            "receive": self._receive,
            "send": self._send,
        }
        with hold_lock(self._options.folder, f"{order.machine}@{self.name}", order.machine):
            return await effects[order.verb](order, self._process(order.machine))

    def _process(self, machine: str) -> QemuProcess:
        return QemuProcess(self._options, self._options.folder_of_object(machine), self.name)

    async def _look(self, order: NodeOrder, process: QemuProcess) -> str:
        """Returns the run state of the machine's process; empty if there is none."""
        if not process.find_pid():
            process.remove_files()
            return ""
        async with process.open_monitor() as monitor:
            return await monitor.read_status()

    async def _start(self, order: NodeOrder, process: QemuProcess) -> None:
        if not process.find_pid():
            accelerator = await find_accelerator(self._options, identify_host())
            await process.start(order.machine, order.memory, order.disks, accelerator=accelerator)
        async with process.open_monitor() as monitor:
            await monitor.execute("cont")

    async def _execute(self, order: NodeOrder, process: QemuProcess) -> None:
        async with process.open_monitor() as monitor:
            for command in order.commands:
                await monitor.execute(command)

    async def _end(self, order: NodeOrder, process: QemuProcess) -> None:
        await process.end()

    async def _do_with_disk(
        self, order: NodeOrder, process: QemuProcess, do: Callable[[QemuMonitor, DiskFile], Awaitable[Any]]
    ) -> Any:
        async with process.open_monitor() as monitor:
            return await do(monitor, order.disks[0])

    async def _change_snapshot(self, order: NodeOrder, process: QemuProcess) -> None:
        nodes = [disk.name for disk in order.disks]
        state = {} if order.commands == ["snapshot-delete"] else {"vmstate": nodes[0]}
        async with process.open_monitor() as monitor:
            await monitor.run_job(order.commands[0], tag=order.tag, devices=nodes, **state)

    async def _read_tags(self, order: NodeOrder, process: QemuProcess) -> dict[str, list[str]]:
        """Returns the tags of the snapshots in each disk of the process, by the disk's name."""
        async with process.open_monitor() as monitor:
            return await monitor.read_tags()

    async def _receive(self, order: NodeOrder, process: QemuProcess) -> str:
        """Starts a process that waits for the machine. Returns where it listens; empty: at its socket."""
        host = self._options.nodes[self.name]
        tcp = f"tcp:[{host}]:0" if ":" in host else f"tcp:{host}:0"
        incoming = tcp if host else f"unix:{process.incoming_socket.name}"
        accelerator = await find_accelerator(self._options, identify_host())
        await process.start(order.machine, order.memory, order.disks, incoming, accelerator)
        if not host:
            return ""
        async with process.open_monitor() as monitor:
            return f"{host} {(await monitor.execute('query-migrate'))['socket-address'][0]['port']}"

    async def _send(self, order: NodeOrder, process: QemuProcess) -> None:
        """Sends the machine to another process. Once it has the connection, the migration does not need us."""
        target = QemuProcess(self._options, self._options.folder_of_object(order.machine), order.target)
        async with process.open_monitor() as monitor:
            try:
                channel = _connect_to_address(order.address) if order.address else target.connect_incoming()
            except OSError as error:
                raise UnknownOutcome(f"{order.target} cannot be reached: {format_one_line(error)}") from error
            with channel:
                await monitor.pass_descriptor(CHANNEL, channel.fileno())
                await monitor.execute("migrate", uri=f"fd:{CHANNEL}")
            await wait_for_migration_end(monitor)


def _connect_to_address(address: str) -> socket.socket:
    host, _, port = address.partition(" ")
    channel = socket.create_connection((host, int(port)), CONNECT_SECONDS)
    channel.settimeout(None)
    return channel


@contextmanager
def hold_lock(folder: Path, name: str, path: str) -> Iterator[int]:
    """Holds a lock against every worker that shares the folder, and yields its descriptor. Raises Unavailable if it is
    held. A program that is given the descriptor holds it too, also after the death of its worker.

    A worker that is frozen in an order holds its locks, so that no later order overtakes it.
    """
    descriptor = os.open(folder / "locks" / name, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    except BlockingIOError:
        raise Unavailable(f"another order for {path} is being carried out") from None
    finally:
        os.close(descriptor)


def claim_node(folder: Path, node: str) -> None:
    """Records that this host has the node. Refuses one that another host has: its processes cannot be seen here."""
    claim, host = folder / "nodes" / node, identify_host()
    claim.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        with claim.open("x") as file:
            file.write(host)
    except FileExistsError:
        if (other := claim.read_text()) != host:
            raise Refused(
                Category.CONFLICT,
                f"the node {node} is the host {other or '(unknown)'}, and this is {host}",
                f"serve another node here (--node); or, if no QEMU runs there any more, remove {claim}",
            ) from None


def identify_host() -> str:
    """Returns a name of this host that another host does not have."""
    number = MACHINE_ID.read_text().strip()[:12] if MACHINE_ID.exists() else ""
    return f"{platform.node()}-{number}" if number else platform.node()
