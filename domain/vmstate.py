"""A VM's state as clouds report it. Apart from the protocols, whose messages the state tables do not need."""

from __future__ import annotations

from enum import StrEnum


class VmState(StrEnum):
    """A VM's state as its cloud reports it; UNKNOWN for a word that we do not understand."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    UNKNOWN = "unknown"
