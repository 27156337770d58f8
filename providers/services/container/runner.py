"""Runs instances as containers. What has to do with folders, logs, secrets and proxies is the process backend's."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from domain.errors import NoCapacity, Rejected, Unavailable
from domain.services.definition import HealthCheck, Node
from providers.services import confinement, pids
from providers.services.confinement import ProcessRules
from providers.services.container.config import DATA_FOLDER, container_config, process_config
from providers.services.container.rules import ContainerImage, ContainerRules
from providers.services.container.runtime import ContainerRuntime
from providers.services.ledger import SupervisedInstance
from providers.services.pids import TOKEN_VARIABLE
from providers.services.process import HOME_FOLDER, ProcessRunner, end_cgroups, instance_environment, open_log
from providers.services.proxy import InstanceRoute
from providers.services.reconciler import PROXY_NUMBER
from providers.sockets import find_free_port

SHIM = (sys.executable, "-I", "-S", str(Path(__file__).with_name("shim.py")))
SHIM_SECONDS = 5.0  # in which a shim ends after its container
SHIM_CALLS = 5  # of runc, to make a container or to give it up
POLL_SECONDS = 0.01
LOCK_FILE, MADE_FILE, ENDED_FILE = "lock", "made", "ended"  # of the shim
REPORT_BYTES = 65_536
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE)
_ERRORS = {"full": NoCapacity, "slow": Unavailable}


class ContainerRunner(ProcessRunner):
    """An `InstanceRunner` of containers on this machine. The proxies in front of them are processes."""

    name = "container"

    def __init__(self, folder: Path, rules: ProcessRules, containers: ContainerRules) -> None:
        super().__init__(folder, replace(rules, own_users=True))  # a container's first process is never root
        self._containers = containers
        self._bundles = self._folder / ".containers"  # no system's name begins with a dot
        self._shims: dict[str, int] = {}  # by token: those that are our children
        self.runtime = ContainerRuntime(containers, self._folder / ".runc")

    async def prepare_system(self, system: str, generation: int) -> None:
        if os.geteuid() != 0:
            raise Rejected("the container backend needs a worker that is root: runc makes namespaces and cgroups")
        if not shutil.which(self._containers.runc):
            raise Rejected(f"the container backend needs {self._containers.runc} (Debian: apt install runc)")
        await super().prepare_system(system, generation)

    async def start_instance(self, unit: SupervisedInstance) -> None:
        if unit.number == PROXY_NUMBER:
            return await super().start_instance(unit)
        await self._remove_container(unit.token)  # of an earlier start
        if unit.node.port is not None:
            unit.port = unit.node.port if unit.node.has_own_network else find_free_port()
        try:
            self._make_bundle_folder(unit)
            order = await asyncio.to_thread(self._container_order, unit)
            report = await self._run_shim(unit, order)
        except OSError as error:
            report = {"kind": "full" if error.errno in _FULL else "rejected", "error": error.strerror or str(error)}
        except Rejected:
            await self._remove_container(unit.token)
            raise
        if "pid" not in report:
            await self._remove_container(unit.token)
            raise _ERRORS.get(report["kind"], Rejected)(f"no container of {unit.node.image}: {report['error']}")
        unit.pid, unit.started = report["pid"], pids.read_start_ticks(report["pid"])

    def _make_bundle_folder(self, unit: SupervisedInstance) -> None:
        """Makes the container's folder, unless there are as many as there may be."""
        for kept in (self._bundles, self.runtime.root):
            kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        limit = self._containers.limit
        if sum(1 for _ in self._bundles.iterdir()) >= limit:
            raise NoCapacity(f"no room for another container: {limit} are here, as RATCHET_MAX_CONTAINERS allows")
        (self._bundles / unit.token).mkdir(mode=0o700)

    def check_service(self, node: Node) -> None:
        self._find_image_and_command(node)

    def _find_image_and_command(self, node: Node) -> tuple[ContainerImage, Sequence[str]]:
        """Returns what a service runs; raises Rejected if that is missing or not allowed here."""
        image = self._containers.find_image(node.image or "")
        command = node.command or image.command
        if not command:
            raise Rejected(f"the image {node.image} says no command: give the service one")
        if not node.has_own_network and not self._containers.host_network:
            raise Rejected("no network of the machine for containers here: RATCHET_CONTAINER_NETWORK of the worker")
        return image, command

    def _container_order(self, unit: SupervisedInstance) -> dict[str, Any]:
        """Returns what the shim is to make."""
        image, command = self._find_image_and_command(unit.node)
        process = self._process_config(unit, command)
        home = self.log_folder_of_service(unit.path) / HOME_FOLDER
        hostname = f"{unit.path.rpartition(':')[2]}-{unit.number}"[:63]
        return {
            "runc": self._containers.runc,
            "root": str(self.runtime.root),
            "seconds": self._containers.seconds,
            "token": unit.token,
            "folder": str(self._bundles / unit.token),
            "rootfs": str(image.rootfs),
            "config": container_config(unit.node, process, unit.token, hostname, home),
        }

    def _process_config(self, unit: SupervisedInstance, command: Sequence[str]) -> dict[str, Any]:
        image = self._containers.find_image(unit.node.image or "")
        home = self._make_traversable_folder(self.log_folder_of_service(unit.path)) / HOME_FOLDER
        home.mkdir(mode=0o700, exist_ok=True)
        uid = self._assign_folder_owner(unit, home)
        words = [word.replace("{port}", str(unit.port)) for word in command]
        environment = instance_environment(unit, Path(DATA_FOLDER), image.environment) | self._resolve_secrets(unit)
        directory = unit.node.directory or image.directory or DATA_FOLDER
        return process_config(unit.node, words, environment, directory, uid)

    async def _run_shim(self, unit: SupervisedInstance, order: dict[str, Any]) -> dict[str, Any]:
        """Starts the shim, and returns its report, which has the container's pid, or why there is none."""
        ready, report = os.pipe()
        lock = os.open(self._bundles / unit.token / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        reader = asyncio.StreamReader()
        with (
            open_log(self.log_folder_of_service(unit.path) / f"{unit.number}.log") as log,
            os.fdopen(ready, "rb") as pipe,
        ):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)  # the shim inherits it: from here on a successor sees that it lives
                process = subprocess.Popen(  # noqa: S603, ASYNC220  our own program, and no wait for it
                    [*SHIM, str(report), str(lock)],
                    env={TOKEN_VARIABLE: unit.token, "PATH": os.environ.get("PATH", confinement.SERVICE_PATH)},
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(report, lock),
                    start_new_session=True,  # it outlives the worker
                )
            finally:
                os.close(lock)
                os.close(report)
            self._shims[unit.token] = process.pid
            process.returncode = 0  # keeps Popen from waiting: the shim may outlive us
            assert process.stdin is not None
            with suppress(BrokenPipeError), process.stdin:
                process.stdin.write(json.dumps(order).encode())
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), pipe
            )
            try:
                text = await reader.read(REPORT_BYTES)
            finally:
                transport.close()
        return json.loads(text) if text else {"kind": "slow", "error": "what makes it was ended"}

    async def find_instance(self, unit: SupervisedInstance) -> bool:
        if unit.number == PROXY_NUMBER:
            return await super().find_instance(unit)
        with suppress(Rejected):  # only for redaction: it runs already
            self._resolve_secrets(unit)
        if pids.is_alive(unit.pid, unit.started):
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(SHIM_CALLS * self._containers.seconds):
                while self._is_being_made(unit.token):  # noqa: ASYNC110  by a shim whose worker has died
                    await asyncio.sleep(POLL_SECONDS)
        unit.pid = await self._find_running(unit.token)
        unit.started = pids.read_start_ticks(unit.pid)
        return bool(unit.started)

    async def _find_running(self, token: str) -> int:
        """Returns the pid of a container that runs, or 0. Nothing may be done before that is known."""
        while True:
            try:
                return await self.runtime.read_running_pid(token)
            except Unavailable:
                await asyncio.sleep(1)

    def _is_watched(self, token: str) -> bool:
        """Tells whether a shim of this container lives."""
        try:
            with (self._bundles / token / LOCK_FILE).open() as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        return False

    def _is_being_made(self, token: str) -> bool:
        return not (self._bundles / token / MADE_FILE).exists() and self._is_watched(token)

    async def wait_for_exit(self, unit: SupervisedInstance) -> str:
        if unit.number == PROXY_NUMBER:
            return await super().wait_for_exit(unit)
        await pids.wait_for_exit(unit.pid, unit.started)
        file, code = self._bundles / unit.token / ENDED_FILE, None
        await self._wait_for_shim(unit.token)
        with suppress(OSError, ValueError):
            code = int(file.read_text())
        if confinement.count_out_of_memory(unit.token):
            limit = unit.node.resources.memory
            return f"container {unit.token[:12]} reached its memory limit of {limit} MiB and was ended"
        return pids.describe_exit(f"container {unit.token[:12]}", code)

    async def _wait_for_shim(self, token: str) -> None:
        """Waits for the shim to end, and reaps it. After SHIM_SECONDS it may still run."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SHIM_SECONDS):
                while self._is_watched(token):  # noqa: ASYNC110  nobody tells us
                    await asyncio.sleep(POLL_SECONDS)
        if not self._is_watched(token) and (child := self._shims.pop(token, 0)):
            with suppress(ChildProcessError):
                await asyncio.to_thread(os.waitpid, child, 0)  # it ends just now

    async def stop_instance(self, unit: SupervisedInstance) -> None:
        """Drains the instance, then sends SIGTERM, then SIGKILL."""
        if unit.number == PROXY_NUMBER:
            return await super().stop_instance(unit)
        if pids.is_alive(unit.pid, unit.started):
            await self._wait_until_unconnected(unit)
            if _handles_sigterm(unit.pid):  # else it would ignore it, as the first process of its namespace
                _send_signal(unit, signal.SIGTERM)
                with suppress(TimeoutError):
                    async with asyncio.timeout(unit.node.stopSeconds):
                        await pids.wait_for_exit(unit.pid, unit.started)
            confinement.thaw_cgroups(unit.token)
            _send_signal(unit, signal.SIGKILL)
            await pids.wait_for_exit(unit.pid, unit.started)
        await self._remove_container(unit.token)
        unit.pid = unit.started = 0

    async def _remove_container(self, token: str) -> None:
        """Removes a container, and what is left of one: nothing of it is left on return, whatever runc does."""
        folder, state = self._bundles / token, self.runtime.root / token
        if not folder.exists() and not state.exists():
            return
        if self._is_being_made(token):
            self._kill_shim(token)
        confinement.thaw_cgroups(token)
        with suppress(Unavailable):  # then we do without it
            await self.runtime.delete(token)
        await end_cgroups(token)
        await self._wait_for_shim(token)
        if self._is_watched(token):
            self._kill_shim(token)
            await end_cgroups(token)
            await self._wait_for_shim(token)
        for left in (state, folder):
            await asyncio.to_thread(shutil.rmtree, left, ignore_errors=True)

    def _kill_shim(self, token: str) -> None:
        with suppress(OSError, ValueError):
            os.killpg(int((self._bundles / token / LOCK_FILE).read_text()), signal.SIGKILL)

    def route_of_instance(self, unit: SupervisedInstance) -> InstanceRoute:
        if not unit.node.has_own_network:
            return super().route_of_instance(unit)
        return InstanceRoute(unit.port, unit.pid or -1, unit.started)

    async def _probe_by_command(self, unit: SupervisedInstance, health: HealthCheck) -> str:
        if unit.number == PROXY_NUMBER:
            return await super()._probe_by_command(unit, health)
        process = await asyncio.to_thread(self._process_config, unit, health.command or [])
        return await self.runtime.check_health_by_command(
            unit.token, health, process, self._bundles / unit.token / "check"
        )


def _send_signal(unit: SupervisedInstance, number: signal.Signals) -> None:
    """Signals the container's first process, if the pid is still the same process."""
    with suppress(OSError):
        descriptor = os.pidfd_open(unit.pid)
        try:
            if pids.is_alive(unit.pid, unit.started):
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def _handles_sigterm(pid: int) -> bool:
    with suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/{pid}/status").read_text()
        return bool(int(text.split("SigCgt:")[1].split()[0], 16) & 1 << (signal.SIGTERM - 1))
    return False
