"""Makes a container by runc, and stays as its parent to tell how it ended. A script: it imports nothing of ours.

The order comes by stdin and goes to runc by a file in memory that only this process sees, as it holds secrets. The
image is mounted in a mount namespace of this process: it ends with the container, and leaves no mounts behind. The
folder's lock, which ends with this process however it dies, tells others that it lives.
"""

import ctypes
import json
import os
import subprocess
import sys
from contextlib import suppress

PR_SET_CHILD_SUBREAPER = 36
CLONE_NEWNS = 0x20000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
FULL = ("no space left", "cannot allocate memory", "resource temporarily unavailable", "too many open files")

libc = ctypes.CDLL(None, use_errno=True)


class ContainerFailed(Exception):
    """The container could not be made: `kind` is rejected, full or slow."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def main(report: int, lock: int) -> None:
    """Makes the container, reports it, and waits for its end."""
    os.set_inheritable(report, False)
    os.set_inheritable(lock, False)  # held as long as this process lives, and not by the container
    os.write(lock, str(os.getpid()).encode())
    os.umask(0o022)
    order = json.loads(sys.stdin.buffer.read())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(order["folder"])
    try:
        pid = make_container(order)
    except (ContainerFailed, OSError) as error:
        with suppress(ContainerFailed):
            call_runc(order, "delete", "--force", order["token"])
        kind = getattr(error, "kind", "") or failure_kind(str(error))
        write_report(report, {"kind": kind, "error": str(error)})
        sys.exit(126)
    write_file_atomically("made", str(pid))
    write_report(report, {"pid": pid})
    os.close(report)
    wait_for_container_end(pid)


def write_report(report: int, words: dict) -> None:  # type: ignore[type-arg]  # JSON
    """Reports to the worker, if it still lives."""
    with suppress(OSError):
        os.write(report, json.dumps(words).encode())


def make_container(order: dict) -> int:  # type: ignore[type-arg]  # JSON
    """Creates and starts the container. Returns its first process, a child of this one."""
    check_syscall(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "the container cannot be watched")
    mount_image(order["rootfs"])
    with open("bundle/config.json", "w") as file:
        json.dump(order["config"], file)
    try:
        run_runc_command(order, "created", "create", "--bundle", "bundle", order["token"])
    finally:
        os.unlink("bundle/config.json")
    return int(run_runc_command(order, "running", "start", order["token"])["pid"])


def mount_image(rootfs: str) -> None:
    """Mounts the image below a layer of the instance's own, which takes all that is written."""
    for name in ("bundle", "bundle/rootfs", "image", "upper", "work"):  # runc also looks for the second outside
        os.mkdir(name)
    os.chmod("upper", os.stat(rootfs).st_mode & 0o7777)  # the root folder, as the image has it
    check_syscall(libc.unshare(CLONE_NEWNS), "no mount namespace")
    mount(None, "/", None, MS_REC | MS_PRIVATE, None)
    mount("tmpfs", "bundle", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0700")
    os.mkdir("bundle/rootfs")
    mount(rootfs, "image", None, MS_BIND, None)
    mount("overlay", "bundle/rootfs", "overlay", 0, "lowerdir=image,upperdir=upper,workdir=work")


def mount(source: "str | None", target: str, kind: "str | None", flags: int, options: "str | None") -> None:
    """Calls mount(2)."""
    words = [word.encode() if word is not None else None for word in (source, target, kind, options)]
    check_syscall(libc.mount(*words[:3], flags, words[3]), f"cannot mount {source or target}")


def check_syscall(result: int, text: str) -> None:
    """Raises Failed with the C library's reason."""
    if result:
        reason = os.strerror(ctypes.get_errno())
        raise ContainerFailed(failure_kind(reason), f"{text}: {reason}")


def failure_kind(reason: str) -> str:
    """Tells whether the machine is full, by the reason."""
    return "full" if any(word in reason.lower() for word in FULL) else "rejected"


def run_runc_command(order: dict, status: str, *words: str) -> dict:  # type: ignore[type-arg]  # JSON
    """Calls runc, and asks what became of it, as an answer may be lost or wrong."""
    said = call_runc(order, *words, output=None)
    state = call_runc(order, "state", order["token"], output=subprocess.PIPE)
    try:
        found = json.loads(state[1])
    except ValueError:
        found = {}
    ended = status == "running" and found.get("status") == "stopped"  # it was quick
    if found.get("status") == status or (ended and said[0] == 0):
        return {"pid": read_ended_container_pid(order)} if ended else found
    if said[0] is None or state[0] is None:
        raise ContainerFailed("slow", f"runc {words[0]} gave no answer within {order['seconds']:g} s")
    reason = last_runc_error() or f"runc {words[0]} ended with exit code {said[0]}"
    raise ContainerFailed(failure_kind(reason), reason)


def read_ended_container_pid(order: dict) -> int:  # type: ignore[type-arg]  # JSON
    """Returns the pid of a container that has ended already; it is our child until it is waited for."""
    with open(f"{order['root']}/{order['token']}/state.json") as file:
        return int(json.load(file)["init_process_pid"])


def call_runc(order: dict, *words: str, output: "int | None" = subprocess.DEVNULL) -> "tuple[int | None, str]":  # type: ignore[type-arg]
    """Calls runc. Returns its exit code, or None if it was too slow, and its output."""
    command = [order["runc"], "--root", order["root"], "--log", "runc.log", "--log-format", "json", *words]
    try:
        done = subprocess.run(  # noqa: S603  the worker names the program
            command, stdout=output, stderr=subprocess.DEVNULL if output else None, timeout=order["seconds"], check=False
        )
    except subprocess.TimeoutExpired:
        return None, ""
    except OSError as error:
        raise ContainerFailed("rejected", f"{order['runc']} cannot run: {error.strerror}") from error
    return done.returncode, (done.stdout or b"").decode(errors="replace")


def last_runc_error() -> str:
    """Returns what runc logged last as an error."""
    try:
        with open("runc.log") as file:
            lines = [json.loads(line) for line in file if line.startswith("{")]
    except (OSError, ValueError):
        return ""
    return next((line["msg"] for line in reversed(lines) if line.get("level") in ("error", "fatal")), "")


def wait_for_container_end(pid: int) -> None:
    """Waits for the container's end, and writes how it ended."""
    _, status = os.waitpid(pid, 0)
    write_file_atomically("ended", str(os.waitstatus_to_exitcode(status)))


def write_file_atomically(name: str, text: str) -> None:
    """Writes a file that is there as a whole or not at all."""
    with open(f"{name}.new", "w") as file:
        file.write(text)
    os.replace(f"{name}.new", name)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
