"""Rules of the machine family beyond the state tables: parents, related objects, capacity.

Pure: the hooks read the facts in their transaction, and these functions decide or raise Refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from domain.errors import Category, Refused, join_first
from domain.machines.tables import GONE, IN_BIN, S
from domain.paths import ancestors, kind_of, name_of, short

DAY = 86_400.0

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
_USABLE_MACHINE = (S.RUNNING, S.PAUSED, S.HALTED)
_SHOWN = 5


def account_of(path: str) -> str:
    """Returns the account of an object: the first pair of its path."""
    return ":".join(path.split(":")[:2])


def disk_path(machine: str, disk: str) -> str:
    """Returns the path of a disk in the machine's account."""
    return f"{account_of(machine)}:disk:{disk}"


def machine_path(disk: str, machine: str) -> str:
    """Returns the path of a machine in the disk's account, from `cloudspace/machine`."""
    space, _, name = machine.partition("/")
    return f"{account_of(disk)}:cloudspace:{space}:machine:{name}"


def check_parents(path: str, action: str, statuses: Mapping[str, str]) -> None:
    """Refuses if an ancestor does not exist or is not in use."""
    if action not in _NEED_PARENT and (kind_of(path), action) != _RESTARTS:
        return
    for above in ancestors(path):
        status = statuses.get(above)
        if status is None:
            raise Refused(
                Category.NOT_FOUND, f"there is no such {kind_of(above)}: {above}", f"create it first: {_make(above)}"
            )
        if status != _PARENT_IN_USE[kind_of(above)]:
            raise _refused(f"{action} of {path} is not possible: {above} is {status}", f"see: starter history {above}")


def check_contents(path: str, action: str, cascade: bool, contents: Mapping[str, str]) -> None:
    """Refuses to remove a non-empty object without `cascade`."""
    living = sorted(each for each, status in contents.items() if status not in (*GONE, *IN_BIN))
    if living and not cascade:
        raise _refused(
            f"{action} of {path} is not possible: {join_first(living, _SHOWN, ', ')} live in it",
            "add --cascade to take them along, or take them away first",
        )


def check_image(path: str, status: str | None) -> None:
    """Refuses if machines cannot be created from this image."""
    if status is None:
        raise Refused(Category.NOT_FOUND, f"there is no image {name_of(path)}", f"create it first: {_make(path)}")
    if status != S.CREATED:
        raise _refused(f"{path} is {status}", f"starter image enable {name_of(path)}")


def check_unused(path: str, action: str, users: Iterable[str]) -> None:
    """Refuses if machines were created from this image. Those in the recycle bin count: they can be restored."""
    if machines := sorted(users):
        raise _refused(
            f"{action} of {path} is not possible: it is in use by {join_first(machines, _SHOWN, ', ')}",
            "destroy those first",
        )


def check_node(name: str, status: str | None, room: int, needed: int, here: str = "") -> None:
    """Refuses if a machine cannot be placed on this node."""
    if status is None:
        raise Refused(Category.NOT_FOUND, f"there is no node {name}", "see what there is: starter node list")
    if name == here:
        raise _refused(f"the machine is on node {name} already", "name another one: starter node list")
    if status != S.ENABLED:
        raise _refused(f"node {name} is {status}", "name another one: starter node list")
    if room < needed:
        message = f"node {name} is full: {max(room, 0)} GiB are free, {needed} are needed"
        raise Refused(Category.QUOTA, message, "name another one, or none: the one with most room is taken then")


def check_another_node(name: str, enabled: Iterable[str], what: str) -> None:
    """Refuses if no other enabled node could take the machines."""
    if not [node for node in enabled if node != name]:
        raise _refused(
            f"{what} is not possible: there is no other enabled node", "take one into use: starter node create"
        )


def check_disk(action: str, disk: str, status: str | None, of: str, machine: str) -> None:
    """Refuses if the disk is not in the state that the machine's action needs."""
    if action == "add-disk":
        if status not in (None, *GONE):
            raise _refused(
                f"disk {disk} exists already, under {status}", f"attach it: starter disk attach {short(disk)}"
            )
        return
    if status is None:
        raise Refused(Category.NOT_FOUND, f"there is no such disk: {disk}", f"create it: {_make(disk)}")
    wanted = S.CREATED if action == "attach-disk" else S.ASSIGNED
    if status != wanted:
        where = f", attached to {of}" if of else ""
        raise _refused(f"{action} is not possible: disk {disk} is {status}{where}", f"see: starter history {disk}")
    if action == "detach-disk" and of != machine:
        raise _refused(f"disk {disk} is attached to {of}, not to {machine}", f"starter disk detach {short(disk)}")


def check_machine(action: str, machine: str, status: str | None) -> None:
    """Refuses if the machine cannot attach or detach a disk now."""
    if status is None:
        raise Refused(Category.NOT_FOUND, f"there is no such machine: {machine}", f"create it: {_make(machine)}")
    if status not in _USABLE_MACHINE:
        hint = f"restore it: starter machine restore {short(machine)}" if status == S.DELETED else "try again later"
        raise _refused(f"{action} is not possible: machine {machine} is {status}", hint)


def check_bin(path: str, status: str, kept: Any, number: int) -> None:
    """Refuses if the object was restored or deleted again since this entry: its retention is not over."""
    if status not in IN_BIN or kept != number:
        raise _refused(f"{path} is {status}, not in the recycle bin under number {number}", "nothing needs to be done")


def tenant_of(path: str) -> str:
    """Returns the tenant whose recycle bin an object goes to: its account, or its kind if it has no account."""
    owner = account_of(path)
    return owner if kind_of(owner) == "account" else kind_of(owner)


def until(at: datetime, seconds: float) -> str:
    """Returns when a stay in the recycle bin ends, rounded up to whole seconds."""
    return stamp(datetime.fromtimestamp(math.ceil(at.timestamp() + seconds), UTC))


def stamp(at: datetime) -> str:
    """Returns a moment as the recycle bin stores it: whole seconds in UTC, so that texts sort like times."""
    return at.astimezone(UTC).isoformat(timespec="seconds")


def retention(given: float | None, account: Mapping[str, Any] | None, usual: float) -> float:
    """Returns the seconds in the recycle bin: as requested, or by the account's spec, or the default."""
    days = given if given is not None else (account or {}).get("retention_days", usual)
    return float(days) * DAY


def _make(path: str) -> str:
    return f"starter {kind_of(path)} create {short(path)}"


def _refused(message: str, hint: str) -> Refused:
    return Refused(Category.NOT_ALLOWED, message, hint)
