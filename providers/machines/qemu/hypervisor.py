"""The QEMU hypervisor: a ledger of what was ordered, disk files, and QEMU processes on nodes.

The ledger never knows less than what exists: an order that adds something is written before it is carried out, an order
that takes something away after. Before every order the ledger is brought up to date with the processes and files, so a
crash between the two leaves nothing that the next order does not see.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from domain.errors import ProviderError, Rejected, Unavailable
from domain.machines.ports import ABSENT, HypervisorFacts, HypervisorOrder
from domain.nodecalls import CallNode, NodeAnswer, NodeTask
from domain.paths import kind_of
from domain.ports import TransactionRunner
from providers.description import BackendHost
from providers.machines import state
from providers.machines.qemu.accelerator import find_accelerator
from providers.machines.qemu.migration import find_owner
from providers.machines.qemu.node import claim_node, hold_lock, identify_host
from providers.machines.qemu.options import QemuOptions
from providers.machines.qemu.orders import NodeOrders
from providers.machines.qemu.process import DiskFile, QemuProcess
from providers.machines.qemu.program import refusal, run_program
from providers.machines.qemu.snapshots import SnapshotFiles
from providers.machines.snapshots import (
    NO_SNAPSHOTS,
    LedgerSnapshot,
    doubt_snapshot,
    format_snapshots,
    parse_snapshots,
)
from providers.machines.state import ATTACHED_STATES, HYPERVISOR_LEDGER, MEMORY_STATES, HypervisorObject
from providers.machines.tables import orders, things

ADDING_VERBS = ("create", "start", "migrate", "attach", "snapshot")
_STATE_OF_STATUS = {"running": "running", "paused": "paused", "suspended": "paused"}


async def _call_nobody(task: NodeTask) -> NodeAnswer:
    raise Unavailable(f"no worker serves the node {task.node}")


class QemuHypervisor:
    """A `Hypervisor` of QEMU processes on nodes. All of its workers share its folder."""

    def __init__(
        self,
        options: QemuOptions,
        database: TransactionRunner,
        serves_node: Callable[[str], bool] = lambda node: True,
        call_node: CallNode = _call_nobody,
    ) -> None:
        self._options = options
        self._database = database
        self._nodes = NodeOrders(options, serves_node, call_node)

    async def perform_order(self, verb: str, order: HypervisorOrder) -> HypervisorFacts:
        others = [machine] if (machine := str(order.spec.get("machine") or "")) and order.kind == "disk" else []
        with self._lock_objects([order.path, *others]):
            await self._refresh_ledger_object(order.path)
            old, new = await self._database.run_transaction(partial(self._judge_order, verb=verb, order=order))
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
            with self._lock_objects([path]):
                return (await self._refresh_ledger_object(path)).to_facts()
        except Unavailable:  # an order is being carried out: the ledger tells what it is about
            return (await self._find_object(path)).to_facts()

    async def list_existing_objects(self, prefix: str, after: str) -> list[HypervisorFacts]:
        page = await self._database.run_transaction(partial(HYPERVISOR_LEDGER.read_page, prefix=prefix, after=after))
        return await self._as_seen_by_nodes(page)

    async def list_machines_on(self, node: str) -> list[HypervisorFacts]:
        found = await self._database.run_transaction(partial(state.read_machines_on, node=node))
        return await self._as_seen_by_nodes(found)

    # Nodes that this worker serves.

    async def serve_node_order(self, task: NodeTask) -> NodeAnswer:
        return await self._nodes.perform_task(task)

    async def claim_nodes(self, nodes: Sequence[str]) -> None:
        for node in nodes:
            claim_node(self._options.folder, node)
        if nodes:  # before the first machine has to wait for it
            await find_accelerator(self._options, identify_host())

    # The ledger.

    def _judge_order(
        self, connection: sa.Connection, verb: str, order: HypervisorOrder
    ) -> tuple[HypervisorObject, HypervisorObject | None]:
        """Judges an order. Returns the object before and after it; None if the order was carried out earlier."""
        old = HYPERVISOR_LEDGER.find_object(connection, order.path, order.kind)
        if HYPERVISOR_LEDGER.is_order_done(connection, state.make_ledger_order(verb, order), old):
            return old, None
        if (order.kind, verb) == ("node", "create") and order.path.partition(":")[2] not in self._options.nodes:
            named = ", ".join(self._options.nodes)
            raise Rejected(f"no worker serves {order.path}; the connections file names {named}")
        if verb == "migrate" and 0 < order.epoch == old.epoch and old.node == order.spec.get("node"):
            return old, old  # an earlier try of this very order has moved it
        new = replace(state.object_after_order(connection, verb, order, old), epoch=order.epoch, address="")
        kept = new if verb in ADDING_VERBS else replace(old, epoch=order.epoch)
        if verb in ("snapshot", "delete-snapshot"):
            kept = replace(kept, snapshots=doubt_snapshot(kept.snapshots, str(order.spec["snapshot"])))
        HYPERVISOR_LEDGER.write_object(connection, kept)
        return old, new

    async def _find_object(self, path: str) -> HypervisorObject:
        return await self._database.run_transaction(
            partial(HYPERVISOR_LEDGER.find_object, path=path, kind=kind_of(path))
        )

    async def _refresh_ledger_object(self, path: str) -> HypervisorObject:
        """Brings one object of the ledger up to date with its process or file, and returns it."""
        row = await self._find_object(path)
        look = {"machine": self._refresh_machine_row, "disk": self._refresh_disk_row}.get(row.kind)
        now = await look(row) if look else row
        if now.snapshots != NO_SNAPSHOTS:
            now = replace(now, snapshots=await self._settle_snapshots(now))
        if now == row:
            return row
        await self._database.run_transaction(partial(HYPERVISOR_LEDGER.write_object, row=now))
        return now

    async def _refresh_machine_row(self, row: HypervisorObject) -> HypervisorObject:
        states = await self._read_run_states(row.path)
        if len(states) > 1:
            node = await self._end_duplicates(row, states)
        elif states:
            node = next(iter(states))
        elif row.state in MEMORY_STATES:  # it ended by itself, or was never started
            return replace(row, state="stopped") if self._disk_file(row.path).file.exists() else self._absent_row(row)
        else:
            return row
        status = str(await self._nodes.give(node, "look", row.path)) if len(states) > 1 else states[node]
        if status not in _STATE_OF_STATUS:  # never begun, cut off in a migration, shut down, or crashed
            await self._nodes.give(node, "end", row.path)
            return replace(row, state="stopped", node=node)
        return replace(row, state=_STATE_OF_STATUS[status], node=node)

    async def _end_duplicates(self, row: HypervisorObject, states: dict[str, str]) -> str:
        """Ends all but one of a machine's processes after an interrupted migration. Returns the node of that one."""
        kept = find_owner(states)
        for node in states:
            if node != kept:
                await self._nodes.give(node, "end", row.path)
        if row.state == "running":
            await self._nodes.give(kept, "execute", row.path, commands=["cont"])
        return kept

    async def _read_run_states(self, machine: str) -> dict[str, str]:
        """Returns the run states of a machine's living processes, by node."""
        states = {node: await self._nodes.give(node, "look", machine) for node in self._nodes_of_machine(machine)}
        return {node: str(status) for node, status in states.items() if status}

    async def _refresh_disk_row(self, row: HypervisorObject) -> HypervisorObject:
        disk = self._disk_file(row.path)
        if row.state != ABSENT and not disk.file.exists():
            return self._absent_row(row)
        node = await self._find_living_node(row.machine) if row.state in ATTACHED_STATES else ""
        if not node or await self._nodes.give(node, "has-disk", row.machine, disks=[disk]):
            return row
        return replace(row, state=ATTACHED_STATES[row.state], machine="")

    async def _as_seen_by_nodes(self, rows: Sequence[HypervisorObject]) -> list[HypervisorFacts]:
        """Returns objects, and machines whose process is gone as stopped. A node that is silent keeps its machines."""
        looked_for = {row.path for row in rows if row.kind == "machine" and row.state in MEMORY_STATES}
        machines: defaultdict[str, list[str]] = defaultdict(list)
        for path in looked_for:
            for node in self._nodes_of_machine(path):
                machines[node].append(path)
        living: set[str] = set()
        for node, some in machines.items():
            try:
                living.update(await self._nodes.give(node, "list", machines=some))
            except ProviderError:
                living.update(some)
        lost = looked_for - living
        return [(replace(row, state="stopped") if row.path in lost else row).to_facts() for row in rows]

    @staticmethod
    def _absent_row(row: HypervisorObject) -> HypervisorObject:
        return replace(row, state=ABSENT, node="", machine="", snapshots=NO_SNAPSHOTS)

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
            ("machine", "destroy"): self._remove_disk_file,
            ("machine", "snapshot"): partial(self._change_snapshot, change=SnapshotFiles.take, order=order),
            ("machine", "rollback"): partial(self._change_snapshot, change=SnapshotFiles.roll_back, order=order),
            ("machine", "delete-snapshot"): partial(self._change_snapshot, change=SnapshotFiles.delete, order=order),
            ("disk", "create"): partial(self._create_disk, size=order.spec.get("size", 10)),
            ("disk", "attach"): self._attach_disk,
            ("disk", "detach"): self._detach_disk,
            ("disk", "destroy"): self._remove_disk_file,
            ("image", "create"): self._check_image,
            ("node", "decommission"): self._check_all_have_left,
        }
        if effect := effects.get((order.kind, verb)):
            await effect(old, new)

    async def _create_machine(self, old: HypervisorObject, new: HypervisorObject) -> None:
        if old.state != ABSENT:
            return
        boot = self._disk_file(new.path).file
        try:
            await self._make_image_file(boot, "-b", str(self._image_file(new.image)), "-F", "qcow2")
            await self._start_machine(old, new)
        except Rejected:  # after any other error a process may have it
            boot.unlink(missing_ok=True)
            raise

    async def _start_machine(self, old: HypervisorObject, new: HypervisorObject) -> None:
        await self._give_with_disks(new.node, "start", new)

    async def _stop_machine(self, old: HypervisorObject, new: HypervisorObject) -> None:
        for node in self._nodes_of_machine(new.path):
            await self._nodes.give(node, "end", new.path)

    async def _run_monitor_commands(
        self, old: HypervisorObject, new: HypervisorObject, commands: Sequence[str]
    ) -> None:
        await self._nodes.give(new.node, "execute", new.path, commands=list(commands))

    async def _migrate_machine(self, old: HypervisorObject, new: HypervisorObject) -> None:
        """Moves a machine while it runs or is paused. If it fails, the next look finds who has it."""
        if old.state not in MEMORY_STATES or old.node == new.node:
            return
        address = await self._give_with_disks(new.node, "receive", new)
        await self._nodes.give(old.node, "send", new.path, address=address, target=new.node)
        if old.state == "running":
            await self._nodes.give(new.node, "execute", new.path, commands=["cont"])
        await self._nodes.give(old.node, "end", new.path)

    async def _give_with_disks(self, node: str, verb: str, machine: HypervisorObject) -> str:
        """Gives an order that starts a process. The node is on record before: it is asked for the machine from now."""
        QemuProcess(self._options, self._options.folder_of_object(machine.path), node).announce()
        disks = await self._disks_of_machine(machine.path)
        return str(await self._nodes.give(node, verb, machine.path, memory=machine.memory, disks=disks) or "")

    async def _change_snapshot(
        self,
        old: HypervisorObject,
        new: HypervisorObject,
        change: Callable[[SnapshotFiles, str], Awaitable[None]],
        order: HypervisorOrder,
    ) -> None:
        row = old if change is SnapshotFiles.delete else new
        for snapshot in parse_snapshots(row.snapshots):
            if snapshot.name == order.spec["snapshot"]:
                files, _ = await self._open_snapshot_files(row, snapshot)
                await change(files, snapshot.tag)

    async def _settle_snapshots(self, row: HypervisorObject) -> str:
        """Finds out about snapshots in doubt: whole ones stay, what is left of others is deleted."""
        settled = []
        for snapshot in parse_snapshots(row.snapshots):
            if snapshot.in_doubt:
                files, complete = await self._open_snapshot_files(row, snapshot)
                if not complete or not await files.is_whole(snapshot.tag):
                    await files.delete(snapshot.tag)
                    continue
            settled.append(snapshot.model_copy(update={"in_doubt": False}))
        return format_snapshots(settled)

    async def _open_snapshot_files(self, row: HypervisorObject, snapshot: LedgerSnapshot) -> tuple[SnapshotFiles, bool]:
        """Returns the files of a snapshot that the machine has now, and whether that is all of them."""
        attached = await self._read_attached_disks(row.path)
        disks = [self._disk_file(path) for path in snapshot.disks if path in attached]
        node = row.node if row.state in MEMORY_STATES else ""
        files = SnapshotFiles(self._options, self._nodes, row.path, node, [self._disk_file(row.path), *disks])
        return files, len(disks) == len(snapshot.disks)

    async def _create_disk(self, old: HypervisorObject, new: HypervisorObject, size: object) -> None:
        file = self._disk_file(new.path).file
        if not file.exists():
            await self._make_image_file(file, size=f"{size}G")

    async def _attach_disk(self, old: HypervisorObject, new: HypervisorObject) -> None:
        if node := await self._find_living_node(new.machine):
            await self._nodes.give(node, "attach", new.machine, disks=[self._disk_file(new.path)])

    async def _detach_disk(self, old: HypervisorObject, new: HypervisorObject) -> None:
        if node := await self._find_living_node(old.machine):
            await self._nodes.give(node, "detach", old.machine, disks=[self._disk_file(new.path)])

    async def _remove_disk_file(self, old: HypervisorObject, new: HypervisorObject) -> None:
        self._disk_file(new.path).file.unlink(missing_ok=True)

    async def _check_image(self, old: HypervisorObject, new: HypervisorObject) -> None:
        where = self._image_file(name := new.path.partition(":")[2])
        if not where.is_file():
            raise Rejected(f"there is no file for the image {name}: put it at {where}, or name it under `images`")

    async def _check_all_have_left(self, old: HypervisorObject, new: HypervisorObject) -> None:
        """Raises Unavailable while a machine that moves away still has its process here: its migration may fail."""
        node = new.path.partition(":")[2]
        files = self._options.folder.rglob(f"{node}.pid")
        machines = [":".join(file.parent.relative_to(self._options.folder).parts) for file in files]
        if machines and (leaving := await self._nodes.give(node, "list", machines=machines)):
            raise Unavailable(f"{leaving[0]} has not left {new.path} yet")

    # Files, processes and locks.

    async def _make_image_file(self, file: Path, *words: str, size: str = "") -> None:
        """Makes a qcow2 file, whole or not at all."""
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = file.with_suffix(".part")
        program, sizes = self._options.image_program, [size] if size else []
        said = await run_program(program, "create", "-q", "-f", "qcow2", *words, str(part), *sizes)
        if said or not part.exists():
            part.unlink(missing_ok=True)
            raise refusal(f"the disk {file} could not be made", said)
        part.rename(file)

    def _disk_file(self, path: str) -> DiskFile:
        """Returns the file of a disk, or of a machine's boot disk."""
        name = "boot.qcow2" if kind_of(path) == "machine" else "disk.qcow2"
        return DiskFile.for_object_path(path, self._options.folder_of_object(path) / name)

    def _image_file(self, name: str) -> Path:
        return self._options.images.get(name, self._options.folder_of_object(f"image:{name}") / "image.qcow2")

    def _nodes_of_machine(self, machine: str) -> list[str]:
        """Returns the nodes that may have a process of the machine, as their files tell."""
        return sorted(file.stem for file in self._options.folder_of_object(machine).glob("*.pid"))

    async def _find_living_node(self, machine: str) -> str:
        """Returns the node on which the machine has a process, or an empty string."""
        return next(iter(await self._read_run_states(machine)), "")

    async def _disks_of_machine(self, machine: str) -> list[DiskFile]:
        """Returns the boot disk of a machine, and the disks attached to it."""
        attached = await self._read_attached_disks(machine)
        return [self._disk_file(path) for path in (machine, *attached)]

    async def _read_attached_disks(self, machine: str) -> list[str]:
        return await self._database.run_transaction(partial(state.read_attached_disks, machine=machine))

    @contextmanager
    def _lock_objects(self, paths: Sequence[str]) -> Iterator[None]:
        """Holds the locks of objects, against other workers too. Raises Unavailable if one is held."""
        with ExitStack() as held:
            for path in sorted(set(paths)):
                held.enter_context(hold_lock(self._options.folder, path, path))
            yield


def open_qemu_hypervisor(options: QemuOptions, host: BackendHost) -> QemuHypervisor:
    """Opens the hypervisor, with its ledger beside its disks, or in the database that its workers share."""
    options.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    database = host.open_database(options.folder / "ledger.db", (things, orders))
    return QemuHypervisor(options, database, host.serves_node, host.call_node)
