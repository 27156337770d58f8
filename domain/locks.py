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

from domain.model import Model
from domain.paths import ancestors


class Mode(StrEnum):
    """The modes in which a path is locked."""

    X = "X"
    IX = "IX"
    HIDDEN_X = "hidden X"
    HIDDEN_IX = "hidden IX"
    CLOSED = "closed"  # the wait queue at this path admits nobody until it is empty


EXCLUSIVE = (Mode.X, Mode.HIDDEN_X)
HIDDEN = (Mode.HIDDEN_X, Mode.HIDDEN_IX)
_SHARED = (Mode.IX, Mode.HIDDEN_IX)
COMPATIBLE: frozenset[tuple[Mode, Mode]] = frozenset(
    (one, other) for one in _SHARED for other in (*_SHARED, Mode.CLOSED)
)


@dataclass(frozen=True)
class HeldLock:
    """A lock: who holds it, on which path, for which action, since when."""

    path: str
    mode: Mode
    owner: str
    run: str
    action: str
    since: datetime


class LockView(Model):
    """A lock as readers see it."""

    path: str
    mode: str
    owner: str
    run: str
    action: str
    since: datetime


class LocksView(Model):
    """The answer of a lock query: held locks, and those still waiting in the queue."""

    locks: list[LockView]


def locks_for(paths: Iterable[str], hidden: bool = False) -> dict[str, Mode]:
    """Returns the locks that an action on these paths needs, in the one order in which everybody acquires them."""
    exclusive, shared = (Mode.HIDDEN_X, Mode.HIDDEN_IX) if hidden else (Mode.X, Mode.IX)
    modes: dict[str, Mode] = {}
    for path in paths:
        for above in ancestors(path):
            modes.setdefault(above, shared)
        modes[path] = exclusive
    return dict(sorted(modes.items()))


def conflicts(want: Mapping[str, Mode], held: Iterable[HeldLock]) -> list[HeldLock]:
    """Returns the held locks that conflict with the wanted ones."""
    return [hold for hold in _overlapping(want, held) if not _queue_together(want[hold.path], hold.mode)]


def queued_behind(want: Mapping[str, Mode], held: Iterable[HeldLock]) -> list[HeldLock]:
    """Returns the held locks that the wanted ones must wait for, because one side of each pair is hidden."""
    return [hold for hold in _overlapping(want, held) if _queue_together(want[hold.path], hold.mode)]


def _overlapping(want: Mapping[str, Mode], held: Iterable[HeldLock]) -> list[HeldLock]:
    return [hold for hold in held if hold.path in want and (want[hold.path], hold.mode) not in COMPATIBLE]


def _queue_together(one: Mode, other: Mode) -> bool:
    return other is not Mode.CLOSED and (one in HIDDEN or other in HIDDEN)
