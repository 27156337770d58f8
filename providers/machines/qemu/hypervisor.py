"""The hypervisor of one host: a ledger of what was ordered, QEMU processes, and disk files.

The ledger never knows less than what exists: an order that adds something is written before it is carried out, an order
that takes something away after. Before every order the ledger is brought up to date with the processes and files, so a
crash between the two leaves nothing that the next order does not see.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from domain.errors import ProviderError, Rejected, Unavailable
from domain.machines.ports import ABSENT, HypervisorFacts, HypervisorOrder
from domain.paths import kind_of
from domain.ports import TransactionRunner
from providers.description import OpenDatabase
from providers.machines import state
from providers.machines.qemu.migration import end_duplicate_process, migrate_to_process, read_status
from providers.machines.qemu.options import QemuOptions
from providers.machines.qemu.process import DiskFile, QemuProcess
from providers.machines.qemu.program import refusal, run_program
from providers.machines.state import HYPERVISOR_LEDGER, MEMORY_STATES, HypervisorObject
from providers.machines.tables import orders, things

ADDING_VERBS = ("create", "start", "migrate", "attach")
_STATE_OF_STATUS = {"running": "running", "paused": "paused", "suspended": "paused"}
_ATTACHED = {"attached": "detached", "attached in bin": "binned"}  # state of a disk -> state once detached


class QemuHypervisor:
    """A `Hypervisor` of QEMU processes on this host. Workers of the host may share its folder."""

    def __init__(self, options: QemuOptions, database: TransactionRunner) -> None:
        self._options = options
        self._database = database

    async def perform_order(self, verb: str, order: HypervisorOrder) -> HypervisorFacts:
        others = [machine] if (machine := str(order.spec.get("machine") or "")) and order.kind == "disk" else []
        async with self._lock_objects([order.path, *others]):
            await self._refresh_ledger_object(order.path)
            old, new = await self._database.run_transaction(partial(self._record_order, verb=verb, order=order))
            if new is None:
                return old.to_facts()
            try:
                await self._carry_out(verb, order, old, new)
            except ProviderError:
                await self._refresh_ledger_object(order.path)
                raise
            entry = state.make_ledger_order(verb, order)
            done = partial(HYPERVISOR_LEDGER.carry_out_order_once, order=entry, change=lambda _: new)
            return (await self._database.run_transaction(done)).to_facts()

    async def describe_object(self, path: str) -> HypervisorFacts:
        try:
            async with self._lock_objects([path]):
                return (await self._refresh_ledger_object(path)).to_facts()
        except Unavailable:  # an order is being carried out: the ledger tells what it is about
            return (await self._find_object(path)).to_facts()

    async def list_existing_objects(self, prefix: str, after: str) -> list[HypervisorFacts]:
        page = await self._database.run_transaction(partial(HYPERVISOR_LEDGER.read_page, prefix=prefix, after=after))
        return await asyncio.to_thread(lambda: [self._as_seen_by_process(row).to_facts() for row in page])

    async def list_machines_on(self, node: str) -> list[HypervisorFacts]:
        found = await self._database.run_transaction(partial(state.read_machines_on, node=node))
        return await asyncio.to_thread(lambda: [self._as_seen_by_process(row).to_facts() for row in found])

    # The ledger.

    def _record_order(
        self, connection: sa.Connection, verb: str, order: HypervisorOrder
    ) -> tuple[HypervisorObject, HypervisorObject | None]:
        """Judges an order. Returns the object before and after it; None if the order was carried out earlier."""
        old = HYPERVISOR_LEDGER.find_object(connection, order.path, order.kind)
        if HYPERVISOR_LEDGER.is_order_done(connection, state.make_ledger_order(verb, order), old):
            return old, None
        if (order.kind, verb) == ("node", "create") and order.path.partition(":")[2] not in self._options.nodes:
            served = ", ".join(self._options.nodes)
            raise Rejected(f"no worker serves {order.path}; the connections file of this one names {served}")
        new = replace(state.object_after_order(connection, verb, order, old), epoch=order.epoch, address="")
        HYPERVISOR_LEDGER.write_object(connection, new if verb in ADDING_VERBS else replace(old, epoch=order.epoch))
        return old, new

    async def _find_object(self, path: str) -> HypervisorObject:
        return await self._database.run_transaction(
            partial(HYPERVISOR_LEDGER.find_object, path=path, kind=kind_of(path))
        )

    async def _refresh_ledger_object(self, path: str) -> HypervisorObject:
        """Brings one object of the ledger up to date with its process or file, and returns it."""
        row = await self._find_object(path)
        look = {"machine": self._refresh_machine_row, "disk": self._refresh_disk_row}.get(row.kind)
        if look is None or (now := await look(row)) == row:
            return row
        await self._database.run_transaction(partial(HYPERVISOR_LEDGER.write_object, row=now))
        return now

    async def _refresh_machine_row(self, row: HypervisorObject) -> HypervisorObject:
        living = [process for process in self._processes_of_machine(row.path) if process.find_pid()]
        if len(living) > 1:
            process = await end_duplicate_process(living[0], living[1], runs=row.state == "running")
        elif living:
            process = living[0]
        elif row.state in MEMORY_STATES:  # it ended by itself, or was never started
            return replace(row, state="stopped") if self._boot_disk(row.path).file.exists() else self._absent_row(row)
        else:
            return row
        status = await read_status(process)
        if status not in _STATE_OF_STATUS:  # never begun, cut off in a migration, shut down, or crashed
            await process.end()
            return replace(row, state="stopped", node=process.node)
        return replace(row, state=_STATE_OF_STATUS[status], node=process.node)

    async def _refresh_disk_row(self, row: HypervisorObject) -> HypervisorObject:
        if row.state != ABSENT and not self._disk_file(row.path).file.exists():
            return self._absent_row(row)
        process = self._living_process(row.machine) if row.state in _ATTACHED else None
        if process is None:
            return row
        async with process.open_monitor() as monitor:
            attached = await monitor.has_disk(self._disk_file(row.path))
        return row if attached else replace(row, state=_ATTACHED[row.state], machine="")

    def _as_seen_by_process(self, row: HypervisorObject) -> HypervisorObject:
        """Returns a machine as stopped if its process is gone; without a call to QEMU, for lists."""
        lost = row.kind == "machine" and row.state in MEMORY_STATES and not self._living_process(row.path)
        return replace(row, state="stopped") if lost else row

    @staticmethod
    def _absent_row(row: HypervisorObject) -> HypervisorObject:
        return replace(row, state=ABSENT, node="", machine="")

    # Effects. Each is carried out again after a crash, so each finds what an earlier try has done.

    async def _carry_out(self, verb: str, order: HypervisorOrder, old: HypervisorObject, new: HypervisorObject) -> None:
        effects: dict[tuple[str, str], Callable[[HypervisorObject, HypervisorObject], Awaitable[None]]] = {
            ("machine", "create"): self._create_machine,
            ("machine", "start"): self._start_machine,
            ("machine", "pause"): partial(self._run_monitor_commands, commands=("stop",)),
            ("machine", "resume"): partial(self._run_monitor_commands, commands=("cont",)),
            ("machine", "reboot"): partial(self._run_monitor_commands, commands=("system_reset", "cont")),
            ("machine", "reset"): partial(self._run_monitor_commands, commands=("system_reset",)),
            ("machine", "stop"): self._stop_machine,
            ("machine", "migrate"): self._migrate_machine,
            ("machine", "destroy"): self._destroy_machine,
            ("disk", "create"): partial(self._create_disk, size=order.spec.get("size", 10)),
            ("disk", "attach"): self._attach_disk,
            ("disk", "detach"): self._detach_disk,
            ("disk", "destroy"): self._destroy_disk,
            ("image", "create"): self._check_image,
        }
        if effect := effects.get((order.kind, verb)):
            await effect(old, new)

    async def _create_machine(self, old: HypervisorObject, new: HypervisorObject) -> None:
        if old.state != ABSENT:
            return
        boot = self._boot_disk(new.path).file
        try:
            await self._make_image_file(boot, "-b", str(self._image_file(new.image)), "-F", "qcow2")
            await self._start_machine(old, new)
        except ProviderError:
            boot.unlink(missing_ok=True)
            raise

    async def _start_machine(self, old: HypervisorObject, new: HypervisorObject) -> None:
        process = self._process_on_node(new.path, new.node)
        if not process.find_pid():
            await process.start(new.path, new.memory, await self._disks_of_machine(new.path))
        async with process.open_monitor() as monitor:
            await monitor.execute("cont")

    async def _stop_machine(self, old: HypervisorObject, new: HypervisorObject) -> None:
        for process in self._processes_of_machine(new.path):
            await process.end()

    async def _run_monitor_commands(
        self, old: HypervisorObject, new: HypervisorObject, commands: Sequence[str]
    ) -> None:
        async with self._process_on_node(new.path, new.node).open_monitor() as monitor:
            for command in commands:
                await monitor.execute(command)

    async def _migrate_machine(self, old: HypervisorObject, new: HypervisorObject) -> None:
        if old.state in MEMORY_STATES:
            source, target = self._process_on_node(old.path, old.node), self._process_on_node(new.path, new.node)
            await migrate_to_process(source, target, new.path, new.memory, await self._disks_of_machine(new.path))

    async def _destroy_machine(self, old: HypervisorObject, new: HypervisorObject) -> None:
        self._boot_disk(new.path).file.unlink(missing_ok=True)

    async def _create_disk(self, old: HypervisorObject, new: HypervisorObject, size: object) -> None:
        file = self._disk_file(new.path).file
        if not file.exists():
            await self._make_image_file(file, size=f"{size}G")

    async def _attach_disk(self, old: HypervisorObject, new: HypervisorObject) -> None:
        if process := self._living_process(new.machine):
            async with process.open_monitor() as monitor:
                await monitor.attach_disk(self._disk_file(new.path))

    async def _detach_disk(self, old: HypervisorObject, new: HypervisorObject) -> None:
        if process := self._living_process(old.machine):
            async with process.open_monitor() as monitor:
                await monitor.detach_disk(self._disk_file(new.path))

    async def _destroy_disk(self, old: HypervisorObject, new: HypervisorObject) -> None:
        self._disk_file(new.path).file.unlink(missing_ok=True)

    async def _check_image(self, old: HypervisorObject, new: HypervisorObject) -> None:
        if not self._image_file(name := new.path.partition(":")[2]).is_file():
            where = self._image_file(name)
            raise Rejected(f"there is no file for the image {name}: put it at {where}, or name it under `images`")

    # Files, processes and locks.

    async def _make_image_file(self, file: Path, *words: str, size: str = "") -> None:
        """Makes a qcow2 file, whole or not at all."""
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = file.with_suffix(".part")
        command = (
            self._options.image_program,
            "create",
            "-q",
            "-f",
            "qcow2",
            *words,
            str(part),
            *([size] * bool(size)),
        )
        if (said := await run_program(*command)) or not part.exists():
            part.unlink(missing_ok=True)
            raise refusal(f"the disk {file} could not be made", said)
        part.rename(file)

    def _folder_of_object(self, path: str) -> Path:
        """Returns an object's folder. Names have neither slashes nor leading dots."""
        return self._options.folder.joinpath(*path.split(":"))

    def _disk_file(self, path: str) -> DiskFile:
        return DiskFile.for_object_path(path, self._folder_of_object(path) / "disk.qcow2")

    def _boot_disk(self, machine: str) -> DiskFile:
        return DiskFile.for_object_path(machine, self._folder_of_object(machine) / "boot.qcow2")

    def _image_file(self, name: str) -> Path:
        return self._options.images.get(name, self._folder_of_object(f"image:{name}") / "image.qcow2")

    def _process_on_node(self, machine: str, node: str) -> QemuProcess:
        return QemuProcess(self._options, self._folder_of_object(machine), node)

    def _processes_of_machine(self, machine: str) -> list[QemuProcess]:
        return [self._process_on_node(machine, node) for node in self._options.nodes]

    def _living_process(self, machine: str) -> QemuProcess | None:
        return next((process for process in self._processes_of_machine(machine) if process.find_pid()), None)

    async def _disks_of_machine(self, machine: str) -> list[DiskFile]:
        """Returns the boot disk of a machine, and the disks attached to it."""
        attached = HYPERVISOR_LEDGER.select_rows().where(
            things.c.machine == machine, things.c.kind == "disk", things.c.state.in_(_ATTACHED)
        )
        rows = await self._database.run_transaction(partial(HYPERVISOR_LEDGER.read_rows, query=attached))
        return [self._boot_disk(machine), *(self._disk_file(row.path) for row in rows)]

    @asynccontextmanager
    async def _lock_objects(self, paths: Sequence[str]) -> AsyncIterator[None]:
        """Holds the locks of objects, against other workers of this host too. Raises Unavailable if one is held.

        A worker that is frozen in an order holds its locks, so that no later order overtakes it.
        """
        folder = self._options.folder / "locks"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        async with AsyncExitStack() as held:
            for path in sorted(set(paths)):
                descriptor = os.open(folder / path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
                held.callback(os.close, descriptor)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise Unavailable(f"another order for {path} is being carried out") from None
            yield


def open_qemu_hypervisor(options: QemuOptions, open_database: OpenDatabase) -> QemuHypervisor:
    """Opens the hypervisor of this host, with its ledger beside its disks."""
    options.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return QemuHypervisor(options, open_database(options.folder / "ledger.db", (things, orders)))
