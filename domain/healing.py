"""Self-healing: what is looked for, after how long, and what a sweep reports.

An action is dead when its run is closed although the inventory never saw it end. A slow action is alive: it is reported
and left alone, whatever the limits say.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import Field

from domain.model import Model
from domain.paths import kind_of

DEFAULT_LIMIT = 600.0  # seconds
ANY = "*"
FINDINGS_KEPT = 500  # in one report; all are counted


class HealFinding(StrEnum):
    """What a sweep made of a suspect."""

    HEALED = "healed"  # nobody owned it: brought back
    WOULD_HEAL = "would heal"  # the same, in a dry run
    SLOW = "slow"  # over its limit, but its workflow runs: left alone
    ENDED = "ended"  # it came to rest while we looked
    REMOVED = "removed"  # what a creation may have left outside is not there, or not any more
    WOULD_REMOVE = "would remove"  # the same, in a dry run
    STARTED = "started"  # a companion that should live and did not: started again
    WOULD_START = "would start"  # the same, in a dry run
    LEFT = "left"  # the same, but it could not be done now: the next sweep tries again


class Suspect(Model):
    """An action over its limit, or what is left of one: an open record, a lock, or an object that is still moving."""

    path: str
    owner: str
    run: str
    action: str
    since: datetime
    status: str
    epoch: int = 0


class Leftover(Model):
    """An object that did not come into being, as its action was cut off or failed: outside it may be there yet.

    An action that fails brings back what it did, but not if the world outside cannot be reached just then."""

    path: str
    action: str  # the last one that had to do with it
    since: datetime  # nobody has been at it since then
    spec: dict[str, Any] | None = None  # what its removal is told


class HealEntry(Model):
    """One line of a report. `provider` is what the world outside says, where it could be asked."""

    path: str
    action: str
    since: datetime
    status: str
    finding: HealFinding
    to: str = ""
    run: str = ""
    message: str = ""
    provider: str = ""


class Sweep(Model):
    """What a sweep should do. `limits` are seconds by `kind.action`, by `kind`, or for all as `*`."""

    dry_run: bool = False
    at: datetime | None = None  # the workflow's clock; empty in a request
    limits: dict[str, float] | None = None  # instead of the worker's own
    grace: float | None = None  # seconds until leftovers go, instead of the worker's own: its limit, or an order's life


class Pruned(Model):
    """What retention removed from the store, after it was exported."""

    actions: int = 0
    lines: int = 0  # of history
    after: int = 0  # the epoch from which the next sweep goes on; 0: from the oldest
    problem: str = ""


class HealReport(Model):
    """What a sweep found and did."""

    number: int = 0
    at: datetime
    dry_run: bool = False
    looked: int = 0
    counts: dict[str, int] = {}
    found: list[HealEntry] = []
    pruned: Pruned | None = None


class ReportQuery(Model):
    """How many sweeps, the newest first."""

    limit: int = Field(1, ge=1, le=50)


class HealReports(Model):
    """Reports, the newest first."""

    reports: list[HealReport]


def limit_for(limits: Mapping[str, float], path: str, action: str) -> float:
    """Seconds that an action on this object may take before somebody looks at it."""
    kind = kind_of(path)
    for word in (f"{kind}.{action}", kind, ANY):
        if word in limits:
            return limits[word]
    return DEFAULT_LIMIT
