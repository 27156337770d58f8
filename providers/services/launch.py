"""Confines itself as its order says, then becomes a service's program. A script: it imports nothing of ours.

The order comes by stdin, never by argument or environment: it holds secrets, and a variable such as LD_PRELOAD must not
reach this process, which may still be root. The pipe `report` closes when the program starts, or says why it cannot.
"""

import ctypes
import json
import os
import resource
import sys

PR_SET_NO_NEW_PRIVS = 38
LIMITS = {
    "memory": resource.RLIMIT_AS,
    "files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
    "core": resource.RLIMIT_CORE,
}


def main(report: int) -> None:
    """Reads the order, obeys it, and becomes the program."""
    os.set_inheritable(report, False)
    order = json.loads(sys.stdin.buffer.read())
    try:
        confine_process(order)
        os.execve(order["program"], order["command"], order["environment"])  # noqa: S606  the launcher's purpose
    except OSError as error:
        os.write(report, (error.strerror or str(error)).encode())
        sys.exit(126)


def confine_process(order: dict) -> None:  # type: ignore[type-arg]  # JSON
    """Enters the cgroups and the folder, sets the limits, and gives up every right to gain more."""
    for group in order["cgroups"]:
        with open(f"{group}/cgroup.procs", "w") as file:
            file.write("0")
    os.chdir(order["directory"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.umask(0o077)
    for name, limit in order["limits"].items():
        ceiling = resource.getrlimit(LIMITS[name])[1]
        limit = limit if ceiling == resource.RLIM_INFINITY else min(limit, ceiling)
        resource.setrlimit(LIMITS[name], (limit, limit))
    if order["uid"] is not None:
        os.setgroups([])
        os.setresgid(order["uid"], order["uid"], order["uid"])
        os.setresuid(order["uid"], order["uid"], order["uid"])
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs cannot be set")


if __name__ == "__main__":
    main(int(sys.argv[1]))
