"""Free ports of this machine, for processes that we start."""

from __future__ import annotations

import random
import socket

# Below the range that systems take for outgoing connections (Linux 32768, others 49152): a client that asks for a
# server that is away can otherwise be given that very port, and the server cannot come back to it.
OURS = range(18_000, 32_000)


def free_port(preferred: int = 0) -> int:
    """The preferred port if it is free, else one of ours, by chance: who starts at the same moment takes another."""
    chance = random.sample(OURS, 100)
    for port in (preferred, *chance) if preferred else chance:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no free port on 127.0.0.1")


def listens(port: int) -> bool:
    """Does somebody answer at this port?"""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
