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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from domain.errors import Rejected, Superseded, Unavailable
from domain.paths import short_path
from domain.services.definition import HealthCheck, Node
from domain.services.ports import InstanceLog
from providers.services import confinement, logs, pids, probes
from providers.services.confinement import ProcessRules
from providers.services.ledger import SupervisedInstance
from providers.services.pids import TOKEN_VARIABLE
from providers.services.proxy import InstanceRoute
from providers.services.reconciler import PROXY_NUMBER
from providers.sockets import find_free_port

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
        if not pids.has_pidfd():
            raise Rejected("the process backend needs Linux: it knows processes by /proc")
        try:
            await asyncio.to_thread(self._make_folder, self.log_folder_of_service(system), generation)
        except OSError as error:
            raise Rejected(f"no folder for {short_path(system)}: {error.strerror}") from error

    async def clean_up_system(self, system: str, generation: int) -> None:
        await asyncio.to_thread(self._remove_folder, self.log_folder_of_service(system), generation)

    def _make_folder(self, folder: Path, generation: int) -> None:
        self._make_traversable_folder(folder)
        with self._lock_services_folder():
            (folder / GENERATION_FILE).write_text(str(generation))

    def _make_traversable_folder(self, folder: Path) -> Path:
        """Makes a folder below the services' folder. Users of services may pass it, and neither list nor change it."""
        folder.mkdir(parents=True, exist_ok=True)
        for each in (folder, *folder.parents):
            if each == self._folder.parent.parent:
                break
            each.chmod(0o711 if self._rules.own_users else 0o700)
        return folder

    def _remove_folder(self, folder: Path, generation: int) -> None:
        """Removes a system's folder under the lock, so that it is not created anew meanwhile."""
        if not folder.exists():
            return
        with self._lock_services_folder():
            made_by = int((folder / GENERATION_FILE).read_text()) if (folder / GENERATION_FILE).exists() else 0
            if made_by > generation:
                raise Superseded(f"the folder {folder.name} belongs to a later system of that name", final=True)
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def _lock_services_folder(self) -> Iterator[None]:
        try:
            with confinement.lock_folder(self._folder):
                yield
        except BlockingIOError as error:
            raise Unavailable("folders of services are made or removed by another worker just now") from error

    def log_folder_of_service(self, path: str) -> Path:
        """Returns the folder of a service's logs. Names have neither slashes nor leading dots."""
        return self._folder.joinpath(*short_path(path).split("/"))

    def check_service(self, node: Node) -> None:
        for command in (node.command, node.health.command if node.health else None):
            if command:
                self._rules.find_program(command, node)

    async def start_instance(self, unit: SupervisedInstance) -> None:
        if unit.node.port is not None:
            unit.port = find_free_port()
        try:
            unit.pid = await asyncio.to_thread(self._spawn_process, unit)
        except OSError as error:
            raise Rejected(f"cannot run {unit.node.command}: {error.strerror or error}") from error
        unit.started = pids.read_start_ticks(unit.pid)

    def _spawn_process(self, unit: SupervisedInstance) -> int:
        order = self._launch_order(unit, unit.node.command or [])
        order["cgroups"] = confinement.make_cgroups(unit.token, unit.node.resources)
        started, report = os.pipe()
        with (
            open_log(self.log_folder_of_service(unit.path) / f"{unit.number}.log") as log,
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
            pids.reap_child(process.pid)
            raise OSError(0, reason.decode(errors="replace"))
        return process.pid

    def _launch_order(self, unit: SupervisedInstance, command: Sequence[str]) -> dict[str, Any]:
        """Returns how the launcher confines and starts a command of an instance. A proxy is our own program."""
        is_proxy = unit.number == PROXY_NUMBER
        own_user = self._rules.own_users and not is_proxy
        home = self._make_traversable_folder(self.log_folder_of_service(unit.path)) / HOME_FOLDER
        home.mkdir(mode=0o700, exist_ok=True)
        uid = self._assign_folder_owner(unit, home) if own_user else None
        secrets = {} if is_proxy else self._resolve_secrets(unit)
        return {
            "program": command[0] if is_proxy else self._rules.find_program(command, unit.node),
            "command": [word.replace("{port}", str(unit.port)) for word in command],
            "environment": instance_environment(unit, home) | secrets,
            "directory": str(unit.node.directory or home),
            "limits": confinement.instance_rlimits(unit.node.resources, own_user),
            "uid": uid,
            "cgroups": [],
        }

    def _assign_folder_owner(self, unit: SupervisedInstance, home: Path) -> int:
        """Returns the uid of the service, which owns its folder."""
        uid = confinement.assign_uid(self._folder, unit.path)
        os.chown(home, uid, uid)
        return uid

    def _resolve_secrets(self, unit: SupervisedInstance) -> dict[str, str]:
        values = self._rules.resolve_secrets(unit.path.split(":")[1], unit.node)
        self._secret_values.setdefault(unit.path, set()).update(values.values())
        return values

    async def find_instance(self, unit: SupervisedInstance) -> bool:
        with suppress(Rejected):  # only for redaction: it runs already
            self._resolve_secrets(unit)
        if pids.is_alive(unit.pid, unit.started):
            return True
        found = await asyncio.to_thread(pids.find_pid_by_token, unit.token) if not unit.pid else 0
        unit.pid, unit.started = found, pids.read_start_ticks(found)
        return bool(found)

    async def wait_for_exit(self, unit: SupervisedInstance) -> str:
        await pids.wait_for_exit(unit.pid, unit.started)
        return pids.describe_exit(f"process {unit.pid}", pids.reap_child(unit.pid))

    async def stop_instance(self, unit: SupervisedInstance) -> None:
        """Drains the instance, then sends SIGTERM, then SIGKILL."""
        if pids.is_alive(unit.pid, unit.started):
            await self._wait_until_unconnected(unit)
            _signal_group(unit, signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(unit.node.stopSeconds):
                    await pids.wait_for_exit(unit.pid, unit.started)
            _signal_group(unit, signal.SIGKILL)
            await pids.wait_for_exit(unit.pid, unit.started)
        if unit.pid:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(unit.pid, signal.SIGKILL)  # its remaining child processes
            pids.reap_child(unit.pid)
        await end_cgroups(unit.token)
        unit.pid = unit.started = 0

    async def _wait_until_unconnected(self, unit: SupervisedInstance) -> None:
        """Waits until no connection to the instance is open; the proxy sends it no new ones."""
        if not unit.port:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(unit.node.stopSeconds):
                await asyncio.sleep(QUIET_SECONDS)
                while await asyncio.to_thread(probes.count_connections, self.route_of_instance(unit)):  # noqa: ASYNC110  nobody tells us
                    await asyncio.sleep(QUIET_SECONDS / 2)

    async def probe_instance(self, unit: SupervisedInstance) -> str:
        health = unit.node.health
        if health is None:  # how it ended may be told later
            return "" if pids.is_alive(unit.pid, unit.started) else "it has ended"
        if health.command and health.command[0] == LISTENS_PREFIX:
            return probes.check_listening(int(health.command[1]), unit.pid)
        if health.command is None:
            return await probes.check_health(health, self.route_of_instance(unit))
        try:
            return await self._probe_by_command(unit, health)
        except Rejected as error:
            return str(error)

    async def _probe_by_command(self, unit: SupervisedInstance, health: HealthCheck) -> str:
        order = await asyncio.to_thread(self._launch_order, unit, health.command or [])
        return await probes.check_health_by_command(health, LAUNCHER, json.dumps(order).encode())

    def route_of_instance(self, unit: SupervisedInstance) -> InstanceRoute:
        return InstanceRoute(unit.port)

    async def read_logs(self, path: str, lines: int) -> list[InstanceLog]:
        found = await asyncio.to_thread(logs.read_logs, self.log_folder_of_service(path), path, lines)
        return logs.redact_values(found, self._secret_values.get(path, ()))

    def proxy_definition(self, path: str, node: Node) -> Node | None:
        """Returns the proxy on the service's port, which hides that instances come and go."""
        if node.port is None:
            return None
        words = [sys.executable, str(PROXY_SCRIPT), str(node.port), str(self._routes_file(path))]
        return Node(command=words, stopSeconds=5, health=HealthCheck(command=[LISTENS_PREFIX, str(node.port)]))

    def set_routes(self, path: str, routes: Sequence[InstanceRoute]) -> None:
        file = self._routes_file(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(".new")
        draft.write_text(json.dumps(list(routes)))
        draft.replace(file)

    def _routes_file(self, path: str) -> Path:
        return self.log_folder_of_service(path) / "routes.json"


def instance_environment(
    unit: SupervisedInstance, folder: Path, default: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Returns an instance's environment, without its secrets; it has nothing of the worker's own."""
    told = {"PATH": confinement.SERVICE_PATH, "LANG": "C.UTF-8", "HOME": str(folder)}
    told |= {**default, **unit.node.environment}
    told |= {TOKEN_VARIABLE: unit.token, "RATCHET_SERVICE": unit.path}
    return told | ({"PORT": str(unit.port)} if unit.port else {})


def open_log(file: Path) -> IO[bytes]:
    """Opens a log for appending; rotates one that has grown too large."""
    with suppress(FileNotFoundError):
        if file.stat().st_size > LOG_BYTES:
            file.replace(file.with_suffix(".log.1"))
    return open(file, "ab", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600))


def _signal_group(unit: SupervisedInstance, number: signal.Signals) -> None:
    """Signals the process group, if the pid is still the same process, as pids are reused."""
    if pids.is_alive(unit.pid, unit.started):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(unit.pid, number)


async def end_cgroups(token: str) -> None:
    """Removes the instance's cgroups with what is left in them; the kernel needs a moment to forget the dead."""
    with suppress(TimeoutError):
        async with asyncio.timeout(CGROUP_SECONDS):
            while not confinement.end_cgroups(token):  # noqa: ASYNC110  nobody tells us
                await asyncio.sleep(0.01)
