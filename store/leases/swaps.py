"""Records in the histories of leases which hosts they lost and got because a host failed, recovered or was added."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import sqlalchemy as sa

from domain.errors import join_first_texts
from domain.leases.names import describe_reservation
from domain.model import AT_WRITE_TIME
from domain.paths import name_of, parent_of
from domain.statetable import Actor
from store.clock import resolve_write_time
from store.history import history_line
from store.schema import objects
from store.status import record_lines

SWAP_ACTION = "reallocate"
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


def record_swaps(connection: sa.Connection, swaps: Mapping[str, HostSwap], why: str) -> list[str]:
    """Writes a history line for each lease whose hosts have changed. Returns the changes, as texts."""
    changed = {path: swap.describe() for path, swap in sorted(swaps.items()) if swap.lost or swap.gained}
    if not changed:
        return []
    by_lease: defaultdict[str, list[str]] = defaultdict(list)
    for path, text in changed.items():
        by_lease[parent_of(path) or ""].append(f"{name_of(path)} {text}")
    at = resolve_write_time(connection, AT_WRITE_TIME)
    lines = []
    for lease, status, epoch in connection.execute(_LOCK_LEASES, {"names": list(by_lease)}).all():
        message = f"{why}: {join_first_texts(by_lease[lease])}"
        lines.append(history_line(lease, at, Actor.CONTROLLER, SWAP_ACTION, status, status, epoch, message))
    record_lines(connection, lines)
    return [join_first_texts([f"{describe_reservation(path)} {text}" for path, text in changed.items()])]
