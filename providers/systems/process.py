"""Runs instances as processes on this machine: no shell, only listed programs, confined before they start.

An instance is a process group of its own, so it outlives the worker that started it. It is recognised by pid and start
time or, if the worker died before it recorded these, by a token in its environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from domain.errors import Rejected, Superseded, Unavailable
from domain.paths import short_path
from domain.systems.ports import InstanceLog
from domain.systems.specs import HealthCheck, Node
from providers.sockets import free_port
from providers.systems import confinement, logs, probes
from providers.systems.confinement import ProcessRules
from providers.systems.ledger import SupervisedInstance
from providers.systems.reconciler import PROXY_NUMBER

TOKEN_VARIABLE = "RATCHET_INSTANCE"  # noqa: S105  a name, not a secret
LOG_BYTES = 5_000_000  # a larger log is rotated when its instance starts again
QUIET_SECONDS = 0.1  # seconds before the first look for open connections
LISTENS_PREFIX = "@listens"  # a proxy's check: in /proc, as a connection would reach an instance
GENERATION_FILE = ".generation"  # file with the generation that created the folder; no part's name begins with a dot
HOME_FOLDER = ".home"  # an instance's own folder; no part's name begins with a dot
PROXY_SCRIPT = Path(__file__).with_name("proxy.py")
LAUNCHER = (sys.executable, "-I", "-S", str(Path(__file__).with_name("launch.py")))
CGROUP_SECONDS = 1.0  # in which the kernel forgets the processes of a cgroup


class ProcessRunner:
    """An `InstanceRunner` of processes on this machine. Needs Linux, as it identifies processes by /proc."""

    name = "process"
    steady_seconds = 0.5

    def __init__(self, folder: Path, rules: ProcessRules) -> None:
        self._folder = folder.resolve()
        self._rules = rules
        self._secret_values: dict[str, set[str]] = {}  # by service: what its logs must not show

    async def prepare_system(self, system: str, generation: int) -> None:
        if not _has_pidfd():
            raise Rejected("the process backend needs Linux: it knows processes by /proc")
        try:
            await asyncio.to_thread(self._make_folder, self.log_folder_of(system), generation)
        except OSError as error:
            raise Rejected(f"no folder for {short_path(system)}: {error.strerror}") from error

    async def clean_up_system(self, system: str, generation: int) -> None:
        await asyncio.to_thread(self._remove_folder, self.log_folder_of(system), generation)

    def _make_folder(self, folder: Path, generation: int) -> None:
        self._make_passable(folder)
        with self._folder_lock():
            (folder / GENERATION_FILE).write_text(str(generation))

    def _make_passable(self, folder: Path) -> None:
        """Makes a folder below the services' folder. Users of services may pass it, and neither list nor change it."""
        folder.mkdir(parents=True, exist_ok=True)
        for each in (folder, *folder.parents):
            if each == self._folder.parent.parent:
                break
            each.chmod(0o711 if self._rules.own_users else 0o700)

    def _remove_folder(self, folder: Path, generation: int) -> None:
        """Removes a system's folder under the lock, so that it is not created anew meanwhile."""
        if not folder.exists():
            return
        with self._folder_lock():
            made_by = int((folder / GENERATION_FILE).read_text()) if (folder / GENERATION_FILE).exists() else 0
            if made_by > generation:
                raise Superseded(f"the folder {folder.name} belongs to a later system of that name", final=True)
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def _folder_lock(self) -> Iterator[None]:
        try:
            with confinement.folder_lock(self._folder):
                yield
        except BlockingIOError as error:
            raise Unavailable("folders of services are made or removed by another worker just now") from error

    def log_folder_of(self, path: str) -> Path:
        """Returns the folder of a service's logs. Names have neither slashes nor leading dots."""
        return self._folder.joinpath(*short_path(path).split("/"))

    async def start_instance(self, unit: SupervisedInstance) -> None:
        if unit.node.port is not None:
            unit.port = free_port()
        try:
            unit.pid = await asyncio.to_thread(self._spawn_process, unit)
        except OSError as error:
            raise Rejected(f"cannot run {unit.node.command}: {error.strerror or error}") from error
        unit.started = _start_ticks(unit.pid)

    def _spawn_process(self, unit: SupervisedInstance) -> int:
        order = self._launch_order(unit, unit.node.command or [])
        order["cgroups"] = confinement.make_cgroups(unit.token, unit.node.resources)
        started, report = os.pipe()
        with (
            _open_log(self.log_folder_of(unit.path) / f"{unit.number}.log") as log,
            os.fdopen(started, "rb") as failure,
        ):
            try:
                process = subprocess.Popen(  # noqa: S603  our launcher; there is no shell
                    [*LAUNCHER, str(report)],
                    env={TOKEN_VARIABLE: unit.token},  # by which it is found if this worker dies now
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(report,),
                    start_new_session=True,  # it outlives the worker
                )
            finally:
                os.close(report)
            assert process.stdin is not None
            with suppress(BrokenPipeError), process.stdin:
                process.stdin.write(json.dumps(order).encode())
            reason = failure.read()  # ends when the program runs
        process.returncode = 0  # keeps Popen from waiting: the instance may outlive us
        if reason:
            _reap_child(process.pid)
            raise OSError(0, reason.decode(errors="replace"))
        return process.pid

    def _launch_order(self, unit: SupervisedInstance, command: Sequence[str]) -> dict[str, Any]:
        """Returns how the launcher confines and starts a command of an instance. A proxy is our own program."""
        is_proxy = unit.number == PROXY_NUMBER
        own_user = self._rules.own_users and not is_proxy
        folder = self.log_folder_of(unit.path)
        self._make_passable(folder)
        home = folder / HOME_FOLDER
        home.mkdir(mode=0o700, exist_ok=True)
        uid = confinement.assign_uid(self._folder, unit.path) if own_user else None
        if uid is not None:
            os.chown(home, uid, uid)
        secrets = {} if is_proxy else self._resolve_secrets(unit)
        return {
            "program": command[0] if is_proxy else self._rules.find_program(command, unit.node),
            "command": [word.replace("{port}", str(unit.port)) for word in command],
            "environment": instance_environment(unit, home) | secrets,
            "directory": str(unit.node.directory or home),
            "limits": confinement.limits_of(unit.node.resources, own_user),
            "uid": uid,
            "cgroups": [],
        }

    def _resolve_secrets(self, unit: SupervisedInstance) -> dict[str, str]:
        values = self._rules.resolve_secrets(unit.path.split(":")[1], unit.node)
        self._secret_values.setdefault(unit.path, set()).update(values.values())
        return values

    async def find_instance(self, unit: SupervisedInstance) -> bool:
        with suppress(Rejected):  # only for redaction: it runs already
            self._resolve_secrets(unit)
        if unit.pid and _start_ticks(unit.pid) == unit.started:
            return True
        found = await asyncio.to_thread(_find_process, unit.token) if not unit.pid else 0
        unit.pid, unit.started = found, _start_ticks(found)
        return bool(found)

    async def wait_for_exit(self, unit: SupervisedInstance) -> str:
        await _wait_for_exit(unit)
        return _describe_exit(unit, _reap_child(unit.pid))

    async def stop_instance(self, unit: SupervisedInstance) -> None:
        """Drains the instance, then sends SIGTERM, then SIGKILL."""
        if unit.pid and _start_ticks(unit.pid) == unit.started:
            await self._wait_until_unconnected(unit)
            _signal_group(unit, signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(unit.node.stopSeconds):
                    await _wait_for_exit(unit)
            _signal_group(unit, signal.SIGKILL)
            await _wait_for_exit(unit)
        if unit.pid:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(unit.pid, signal.SIGKILL)  # its remaining child processes
            _reap_child(unit.pid)
        await _end_cgroups(unit.token)
        unit.pid = unit.started = 0

    async def _wait_until_unconnected(self, unit: SupervisedInstance) -> None:
        """Waits until no connection to the instance is open; the proxy sends it no new ones."""
        if not unit.port:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(unit.node.stopSeconds):
                await asyncio.sleep(QUIET_SECONDS)
                while await asyncio.to_thread(probes.count_connections, unit.port):  # noqa: ASYNC110  nobody tells us
                    await asyncio.sleep(QUIET_SECONDS / 2)

    async def probe_instance(self, unit: SupervisedInstance) -> str:
        health = unit.node.health
        if health is None:
            return ""
        if health.command and health.command[0] == LISTENS_PREFIX:
            return probes.check_tcp(int(health.command[1]))
        if health.command is None:
            return await probes.check_health(health, unit.port)
        try:
            order = await asyncio.to_thread(self._launch_order, unit, health.command)
        except Rejected as error:
            return str(error)
        return await probes.check_command(health, LAUNCHER, json.dumps(order).encode())

    async def read_logs(self, path: str, lines: int) -> list[InstanceLog]:
        found = await asyncio.to_thread(logs.read_logs, self.log_folder_of(path), path, lines)
        return logs.redact_values(found, self._secret_values.get(path, ()))

    def proxy_definition(self, path: str, node: Node) -> Node | None:
        """Returns the proxy on the service's port, which hides that instances come and go."""
        if node.port is None:
            return None
        words = [sys.executable, str(PROXY_SCRIPT), str(node.port), str(self._routes_file(path))]
        return Node(command=words, stopSeconds=5, health=HealthCheck(command=[LISTENS_PREFIX, str(node.port)]))

    def set_routes(self, path: str, ports: Sequence[int]) -> None:
        file = self._routes_file(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(".new")
        draft.write_text(json.dumps(list(ports)))
        draft.replace(file)

    def _routes_file(self, path: str) -> Path:
        return self.log_folder_of(path) / "routes.json"


def instance_environment(unit: SupervisedInstance, folder: Path) -> dict[str, str]:
    """Returns an instance's environment, without its secrets; it has nothing of the worker's own."""
    told = {"PATH": confinement.SERVICE_PATH, "LANG": "C.UTF-8", "HOME": str(folder)}
    told |= unit.node.environment
    told |= {TOKEN_VARIABLE: unit.token, "RATCHET_SERVICE": unit.path}
    return told | ({"PORT": str(unit.port)} if unit.port else {})


def _has_pidfd() -> bool:
    return Path("/proc/self/stat").exists() and hasattr(os, "pidfd_open")


def _open_log(file: Path) -> IO[bytes]:
    """Opens a log for appending; rotates one that has grown too large."""
    with suppress(FileNotFoundError):
        if file.stat().st_size > LOG_BYTES:
            file.replace(file.with_suffix(".log.1"))
    return open(file, "ab", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600))


def _start_ticks(pid: int) -> int:
    """Returns the start time of a process in kernel ticks; 0 if there is none, or only a zombie."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if words[0] in "ZX" else int(words[19])


def _find_process(token: str) -> int:
    """Returns the pid of the oldest process with this token in its environment, or 0."""
    mark, found = f"{TOKEN_VARIABLE}={token}".encode(), []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append((_start_ticks(int(folder.name)), int(folder.name)))
    return min(found)[1] if found else 0


async def _end_cgroups(token: str) -> None:
    """Removes the instance's cgroups with what is left in them; the kernel needs a moment to forget the dead."""
    with suppress(TimeoutError):
        async with asyncio.timeout(CGROUP_SECONDS):
            while not confinement.end_cgroups(token):  # noqa: ASYNC110  nobody tells us
                await asyncio.sleep(0.01)


async def _wait_for_exit(unit: SupervisedInstance) -> None:
    """Waits until the process has ended, by a pidfd, which also works for processes that are not our children."""
    if _start_ticks(unit.pid) != unit.started:
        return
    try:
        descriptor = os.pidfd_open(unit.pid)
    except OSError:
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _signal_group(unit: SupervisedInstance, number: signal.Signals) -> None:
    """Signals the process group, if the pid is still the same process, as pids are reused."""
    if _start_ticks(unit.pid) == unit.started:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(unit.pid, number)


def _reap_child(pid: int) -> int | None:
    """Returns the exit code of a child that has ended; None for other processes."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if found else None


def _describe_exit(unit: SupervisedInstance, code: int | None) -> str:
    if code is None:
        return f"process {unit.pid} is gone"
    if code < 0:
        return f"process {unit.pid} was ended by {signal.Signals(-code).name}"
    return f"process {unit.pid} ended with exit code {code}"
