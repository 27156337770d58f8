"""The OCI configuration of a container: everything is taken away that a service was not given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from domain.services.definition import Node
from providers.services.confinement import CGROUP_NAME, CGROUPS, DEFAULT_LIMITS

DATA_FOLDER = "/data"  # in the container: the service's own folder, which outlives its instances
CPU_PERIOD = 100_000  # microseconds
TEMPORARY_MIB = 64  # of /tmp, in memory
_MASKED = ("/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/proc/acpi", "/sys/firmware")
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
_NO_DEVICE = ["nosuid", "noexec", "nodev"]
# Calls that lead out of a container, or to parts of the kernel with a history of holes; none that services need.
_REFUSED_CALLS = (
    *("unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "open_by_handle_at", "name_to_handle_at"),
    *("bpf", "perf_event_open", "userfaultfd", "keyctl", "add_key", "request_key", "ptrace", "process_vm_writev"),
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot", "swapon", "swapoff"),
    *("fsopen", "fsmount", "move_mount", "open_tree", "io_uring_setup", "io_uring_enter", "io_uring_register"),
)
_CLONE_NEWUSER = 0x10000000
_ENOSYS = 38


def process_config(
    node: Node, command: Sequence[str], environment: Mapping[str, str], directory: str, uid: int
) -> dict[str, Any]:
    """Returns the `process` of a container, or of a command in it: no capabilities, and none to be gained."""
    files, core = node.resources.files or DEFAULT_LIMITS["files"], DEFAULT_LIMITS["core"]
    return {
        "user": {"uid": uid, "gid": uid, "umask": 0o077},
        "args": list(command),
        "env": [f"{name}={value}" for name, value in environment.items()],
        "cwd": directory,
        "noNewPrivileges": True,
        "capabilities": {},
        "rlimits": [
            {"type": "RLIMIT_NOFILE", "hard": files, "soft": files},
            {"type": "RLIMIT_CORE", "hard": core, "soft": core},
        ],
    }


def container_config(node: Node, process: dict[str, Any], token: str, hostname: str, data: Path) -> dict[str, Any]:
    """Returns the `config.json` of a container."""
    kinds = ["pid", "ipc", "uts", "mount", "cgroup", *(["network"] if node.has_own_network else [])]
    return {
        "ociVersion": "1.0.2",
        "process": process,
        "root": {"path": "rootfs", "readonly": node.readOnly},
        "hostname": hostname,
        "mounts": _mounts(node, data),
        "linux": {
            "cgroupsPath": f"/{CGROUP_NAME}/{token}",
            "namespaces": [{"type": kind} for kind in kinds],
            "resources": _resource_limits(node),
            "maskedPaths": list(_MASKED),
            "readonlyPaths": list(_READ_ONLY),
            "seccomp": _seccomp_profile(),
        },
    }


def _mounts(node: Node, data: Path) -> list[dict[str, Any]]:
    def mount(at: str, kind: str, *options: str) -> dict[str, Any]:
        return {"destination": at, "type": kind, "source": kind, "options": list(options)}

    own = {"destination": DATA_FOLDER, "type": "bind", "source": str(data), "options": ["rbind", "nosuid", "nodev"]}
    names = {"destination": "/etc/resolv.conf", "type": "bind", "source": "/etc/resolv.conf", "options": ["bind", "ro"]}
    return [
        mount("/proc", "proc", *_NO_DEVICE),
        mount("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=64k"),
        mount("/dev/shm", "tmpfs", *_NO_DEVICE, "mode=1777", f"size={TEMPORARY_MIB}m"),  # noqa: S108
        mount("/sys", "sysfs", *_NO_DEVICE, "ro"),
        mount("/tmp", "tmpfs", "nosuid", "nodev", "mode=1777", f"size={TEMPORARY_MIB}m"),  # noqa: S108  its own
        own,
        *([names] if not node.has_own_network and Path("/etc/resolv.conf").exists() else []),
    ]


def _resource_limits(node: Node) -> dict[str, Any]:
    limits = node.resources
    found: dict[str, Any] = {
        "devices": [{"allow": False, "access": "rwm"}],
        "pids": {"limit": limits.processes or DEFAULT_LIMITS["processes"]},
    }
    if limits.memory:
        size = limits.memory << 20
        found["memory"] = {"limit": size} | ({"swap": size} if _can_limit_swap() else {})
    if limits.cpus:
        found["cpu"] = {"quota": int(limits.cpus * CPU_PERIOD), "period": CPU_PERIOD}
    return found


def _can_limit_swap() -> bool:
    return (CGROUPS / "cgroup.controllers").exists() or (CGROUPS / "memory/memory.memsw.limit_in_bytes").exists()


def _seccomp_profile() -> dict[str, Any]:
    namespaced = {"index": 0, "value": _CLONE_NEWUSER, "valueTwo": _CLONE_NEWUSER, "op": "SCMP_CMP_MASKED_EQ"}
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [
            {"names": list(_REFUSED_CALLS), "action": "SCMP_ACT_ERRNO"},
            {"names": ["clone"], "action": "SCMP_ACT_ERRNO", "args": [namespaced]},
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS},  # its flags cannot be looked at
        ],
    }
