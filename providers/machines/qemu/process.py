"""One QEMU process: a machine on a node.

The process holds a lock on its pid file for as long as it lives. The kernel tells who holds the lock, so a process is
known again after any crash of ours, and a pid that was used again is never mistaken for it.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import secrets
import signal
import socket
import struct
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from domain.errors import Rejected, Unavailable, UnknownOutcome, format_one_line
from providers.machines.qemu.options import QemuOptions
from providers.machines.qemu.program import refusal, run_program

QMP_SECONDS = 10.0  # for a connection, and for one command
JOB_SECONDS = 120.0  # for a job: it writes or reads the machine's memory, and QEMU answers nobody meanwhile
EXIT_SECONDS = 10.0
_LOCK_QUESTION = "hhqqi4x"  # struct flock of 64-bit Linux: type, whence, start, length, pid
SCSI_BUS = "scsi0"


@dataclass(frozen=True)
class DiskFile:
    """A disk as QEMU knows it: its file, and the name of the block node and of the device."""

    file: Path
    name: str

    @classmethod
    def for_object_path(cls, path: str, file: Path) -> DiskFile:
        """Returns the disk of an object. QEMU allows names of 31 characters, so that of a path is a hash."""
        return cls(file, "d" + hashlib.sha256(path.encode()).hexdigest()[:24])

    def block_node_arguments(self) -> dict[str, Any]:
        return {"driver": "qcow2", "node-name": self.name, "file": {"driver": "file", "filename": str(self.file)}}

    def device_arguments(self) -> dict[str, Any]:
        # SCSI disks can be detached without the guest's consent, so an action never waits for a guest that hangs.
        # The address follows from the name: in a migration the target must have each disk at the source's address.
        number = int(self.name[1:], 16)
        address = {"scsi-id": 1 + number % 255, "lun": number // 255 % 256}
        return {"driver": "scsi-hd", "bus": f"{SCSI_BUS}.0", "drive": self.name, "id": f"{self.name}-device", **address}


class QemuProcess:
    """The process of a machine on one node, alive or not."""

    def __init__(self, options: QemuOptions, folder: Path, node: str) -> None:
        self.node = node
        self._options = options
        self._folder = folder
        self._socket = f"{node}.sock"
        self._pid_file = folder / f"{node}.pid"
        self.incoming_socket = folder / f"{node}.in"

    def find_pid(self) -> int:
        """Returns the pid of the living process; 0 if there is none."""
        try:
            with self._pid_file.open("rb+") as file:
                question = struct.pack(_LOCK_QUESTION, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
                answer = struct.unpack(_LOCK_QUESTION, fcntl.fcntl(file, fcntl.F_OFD_GETLK, question))
        except FileNotFoundError:
            return 0
        return 0 if answer[0] == fcntl.F_UNLCK else int(answer[4])

    async def start(
        self, name: str, memory: int, disks: Sequence[DiskFile], incoming: str = "", accelerator: str = "tcg"
    ) -> None:
        """Starts the process, which waits for `cont`; or, with `incoming`, for a migration. Returns when it listens."""
        self.announce()
        words = [
            *(self._options.program, "-daemonize", "-S", "-nodefaults", "-display", "none", "-no-user-config"),
            *("-accel", accelerator, "-m", f"{memory}G", "-smp", "1"),
            *("-name", f"guest={name},process=ratchet-vm", "-pidfile", self._pid_file.name),
            *("-sandbox", "on,resourcecontrol=deny"),
            *("-qmp", f"unix:{self._socket},server=on,wait=off", "-device", f"virtio-scsi-pci,id={SCSI_BUS}"),
            *(("-incoming", incoming) if incoming else ()),
        ]
        for disk in disks:
            words += [
                "-blockdev",
                json.dumps(disk.block_node_arguments()),
                "-device",
                json.dumps(disk.device_arguments()),
            ]
        said = await run_program(*words, cwd=self._folder)
        if not self.find_pid():  # what runs counts, whatever was answered
            self.remove_files()
            raise refusal(f"QEMU did not start {name} on {self.node}", said)

    @asynccontextmanager
    async def open_monitor(self) -> AsyncIterator[QemuMonitor]:
        """Opens the control connection; QEMU serves one at a time."""
        from qemu.qmp import ConnectError, QMPClient

        client = QMPClient()
        client.logger.disabled = True
        try:
            async with asyncio.timeout(QMP_SECONDS):
                with _open_folder(self._folder) as descriptor:
                    await client.connect(f"/proc/self/fd/{descriptor}/{self._socket}")
        except (ConnectError, TimeoutError, OSError) as error:
            with suppress(Exception):
                await client.disconnect()
            raise Unavailable(f"QEMU on {self.node} does not answer: {format_one_line(error)}") from error
        try:
            yield QemuMonitor(client)
        finally:
            with suppress(Exception):  # the process may be gone, as after `quit`
                await client.disconnect()

    async def end(self) -> None:
        """Ends the process, if it lives, and waits until the kernel has closed all of its files."""
        while pid := self.find_pid():
            try:
                process = os.pidfd_open(pid)
            except ProcessLookupError:
                await asyncio.sleep(0.005)  # the kernel is about to release its lock
                continue
            try:
                if self.find_pid() == pid:  # else it is a process that got the number just now
                    await self._kill(pid, process)
            finally:
                os.close(process)
        self.remove_files()

    async def _kill(self, pid: int, process: int) -> None:
        """Kills a process. It has ended when its descriptor is readable: its pid file is closed before its disks."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(process, ended.set)
        try:
            signal.pidfd_send_signal(process, signal.SIGKILL)
            async with asyncio.timeout(EXIT_SECONDS):
                await ended.wait()
        except TimeoutError:
            raise UnknownOutcome(f"the QEMU process {pid} on {self.node} was killed and does not end") from None
        finally:
            loop.remove_reader(process)

    def announce(self) -> None:
        """Makes the pid file: from now on the node is asked for the machine. QEMU locks it once it runs."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._pid_file.touch(mode=0o600)

    def connect_incoming(self) -> socket.socket:
        """Connects to the socket at which a process on this host waits for a machine."""
        channel = socket.socket(socket.AF_UNIX)
        try:
            with _open_folder(self._folder) as descriptor:
                channel.connect(f"/proc/self/fd/{descriptor}/{self.incoming_socket.name}")
        except OSError:
            channel.close()
            raise
        return channel

    def remove_files(self) -> None:
        """Removes the files of a process that is gone."""
        for file in (self._pid_file, self._folder / self._socket, self.incoming_socket):
            file.unlink(missing_ok=True)


@contextmanager
def _open_folder(folder: Path) -> Iterator[int]:
    """Opens a folder. A socket's name is limited to 107 characters, and folders may be deep: a descriptor is short."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class QemuMonitor:
    """Commands to a living QEMU process."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def execute(self, command: str, **arguments: Any) -> Any:
        """Carries out a command. Raises Rejected for a refusal, UnknownOutcome if no answer came."""
        return await self._execute(command, arguments, QMP_SECONDS)

    async def _execute(self, command: str, arguments: Mapping[str, Any], seconds: float) -> Any:
        from qemu.qmp import ExecInterruptedError, ExecuteError

        try:
            async with asyncio.timeout(seconds):
                return await self._client.execute(command, dict(arguments) or None)
        except ExecuteError as error:
            raise Rejected(f"QEMU refused {command}: {format_one_line(error)}") from error
        except (ExecInterruptedError, TimeoutError, OSError) as error:
            raise UnknownOutcome(f"QEMU did not answer {command}: {format_one_line(error)}") from error

    async def run_job(self, command: str, **arguments: Any) -> None:
        """Runs a job to its end. Raises Rejected if it fails, UnknownOutcome if it does not end in time."""
        name = f"job-{secrets.token_hex(8)}"
        await self._execute(command, {"job-id": name, **arguments}, JOB_SECONDS)
        try:
            async with asyncio.timeout(JOB_SECONDS):
                while (job := await self._find_ended_job(name)) is None:  # noqa: ASYNC110  another process
                    await asyncio.sleep(0.01)
        except TimeoutError as error:
            raise UnknownOutcome(f"QEMU has not ended {command} within {JOB_SECONDS:g} s") from error
        if job.get("error"):
            raise Rejected(f"QEMU refused {command}: {job['error']}")

    async def _find_ended_job(self, name: str) -> dict[str, Any] | None:
        """Returns a job that has ended, and removes it; also those of workers that died."""
        ended = {job["id"]: job for job in await self.execute("query-jobs") if job["status"] == "concluded"}
        for other in ended:
            await self.execute("job-dismiss", id=other)
        return ended.get(name)

    async def read_tags(self) -> dict[str, list[str]]:
        """Returns the tags of the snapshots in each block node, by its name."""
        nodes = await self.execute("query-named-block-nodes", flat=True)
        return {node["node-name"]: [tag["name"] for tag in node["image"].get("snapshots", [])] for node in nodes}

    async def read_status(self) -> str:
        """Returns the run state, such as running, paused or inmigrate."""
        return str((await self.execute("query-status"))["status"])

    async def attach_disk(self, disk: DiskFile) -> None:
        """Attaches a disk; one that is attached stays so."""
        nodes, devices = await self._read_block_node_names()
        if disk.name not in nodes:
            await self.execute("blockdev-add", **disk.block_node_arguments())
        if disk.name not in devices:
            await self.execute("device_add", **disk.device_arguments())

    async def detach_disk(self, disk: DiskFile) -> None:
        """Detaches a disk; one that is not attached stays so."""
        nodes, devices = await self._read_block_node_names()
        if disk.name in devices:
            await self.execute("device_del", id=disk.device_arguments()["id"])
        if disk.name in nodes:
            await self._delete_block_node(disk.name)

    async def has_disk(self, disk: DiskFile) -> bool:
        return disk.name in (await self._read_block_node_names())[1]

    async def pass_descriptor(self, name: str, descriptor: int) -> None:
        """Passes an open file to QEMU under a name."""
        self._client.send_fd_scm(descriptor)
        await self.execute("getfd", fdname=name)

    async def _delete_block_node(self, name: str) -> None:
        """Closes a disk's file. QEMU lets go of it a moment after its device is gone."""
        async with asyncio.timeout(QMP_SECONDS):
            while True:
                try:
                    await self.execute("blockdev-del", **{"node-name": name})
                    return
                except Rejected as error:
                    if "in use" not in str(error):
                        raise
                await asyncio.sleep(0.01)

    async def _read_block_node_names(self) -> tuple[set[str], set[str]]:
        """Returns the names of the block nodes, and of those that a device uses."""
        nodes = {node["node-name"] for node in await self.execute("query-named-block-nodes", flat=True)}
        used = {block["inserted"]["node-name"] for block in await self.execute("query-block") if block.get("inserted")}
        return nodes, used
