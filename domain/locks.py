"""Lock modes on paths, and which of them are compatible.

An action holds X on its own path and IX on every ancestor. X is compatible with nothing, IX with IX: so an action on a
child excludes one on its parent and the other way round, while siblings run side by side. Nobody waits for a lock, with
one exception: hidden actions, which users do not see, refuse nobody and are refused by nobody. A hidden action and
whatever it conflicts with queue in the order of arrival. So at most one user's action waits, because the next one is
refused by that one's X.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from domain.model import FrozenModel
from domain.paths import ancestor_paths


class LockMode(StrEnum):
    """The modes in which a path is locked."""

    X = "X"
    IX = "IX"
    HIDDEN_X = "hidden X"
    HIDDEN_IX = "hidden IX"
    CLOSED = "closed"  # the wait queue at this path admits nobody until it is empty


EXCLUSIVE_MODES = (LockMode.X, LockMode.HIDDEN_X)
HIDDEN_MODES = (LockMode.HIDDEN_X, LockMode.HIDDEN_IX)
_SHARED_MODES = (LockMode.IX, LockMode.HIDDEN_IX)
COMPATIBLE_MODES: frozenset[tuple[LockMode, LockMode]] = frozenset(
    (one, other) for one in _SHARED_MODES for other in (*_SHARED_MODES, LockMode.CLOSED)
)


@dataclass(frozen=True)
class HeldLock:
    """A lock: who holds it, on which path, for which action, since when."""

    path: str
    mode: LockMode
    owner: str
    run: str
    action: str
    since: datetime


class LockView(FrozenModel):
    """A lock as readers see it."""

    path: str
    mode: str
    owner: str
    run: str
    action: str
    since: datetime


class LocksView(FrozenModel):
    """The answer of a lock query: held locks, and those still waiting in the queue."""

    locks: list[LockView]


def locks_needed_for(paths: Iterable[str], hidden: bool = False) -> dict[str, LockMode]:
    """Returns the locks that an action on these paths needs, in the one order in which everybody acquires them."""
    exclusive, shared = (LockMode.HIDDEN_X, LockMode.HIDDEN_IX) if hidden else (LockMode.X, LockMode.IX)
    modes: dict[str, LockMode] = {}
    for path in paths:
        for above in ancestor_paths(path):
            modes.setdefault(above, shared)
        modes[path] = exclusive
    return dict(sorted(modes.items()))


def sort_held_locks(want: Mapping[str, LockMode], held: Iterable[HeldLock]) -> tuple[list[HeldLock], list[HeldLock]]:
    """Returns the held locks that conflict with the wanted ones, and those to wait for: one side of each is hidden."""
    meeting = [hold for hold in held if hold.path in want and (want[hold.path], hold.mode) not in COMPATIBLE_MODES]
    ahead = [
        hold
        for hold in meeting
        if hold.mode is not LockMode.CLOSED and (want[hold.path] in HIDDEN_MODES or hold.mode in HIDDEN_MODES)
    ]
    return [hold for hold in meeting if hold not in ahead], ahead
