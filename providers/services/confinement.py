"""Confines the processes of services: which programs may run, as which user, with which limits and secrets."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from domain.errors import Rejected
from domain.services.definition import Node, ResourceLimits, SecretReference

# Of services that set none: nothing of the worker's own variables reaches a service.
SERVICE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SECRET_PREFIX = "RATCHET_SECRET_"  # noqa: S105  a name, not a secret
SECRET_BYTES = 64_000
UIDS_FILE = ".uids.json"
FIRST_UID = 1 << 30  # far from the users of a machine
UIDS_PER_FOLDER = 1 << 16
DEFAULT_LIMITS = {"files": 1_024, "processes": 512, "core": 0}
CGROUPS = Path("/sys/fs/cgroup")
CGROUP_NAME = "ratchet"


@dataclass(frozen=True)
class ProcessRules:
    """What a worker allows the services of the process backend."""

    programs: Sequence[str] = ()  # files, or folders with a slash at the end
    own_users: bool = False  # each service has a uid of its own; only root can do that
    secrets: Path | None = None

    def find_program(self, command: Sequence[str], node: Node) -> str:
        """Returns the file that a command runs; raises Rejected if it is missing or not allowed here."""
        name = command[0]
        if "/" in name:
            found: str | None = str(Path(node.directory or "/") / name)
        else:
            found = shutil.which(name, path=node.environment.get("PATH", SERVICE_PATH))
        if found is None or not os.path.exists(found):
            raise Rejected(f"cannot run {list(command)}: No such file or directory")
        if not any(is_listed(os.path.realpath(found), entry) for entry in self.programs):
            raise Rejected(f"{name} may not run here: RATCHET_PROGRAMS of the worker does not list {found}")
        return found

    def resolve_secrets(self, system: str, node: Node) -> dict[str, str]:
        """Returns the values of a service's secrets by variable; raises Rejected, which names no value."""
        return {variable: self._read_secret(system, source) for variable, source in node.secretFrom.items()}

    def _read_secret(self, system: str, source: SecretReference) -> str:
        if source.env is not None:
            value = os.environ.get(SECRET_PREFIX + source.env)
            if value is None:
                raise Rejected(f"the worker has no variable {SECRET_PREFIX}{source.env} for a secret")
            return value
        file = (self.secrets or Path("/nonexistent")) / system / (source.file or "")
        try:
            with open(os.open(file, os.O_RDONLY | os.O_NOFOLLOW)) as text:
                if os.fstat(text.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                    raise Rejected(f"the secret {file} can be used by others: chmod 600 {file}")
                return text.read(SECRET_BYTES).removesuffix("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise Rejected(f"the secret {file} cannot be read: {getattr(error, 'strerror', 'no text')}") from error


def is_listed(file: str, entry: str) -> bool:
    """Tells whether a list of a worker allows a file: it is the entry or, below a folder with a slash, in it."""
    listed = os.path.realpath(entry)
    return file.startswith(listed.rstrip("/") + "/") if entry.endswith("/") else file == listed


def instance_rlimits(resources: ResourceLimits, own_user: bool) -> dict[str, int]:
    """Returns the rlimits of an instance. Processes are counted per user, so a shared user has no default for them."""
    wanted = {"memory": (resources.memory or 0) << 20, "files": resources.files, "processes": resources.processes}
    default = {name: limit for name, limit in DEFAULT_LIMITS.items() if own_user or name != "processes"}
    return default | {name: limit for name, limit in wanted.items() if limit}


@contextmanager
def lock_folder(folder: Path, blocking: bool = False) -> Iterator[None]:
    """Locks a folder of services; raises BlockingIOError if it is taken."""
    with (folder / ".lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX if blocking else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def assign_uid(folder: Path, path: str) -> int:
    """Returns the service's uid, the same at every start; a uid is never given to a second service."""
    file, base = folder / UIDS_FILE, int(sha256(str(folder).encode()).hexdigest()[:3], 16) * UIDS_PER_FOLDER
    with lock_folder(folder, blocking=True):
        known: dict[str, int] = json.loads(file.read_text()) if file.exists() else {}
        if path not in known:
            if len(known) == UIDS_PER_FOLDER:
                raise Rejected(f"{UIDS_PER_FOLDER} services have had a user of their own in {folder}: no uid is left")
            known[path] = FIRST_UID + base + len(known)
            draft = file.with_suffix(".new")
            draft.write_text(json.dumps(known))
            draft.replace(file)
        return known[path]


def make_cgroups(token: str, resources: ResourceLimits) -> list[str]:
    """Makes the instance's cgroups, of version 2 or 1. Returns their folders; none where they cannot be made."""
    memory = str((resources.memory or 0) << 20) if resources.memory else None
    pids = str(resources.processes or DEFAULT_LIMITS["processes"])
    if (CGROUPS / "cgroup.controllers").exists():
        with suppress(OSError):
            (CGROUPS / CGROUP_NAME).mkdir(exist_ok=True)
            for parent in (CGROUPS, CGROUPS / CGROUP_NAME):
                (parent / "cgroup.subtree_control").write_text("+memory +pids")
        wanted = [(CGROUPS, {"memory.max": memory, "pids.max": pids})]
    else:
        wanted = [(CGROUPS / "pids", {"pids.max": pids}), (CGROUPS / "memory", {"memory.limit_in_bytes": memory})]
    return [made for root, values in wanted if (made := _make_cgroup(root, token, values))]


def _make_cgroup(root: Path, token: str, values: dict[str, str | None]) -> str:
    folder = root / CGROUP_NAME / token
    try:
        if not root.is_dir():
            return ""
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in values.items():
            if value is not None:
                (folder / name).write_text(value)
    except OSError:
        with suppress(OSError):
            folder.rmdir()
        return ""
    return str(folder)


def _cgroups_of_instance(token: str) -> list[Path]:
    return [folder for root in (CGROUPS, *CGROUPS.glob("*/")) if (folder := root / CGROUP_NAME / token).exists()]


def thaw_cgroups(token: str) -> None:
    """Lets processes of a frozen cgroup go on: frozen ones, of version 1, do not even end."""
    for folder in _cgroups_of_instance(token):
        for name, value in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
            with suppress(OSError):
                if (folder / name).exists():
                    (folder / name).write_text(value)


def count_out_of_memory(token: str) -> int:
    """Returns how many processes of the instance the kernel has ended because its memory limit was reached."""
    for folder in _cgroups_of_instance(token):
        for name in ("memory.events", "memory.oom_control"):
            with suppress(OSError):
                words = dict(line.split() for line in (folder / name).read_text().splitlines())
                return int(words.get("oom_kill", 0))
    return 0


def end_cgroups(token: str) -> bool:
    """Kills what is left in the instance's cgroups, also what left its process group. Tells whether they are gone."""
    there = _cgroups_of_instance(token)
    for folder in there:
        with suppress(OSError):
            for pid in (folder / "cgroup.procs").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
        with suppress(OSError):
            folder.rmdir()
    return not any(folder.exists() for folder in there)
