"""The snapshots of a machine in a hypervisor's ledger, oldest first, as the text of one column."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import TypeAdapter

from domain.errors import Rejected
from domain.machines.ports import HypervisorOrder, MachineSnapshot
from domain.message import FrozenModel

NO_SNAPSHOTS = "[]"


class LedgerSnapshot(FrozenModel):
    """A snapshot as the ledger stores it.

    The tag is its name in disk files. It has the epoch, as a disk that was detached keeps the tags of its time: a later
    snapshot of the same name must not meet them. `in_doubt`: an order that makes or deletes it is under way, or was cut
    off.
    """

    name: str
    tag: str
    memory: bool
    disks: tuple[str, ...]
    in_doubt: bool = False

    def to_facts(self) -> MachineSnapshot:
        return MachineSnapshot(self.name, self.memory, self.disks)


_LIST = TypeAdapter(list[LedgerSnapshot])


def parse_snapshots(column: str) -> list[LedgerSnapshot]:
    """Reads the column."""
    return _LIST.validate_json(column)


def format_snapshots(snapshots: Sequence[LedgerSnapshot]) -> str:
    """Writes the column."""
    return _LIST.dump_json(list(snapshots)).decode()


def doubt_snapshot(column: str, name: str) -> str:
    """Returns the column with the snapshot of this name in doubt."""
    return format_snapshots(
        [
            snapshot.model_copy(update={"in_doubt": snapshot.in_doubt or snapshot.name == name})
            for snapshot in parse_snapshots(column)
        ]
    )


def add_snapshot(column: str, order: HypervisorOrder, memory: bool, disks: Sequence[str]) -> str:
    """Returns the column with a new snapshot; unchanged if an earlier try of the order has added it."""
    name = str(order.spec.get("snapshot", ""))
    new = LedgerSnapshot(name=name, tag=f"{name}@{order.epoch}", memory=memory, disks=tuple(disks))
    known = {snapshot.name: snapshot for snapshot in parse_snapshots(column)}
    if known.get(name, new).tag != new.tag:
        raise Rejected(f"{order.path} has a snapshot {name} already")
    return format_snapshots(list((known | {name: new}).values()))


def check_rollback(column: str, order: HypervisorOrder, runs: bool, disks: Sequence[str]) -> None:
    """Refuses a rollback of a machine that has other disks now, or that runs and has no memory to go on with."""
    name = order.spec.get("snapshot", "")
    snapshot = next((snapshot for snapshot in parse_snapshots(column) if snapshot.name == name), None)
    if snapshot is None:
        raise Rejected(f"{order.path} has no snapshot {name}")
    if runs and not snapshot.memory:
        raise Rejected(f"cannot rollback {order.path}: the snapshot {snapshot.name} is of the stopped machine")
    if set(snapshot.disks) != set(disks):
        raise Rejected(f"cannot rollback {order.path}: the snapshot {snapshot.name} is of other disks")


def remove_snapshot(column: str, name: str) -> str:
    """Returns the column without the snapshot of this name."""
    return format_snapshots([snapshot for snapshot in parse_snapshots(column) if snapshot.name != name])
