"""Companions are workflows that live beside objects, such as clocks and links, and are known as data.

Which of them should live follows from what is stored. A family declares each of its sorts in one row; sweeps and
starting workers start those that are missing, and `verify` names them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from domain.model import Model

OVERDUE = timedelta(minutes=10)  # until then an event that is due may be on its way, or its object busy


@dataclass(frozen=True, slots=True)
class Companion:
    """One that should live."""

    id: str
    path: str  # what it lives for: an object, a pool, a tenant
    start: Model  # the argument that it is started with
    due: datetime | None = None  # its next event, if it has a timer


@dataclass(frozen=True)
class CompanionRow:
    """One sort of companions, as its family declares it."""

    workflow: str  # its type
    title: str  # in reports: `lease clock`
    expected: Callable[[], AsyncIterator[Companion]]  # all that should live, by what is stored
    wake: str = ""  # the signal that makes one look again
    overdue: Callable[[str, datetime], Awaitable[Mapping[str, str]]] | None = None
    # What at or below a path was due before a moment and has not happened: path -> since when, in words.
