"""Finds free ports of this machine, for processes that we start."""

from __future__ import annotations

import random
import socket

# Below the ephemeral range (Linux 32768, others 49152): a client that connects to a stopped server could otherwise
# get the server's own port, and the server could not return to it.
OUR_PORTS = range(18_000, 32_000)


def find_free_port(preferred: int = 0) -> int:
    """Returns the preferred port if it is free, else a random free one, so that concurrent starts rarely collide."""
    chance = random.sample(OUR_PORTS, 100)
    for port in (preferred, *chance) if preferred else chance:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no free port on 127.0.0.1")


def is_port_open(port: int) -> bool:
    """Tells whether a process listens on this port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
