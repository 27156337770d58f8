"""Queries about the VMs of an MCI or of one subgroup."""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy as sa

from domain.mci.specs import MciSpec
from domain.mci.tables import MCI, VM
from domain.paths import name_of
from store.schema import history, objects, pruned


class PlacedVm(NamedTuple):
    """A VM: where it is, and how."""

    path: str
    placement: str
    status: str


_LOCK_VMS = (  # by a path range: by parent, SQLite would read all VMs for their order
    sa.select(objects.c.path, objects.c.placement, objects.c.status)
    .where(objects.c.kind == VM.kind, objects.c.path > sa.bindparam("first"), objects.c.path < sa.bindparam("last"))
    .order_by(objects.c.path)
    .with_for_update()
)
_COUNT_VMS = sa.select(sa.func.count()).where(objects.c.parent == sa.bindparam("which"), objects.c.kind == VM.kind)
_SELECT_SPEC = sa.select(objects.c.spec).where(objects.c.path == sa.bindparam("which"), objects.c.kind == MCI.kind)


def count_vms(connection: sa.Connection, path: str) -> int:
    """Returns how many VMs an MCI has."""
    return int(connection.execute(_COUNT_VMS, {"which": path}).scalar_one())


def place_of_group(connection: sa.Connection, path: str, group: str) -> str:
    """Returns the place of a subgroup's VMs; empty if there is no such MCI or subgroup."""
    spec = connection.execute(_SELECT_SPEC, {"which": path}).scalar()
    groups = MciSpec.model_validate(spec).subGroups if spec else []
    return next((each.place for each in groups if each.name == group), "")


def lock_vms_of_group(connection: sa.Connection, path: str, group: str) -> list[PlacedVm]:
    """Locks and returns the VMs of a subgroup, ordered by number."""
    rows = [PlacedVm(*row) for row in connection.execute(_LOCK_VMS, {"first": f"{path}:", "last": f"{path};"})]
    found = [row for row in rows if name_of(row.path).rpartition("-")[0] == group]
    return sorted(found, key=lambda row: vm_number_in_name(row.path, group))


def highest_vm_number_ever(connection: sa.Connection, path: str, group: str) -> int:
    """Returns the highest number that a VM of the subgroup ever had, from its history."""
    first, last = f"{path}:vm:{group}-", f"{path}:vm:{group}-:"  # ':' sorts after the digits
    seen = sa.union(
        *(sa.select(each.c.path).where(each.c.path >= first, each.c.path < last) for each in (history, pruned))
    )
    return max((vm_number_in_name(found, group) for found in connection.execute(seen).scalars()), default=0)


def vm_number_in_name(path: str, group: str) -> int:
    """Returns the number in a VM's name, or 0."""
    number = name_of(path).removeprefix(f"{group}-")
    return int(number) if number.isdigit() else 0
