"""Lock modes on paths, and which of them go together.

An action holds X on its own path and IX on every ancestor. X goes with nothing, IX with IX: so a child's action
excludes its parent's and the other way round, while siblings run side by side. Nobody ever waits for a lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from domain.paths import ancestors


class Mode(StrEnum):
    X = "X"
    IX = "IX"


COMPATIBLE: frozenset[tuple[Mode, Mode]] = frozenset({(Mode.IX, Mode.IX)})


@dataclass(frozen=True)
class Hold:
    """A lock that an action holds: who, on what, doing what, since when."""

    path: str
    mode: Mode
    owner: str
    run: str
    action: str
    since: datetime


def wanted(paths: Iterable[str]) -> dict[str, Mode]:
    """What an action on these paths must hold, in the one order in which everybody acquires it."""
    modes: dict[str, Mode] = {}
    for path in paths:
        for above in ancestors(path):
            modes.setdefault(above, Mode.IX)
        modes[path] = Mode.X
    return dict(sorted(modes.items()))


def conflicts(want: Mapping[str, Mode], held: Iterable[Hold]) -> list[Hold]:
    """The holds that stand in the way."""
    return [hold for hold in held if hold.path in want and (want[hold.path], hold.mode) not in COMPATIBLE]
