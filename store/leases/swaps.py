"""Records in the histories of leases which hosts they lost and got because a host failed, recovered or was added."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice

import sqlalchemy as sa

from domain.errors import join_first_texts
from domain.paths import name_of, parent_of
from domain.statetable import Actor
from store.history import history_line
from store.schema import objects
from store.status import record_lines

SWAP_ACTION = "reallocate"
MAX_LEASES = 1_000  # of one host: their texts travel with the grant
_LOCK_LEASES = (
    sa.select(objects.c.path, objects.c.status, objects.c.epoch)
    .where(objects.c.path.in_(sa.bindparam("names", expanding=True)))
    .order_by(objects.c.path)
    .with_for_update()  # no other line of the lease comes between its status and this line
)


@dataclass
class HostSwap:
    """The hosts that a reservation has lost and got, by name."""

    lost: dict[str, int] = field(default_factory=dict)
    gained: dict[str, int] = field(default_factory=dict)

    def describe(self) -> str:
        """Returns the old and the new hosts as text."""
        lost, gained = ", ".join(map(name_of, self.lost)), ", ".join(map(name_of, self.gained))
        if not lost:
            return f"got {gained}"
        return f"lost {lost}, got {gained}" if gained else f"lost {lost}: no other host is left"


HostSwaps = defaultdict[str, HostSwap]  # by reservation


def describe_swaps_by_lease(swaps: Mapping[str, HostSwap]) -> dict[str, str]:
    """Returns what the leases have lost and got, for their histories."""
    by_lease: defaultdict[str, list[str]] = defaultdict(list)
    for path, swap in sorted(swaps.items()):
        if swap.lost or swap.gained:
            by_lease[parent_of(path) or ""].append(f"{name_of(path)} {swap.describe()}")
    return {lease: join_first_texts(texts) for lease, texts in islice(by_lease.items(), MAX_LEASES)}


def record_host_swaps(connection: sa.Connection, texts: Mapping[str, str], why: str, at: datetime) -> None:
    """Writes a history line for each lease whose hosts have changed.

    It is called when the host's action ends: when it begins it holds the lock of the pool, for which actions on leases
    wait while they hold their leases.
    """
    lines = []
    for lease, status, epoch in connection.execute(_LOCK_LEASES, {"names": list(texts)}) if texts else ():
        message = f"{why}: {texts[lease]}"
        lines.append(history_line(lease, at, Actor.CONTROLLER, SWAP_ACTION, status, status, epoch, message))
    record_lines(connection, lines)
