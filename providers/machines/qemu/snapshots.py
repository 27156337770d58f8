"""Snapshots of a machine: qcow2's own, under one tag in the file of its boot disk and of each attached disk.

The process of a machine makes them in all its disks at one moment, with the memory. Without a process, qemu-img makes
them file by file, so a worker that dies in between leaves a part, which is deleted when it is found.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager

from domain.errors import UnknownOutcome
from providers.machines.qemu.node import hold_lock
from providers.machines.qemu.options import QemuOptions
from providers.machines.qemu.orders import NodeOrders
from providers.machines.qemu.process import DiskFile
from providers.machines.qemu.program import read_program, refusal, run_program


class SnapshotFiles:
    """The snapshots in the disks of one machine, the boot disk first. `node` has its process; empty: it has none."""

    def __init__(
        self, options: QemuOptions, nodes: NodeOrders, machine: str, node: str, disks: Sequence[DiskFile]
    ) -> None:
        self._options = options
        self._nodes = nodes
        self._machine = machine
        self._node = node
        self._disks = list(disks)

    async def take(self, tag: str) -> None:
        """Makes a snapshot; one that is whole stays as it is."""
        if await self.is_whole(tag):
            return
        await self.delete(tag)
        await self._change("snapshot-save", "-c", tag)
        if not await self.is_whole(tag):  # what is there counts, whatever was answered
            raise UnknownOutcome(f"the snapshot {tag} of {self._machine} is not in all of its disks")

    async def roll_back(self, tag: str) -> None:
        """Brings all disks back to a snapshot; and the memory, if the machine has a process."""
        if not await self.is_whole(tag):  # QEMU would have stopped the machine before it finds that out
            raise refusal(f"the snapshot {tag} of {self._machine}", "it is not in all of its disks")
        await self._change("snapshot-load", "-a", tag)

    async def delete(self, tag: str) -> None:
        """Deletes a snapshot from every disk that has it."""
        have = [disk for disk, tags in (await self._read_tags()).items() if tag in tags]
        await self._change("snapshot-delete", "-d", tag, have)

    async def is_whole(self, tag: str) -> bool:
        """Tells whether every disk has the snapshot."""
        return all(tag in tags for tags in (await self._read_tags()).values())

    async def _change(self, command: str, flag: str, tag: str, disks: Sequence[DiskFile] | None = None) -> None:
        disks = self._disks if disks is None else disks
        if self._node and disks:
            await self._nodes.give(self._node, "snapshot", self._machine, commands=[command], tag=tag, disks=disks)
            return
        program = self._options.image_program
        with self._lock_files() as descriptor:
            for disk in disks:
                words = (program, "snapshot", flag, tag, str(disk.file))
                if said := await run_program(*words, descriptors=[descriptor]):
                    raise refusal(f"the snapshot {tag} of {disk.file}", said)

    async def _read_tags(self) -> dict[DiskFile, list[str]]:
        if self._node:
            tags = await self._nodes.give(self._node, "read-tags", self._machine)
            return {disk: tags.get(disk.name, []) for disk in self._disks}
        with self._lock_files():
            return {disk: await self._read_tags_of_file(disk) for disk in self._disks}

    def _lock_files(self) -> AbstractContextManager[int]:
        """Locks the files. A qemu-img whose worker died holds the lock until it ends: till then nobody can tell."""
        return hold_lock(self._options.folder, f"{self._machine}@files", self._machine)

    async def _read_tags_of_file(self, disk: DiskFile) -> list[str]:
        said, errors = await read_program(self._options.image_program, "info", "--output=json", str(disk.file))
        if errors:
            raise refusal(f"the disk {disk.file} cannot be read", errors)
        return [snapshot["name"] for snapshot in json.loads(said).get("snapshots", [])]
