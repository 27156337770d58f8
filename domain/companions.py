"""Companions: long-running workflows beside objects, such as lease clocks and CRM links.

The stored objects decide which companions should run. A family declares each type of companion in one `CompanionType`;
sweeps and starting workers start the missing ones, and `verify` reports them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from domain.model import FrozenModel

OVERDUE_AFTER = timedelta(minutes=10)  # grace period: a younger event may still be under way, or wait for a busy object


@dataclass(frozen=True, slots=True)
class Companion:
    """One companion workflow that should be running."""

    id: str
    path: str  # what it serves: an object, a pool, a tenant
    start_input: FrozenModel  # the argument of its start
    due: datetime | None = None  # its next event, if it has a timer


@dataclass(frozen=True)
class CompanionType:
    """The declaration of one type of companion by its family."""

    workflow: str  # the workflow type
    title: str  # in reports: `lease clock`
    list_expected: Callable[[], AsyncIterator[Companion]]  # all that should run, by what is stored
    wake_signal: str = ""  # the signal that makes a companion read the store again
    list_overdue_violations: Callable[[str, datetime], Awaitable[Mapping[str, str]]] | None = None
    # (path, moment) -> events at or below the path that were due before the moment: path -> since when, as text.
