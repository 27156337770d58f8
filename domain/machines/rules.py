"""Rules of the machine family beyond the state tables: parents, related objects, capacity.

Pure: the hooks read the facts in their transaction, and these functions decide or raise Refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from domain.errors import Category, Refused, format_count, join_first_texts
from domain.machines.tables import BIN_STATUSES, GONE_STATUSES, S
from domain.paths import ancestor_paths, kind_of, name_of, root_of, short_path

DAY_SECONDS = 86_400.0

# Actions that bring an object into use need all its ancestors to be in use.
_NEED_PARENT = (
    "create",
    "deploy",
    "start",
    "restore",
    "enable",
    "resume",
    "assign",
    "attach",
    "add-disk",
    "attach-disk",
)
_RESTARTS = ("cloudspace", "reset")  # it also ends a pause, which the account may have ordered
_PARENT_IN_USE = {"account": S.CONFIRMED, "cloudspace": S.DEPLOYED}
_USABLE_MACHINE_STATUSES = (S.RUNNING, S.PAUSED, S.HALTED)
_NAMES_SHOWN = 5
MAX_SNAPSHOTS = 32  # of one machine


def disk_path(machine: str, disk: str) -> str:
    """Returns the path of a disk in the machine's account."""
    return f"{root_of(machine)}:disk:{disk}"


def machine_path(disk: str, machine: str) -> str:
    """Returns the path of a machine in the disk's account, from `cloudspace/machine`."""
    space, _, name = machine.partition("/")
    return f"{root_of(disk)}:cloudspace:{space}:machine:{name}"


def check_ancestors_in_use(path: str, action: str, statuses: Mapping[str, str]) -> None:
    """Refuses if an ancestor does not exist or is not in use."""
    if action not in _NEED_PARENT and (kind_of(path), action) != _RESTARTS:
        return
    for above in ancestor_paths(path):
        status = statuses.get(above)
        if status is None:
            raise Refused(
                Category.NOT_FOUND,
                f"there is no such {kind_of(above)}: {above}",
                f"create it first: {_creation_command(above)}",
            )
        if status != _PARENT_IN_USE[kind_of(above)]:
            raise _not_allowed_refusal(
                f"{action} of {path} is not possible: {above} is {status}", f"see: starter history {above}"
            )


def check_empty_or_cascade(path: str, action: str, cascade: bool, contents: Mapping[str, str]) -> None:
    """Refuses to remove a non-empty object without `cascade`."""
    living = sorted(each for each, status in contents.items() if status not in (*GONE_STATUSES, *BIN_STATUSES))
    if living and not cascade:
        raise _not_allowed_refusal(
            f"{action} of {path} is not possible: {join_first_texts(living, _NAMES_SHOWN, ', ')} live in it",
            "add --cascade to take them along, or take them away first",
        )


def check_image_usable(path: str, status: str | None) -> None:
    """Refuses if machines cannot be created from this image."""
    if status is None:
        raise Refused(
            Category.NOT_FOUND, f"there is no image {name_of(path)}", f"create it first: {_creation_command(path)}"
        )
    if status != S.CREATED:
        raise _not_allowed_refusal(f"{path} is {status}", f"starter image enable {name_of(path)}")


def check_image_unused(path: str, action: str, users: Iterable[str]) -> None:
    """Refuses if machines were created from this image. Those in the recycle bin count: they can be restored."""
    if machines := sorted(users):
        raise _not_allowed_refusal(
            f"{action} of {path} is not possible: it is in use by {join_first_texts(machines, _NAMES_SHOWN, ', ')}",
            "destroy those first",
        )


def check_node_has_room(name: str, status: str | None, room: int, needed: int, here: str = "") -> None:
    """Refuses if a machine cannot be placed on this node."""
    if status is None:
        raise Refused(Category.NOT_FOUND, f"there is no node {name}", "see what there is: starter node list")
    if name == here:
        raise _not_allowed_refusal(f"the machine is on node {name} already", "name another one: starter node list")
    if status != S.ENABLED:
        raise _not_allowed_refusal(f"node {name} is {status}", "name another one: starter node list")
    if room < needed:
        message = f"node {name} is full: {max(room, 0)} GiB are free, {needed} are needed"
        raise Refused(Category.QUOTA, message, "name another one, or none: the one with most room is taken then")


def check_another_node_enabled(name: str, enabled: Iterable[str], what: str) -> None:
    """Refuses if no other enabled node could take the machines."""
    if not [node for node in enabled if node != name]:
        raise _not_allowed_refusal(
            f"{what} is not possible: there is no other enabled node", "take one into use: starter node create NAME"
        )


def check_machines_have_room(node: str, machines: Mapping[str, int], rooms: Iterable[int]) -> None:
    """Refuses if the running machines of a node do not fit on the others; both in GiB. Largest machines go first."""
    left = sorted(machines.items(), key=lambda machine: (-machine[1], machine[0]))
    for room in rooms:
        if not left:
            return
        kept = []
        for path, memory in left:
            if memory <= room:
                room -= memory
            else:
                kept.append((path, memory))
        left = kept
    if left:
        names = join_first_texts([f"{short_path(path)} ({memory} GiB)" for path, memory in left], _NAMES_SHOWN, ", ")
        running = format_count(len(machines), "running machine")
        raise _not_allowed_refusal(
            f"no other node has room for {len(left)} of {running} of node {node}: {names}",
            f"stop what cannot move: starter node maintain {node} --mode move-or-stop; or stop all: --mode stop",
        )


def check_disk_for_machine(action: str, disk: str, status: str | None, of: str, machine: str) -> None:
    """Refuses if the disk is not in the state that the machine's action needs."""
    if action == "add-disk":
        if status not in (None, *GONE_STATUSES):
            raise _not_allowed_refusal(
                f"disk {disk} exists already, under {status}",
                f"attach it: starter machine attach-disk {short_path(machine)} --disk {name_of(disk)}",
            )
        return
    if status is None:
        raise Refused(Category.NOT_FOUND, f"there is no such disk: {disk}", f"create it: {_creation_command(disk)}")
    wanted = S.CREATED if action == "attach-disk" else S.ASSIGNED
    if status != wanted:
        where = f", attached to {of}" if of else ""
        raise _not_allowed_refusal(
            f"{action} is not possible: disk {disk} is {status}{where}", f"see: starter history {disk}"
        )
    if action == "detach-disk" and of != machine:
        raise _not_allowed_refusal(
            f"disk {disk} is attached to {of}, not to {machine}", f"starter disk detach {short_path(disk)}"
        )


def check_machine_for_disk(action: str, machine: str, status: str | None) -> None:
    """Refuses if the machine cannot attach or detach a disk now."""
    if status is None:
        raise Refused(
            Category.NOT_FOUND, f"there is no such machine: {machine}", f"create it: {_creation_command(machine)}"
        )
    if status not in _USABLE_MACHINE_STATUSES:
        hint = (
            f"restore it: starter machine restore {short_path(machine)}" if status == S.DELETED else "try again later"
        )
        raise _not_allowed_refusal(f"{action} is not possible: machine {machine} is {status}", hint)


def check_snapshot(
    action: str, machine: str, status: str, name: str, known: Mapping[str, Mapping[str, Any]], attached: Iterable[str]
) -> None:
    """Refuses a snapshot whose name is taken; and to use one that is not there, or does not fit the machine now."""
    if action == "snapshot":
        _check_new_snapshot(machine, name, known)
    elif name not in known:
        raise Refused(
            Category.NOT_FOUND, f"machine {machine} has no snapshot {name}", f"see those it has: starter get {machine}"
        )
    elif action == "rollback":
        _check_rollback(machine, status, name, known[name], attached)


def _check_new_snapshot(machine: str, name: str, known: Mapping[str, Mapping[str, Any]]) -> None:
    if name in known:
        raise _not_allowed_refusal(
            f"machine {machine} has a snapshot {name} already",
            f"delete it: starter machine delete-snapshot {short_path(machine)} --snapshot {name}; or name another",
        )
    if len(known) >= MAX_SNAPSHOTS:
        raise Refused(
            Category.QUOTA,
            f"machine {machine} has {MAX_SNAPSHOTS} snapshots, which is the most",
            f"delete one: starter machine delete-snapshot {short_path(machine)} --snapshot {next(iter(known))}",
        )


def _check_rollback(machine: str, status: str, name: str, snapshot: Mapping[str, Any], attached: Iterable[str]) -> None:
    if status != S.HALTED and not snapshot["memory"]:
        raise _not_allowed_refusal(
            f"the snapshot {name} is of {machine} when it was halted: it has no memory to go on with",
            f"stop it first: starter machine stop {short_path(machine)}",
        )
    if differing := sorted(set(snapshot["disks"]) ^ {name_of(disk) for disk in attached}):
        raise _not_allowed_refusal(
            f"the snapshot {name} is of {machine} with other disks: {join_first_texts(differing, _NAMES_SHOWN, ', ')}",
            f"see its disks then: starter get {machine}",
        )


def check_still_in_bin(path: str, status: str, kept: Any, number: int) -> None:
    """Refuses unless the object is still in the recycle bin under this number: one that was restored, or deleted again,
    has its own retention."""
    if status not in BIN_STATUSES or kept != number:
        raise _not_allowed_refusal(
            f"{path} is {status}, not in the recycle bin under number {number}", "nothing needs to be done"
        )


def bin_tenant_of(path: str) -> str:
    """Returns the tenant whose recycle bin an object goes to: its account, or its kind if it has no account."""
    owner = root_of(path)
    return owner if kind_of(owner) == "account" else kind_of(owner)


def bin_retention_end(at: datetime, seconds: float) -> str:
    """Returns when a stay in the recycle bin ends, rounded up to whole seconds."""
    return format_sortable_time(datetime.fromtimestamp(math.ceil(at.timestamp() + seconds), UTC))


def format_sortable_time(at: datetime) -> str:
    """Returns a moment as the recycle bin stores it: whole seconds in UTC, so that texts sort like times."""
    return at.astimezone(UTC).isoformat(timespec="seconds")


def retention_seconds(given: float | None, account: Mapping[str, Any] | None, usual: float) -> float:
    """Returns the seconds in the recycle bin: as requested, or by the account's spec, or the default."""
    days = given if given is not None else (account or {}).get("retention_days", usual)
    return float(days) * DAY_SECONDS


def _creation_command(path: str) -> str:
    image = " --image IMAGE, see: starter image list" if kind_of(path) == "machine" else ""
    return f"starter {kind_of(path)} create {short_path(path)}{image}"


def _not_allowed_refusal(message: str, hint: str) -> Refused:
    return Refused(Category.NOT_ALLOWED, message, hint)
