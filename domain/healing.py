"""Self-healing: what a sweep looks for, after how long, and what it reports.

An action is dead when its workflow run is closed although the inventory has no end for it. A slow action is alive: a
sweep reports it and leaves it alone, whatever the limits say.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar

from pydantic import Field

from domain.model import FrozenModel, SignedMessage
from domain.paths import kind_of

DEFAULT_LIMIT_SECONDS = 600.0  # seconds
ANY_ACTION = "*"
MAX_FINDINGS_REPORTED = 500  # in one report; all are counted


class HealFinding(StrEnum):
    """What a sweep concluded about a suspect, a leftover or a companion."""

    HEALED = "healed"  # its action was dead: the object was brought back to rest
    WOULD_HEAL = "would heal"  # the same, in a dry run
    SLOW = "slow"  # over its limit, but its workflow still runs: left alone
    PAUSED = "paused"  # over its limit; somebody paused its workflow in Temporal: left alone
    WAITING = "waiting"  # over its limit; it waits for a person's decision: left alone
    ENDED = "ended"  # it came to rest during the sweep
    REMOVED = "removed"  # a leftover is not, or no longer, at the provider
    WOULD_REMOVE = "would remove"  # the same, in a dry run
    CANCELLED = "cancelled"  # its action had ended in the inventory, but its workflow ran: asked to cancel
    WOULD_CANCEL = "would cancel"  # the same, in a dry run
    STARTED = "started"  # a companion that should run did not: started again
    WOULD_START = "would start"  # the same, in a dry run
    LEFT = "left"  # it could not be healed, removed or started now: the next sweep tries again


class StuckItem(FrozenModel):
    """An action over its limit, or what a dead action left: an open record, a lock, or an object in transition."""

    path: str
    owner: str
    run: str
    action: str
    since: datetime
    status: str
    epoch: int = 0


class OpenRun(FrozenModel):
    """A run of an action that is open in Temporal."""

    run: str
    started: datetime


class Leftover(FrozenModel):
    """An object whose creation was cut off or failed, so that it may still exist at the provider.

    A failed action removes what it made, unless the provider could not be reached at that moment.
    """

    path: str
    action: str  # the last action on it
    since: datetime  # no action has touched it since then
    spec: dict[str, Any] | None = None  # the spec for the action that removes it


class HealEntry(FrozenModel):
    """One line of a sweep's report. `provider` is the object's state at the provider, if it could be read."""

    path: str
    action: str
    since: datetime
    status: str
    finding: HealFinding
    to: str = ""
    run: str = ""
    message: str = ""
    provider: str = ""


class SweepOptions(SignedMessage):
    """Options of one sweep. `limits` are seconds by `kind.action`, by `kind`, or for all as `*`."""

    unsigned: ClassVar[frozenset[str]] = frozenset({"at"})

    dry_run: bool = False
    at: datetime | None = None  # the workflow's clock; empty in a request
    limits: dict[str, float] | None = None  # instead of the worker's own
    grace: float | None = None  # seconds until leftovers are removed, instead of the worker's own

    def verb_to_authorize(self, verb: str) -> str:
        """Returns no verb for a sweep with the worker's own limits: the schedule makes those, so anybody may."""
        return verb if self.limits is not None or self.grace is not None else ""


class PruneResult(FrozenModel):
    """How much retention exported and removed from the store."""

    actions: int = 0
    lines: int = 0  # of history
    after: int = 0  # the epoch at which the next sweep continues; 0: at the oldest
    problem: str = ""


class HealReport(FrozenModel):
    """The report of one sweep: what it found and did."""

    number: int = 0
    at: datetime
    dry_run: bool = False
    looked: int = 0
    counts: dict[str, int] = {}
    found: list[HealEntry] = []
    pruned: PruneResult | None = None


class HealReportsQuery(SignedMessage):
    """Asks for the reports of the newest sweeps; `limit` says how many."""

    limit: int = Field(1, ge=1, le=50)


class HealReports(FrozenModel):
    """Reports of sweeps, newest first."""

    reports: list[HealReport]


def action_limit_seconds(limits: Mapping[str, float], path: str, action: str) -> float:
    """Returns how many seconds an action on this object may take before a sweep reports it."""
    kind = kind_of(path)
    for word in (f"{kind}.{action}", kind, ANY_ACTION):
        if word in limits:
            return limits[word]
    return DEFAULT_LIMIT_SECONDS
