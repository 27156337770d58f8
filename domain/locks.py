"""Lock modes on paths, and which of them go together.

An action holds X on its own path and IX on every ancestor. X goes with nothing, IX with IX: so a child's action
excludes its parent's and the other way round, while siblings run side by side. Nobody ever waits for a lock, with one
exception: hidden work, of which users know nothing, refuses nobody and is refused by nobody. It and what it meets
stand in line, in the order in which they came. So at most one user's action waits, as the next one meets that one's X.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from domain.model import Model
from domain.paths import ancestors


class Mode(StrEnum):
    """How a path is held."""

    X = "X"
    IX = "IX"
    HIDDEN_X = "hidden X"
    HIDDEN_IX = "hidden IX"
    CLOSED = "closed"  # the line at this path takes nobody any more until it is empty


EXCLUSIVE = (Mode.X, Mode.HIDDEN_X)
HIDDEN = (Mode.HIDDEN_X, Mode.HIDDEN_IX)
_SHARED = (Mode.IX, Mode.HIDDEN_IX)
COMPATIBLE: frozenset[tuple[Mode, Mode]] = frozenset(
    (one, other) for one in _SHARED for other in (*_SHARED, Mode.CLOSED)
)


@dataclass(frozen=True)
class HeldLock:
    """A lock that an action holds: who, on what, doing what, since when."""

    path: str
    mode: Mode
    owner: str
    run: str
    action: str
    since: datetime


class LockView(Model):
    """A hold, as it travels to readers."""

    path: str
    mode: str
    owner: str
    run: str
    action: str
    since: datetime


class LocksView(Model):
    """Locks, those that still wait in line included."""

    locks: list[LockView]


def locks_for(paths: Iterable[str], hidden: bool = False) -> dict[str, Mode]:
    """What an action on these paths must hold, in the one order in which everybody acquires it."""
    exclusive, shared = (Mode.HIDDEN_X, Mode.HIDDEN_IX) if hidden else (Mode.X, Mode.IX)
    modes: dict[str, Mode] = {}
    for path in paths:
        for above in ancestors(path):
            modes.setdefault(above, shared)
        modes[path] = exclusive
    return dict(sorted(modes.items()))


def conflicts(want: Mapping[str, Mode], held: Iterable[HeldLock]) -> list[HeldLock]:
    """The holds that stand in the way."""
    return [hold for hold in _overlapping(want, held) if not _queue_together(want[hold.path], hold.mode)]


def queued_behind(want: Mapping[str, Mode], held: Iterable[HeldLock]) -> list[HeldLock]:
    """The holds that are waited for: one of the two is hidden."""
    return [hold for hold in _overlapping(want, held) if _queue_together(want[hold.path], hold.mode)]


def _overlapping(want: Mapping[str, Mode], held: Iterable[HeldLock]) -> list[HeldLock]:
    return [hold for hold in held if hold.path in want and (want[hold.path], hold.mode) not in COMPATIBLE]


def _queue_together(one: Mode, other: Mode) -> bool:
    return other is not Mode.CLOSED and (one in HIDDEN or other in HIDDEN)
