"""What the tables cannot say: parents, neighbours, room. Pure: a rider brings the facts, these decide or refuse."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from domain.errors import Category, Refused, join_first
from domain.machines.tables import GONE, IN_BIN, S
from domain.paths import ancestors, kind_of, name_of, short

DAY = 86_400.0

# Actions that bring something into use need everything above it to be in use.
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
_RESTARTS = ("cloudspace", "reset")  # also out of a pause, which the account may have ordered
_PARENT_IN_USE = {"account": S.CONFIRMED, "cloudspace": S.DEPLOYED}
_USABLE_MACHINE = (S.RUNNING, S.PAUSED, S.HALTED)
_SHOWN = 5


def account_of(path: str) -> str:
    """The account that an object belongs to: the first pair of its path."""
    return ":".join(path.split(":")[:2])


def disk_path(machine: str, disk: str) -> str:
    """A disk of the machine's account, by its name."""
    return f"{account_of(machine)}:disk:{disk}"


def machine_path(disk: str, machine: str) -> str:
    """A machine of the disk's account, by `cloudspace/machine`."""
    space, _, name = machine.partition("/")
    return f"{account_of(disk)}:cloudspace:{space}:machine:{name}"


def check_parents(path: str, action: str, statuses: Mapping[str, str]) -> None:
    """Refused if something above is not there, or not in use."""
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
    """Refused if something lives in what is to go, unless all of it is meant."""
    living = sorted(each for each, status in contents.items() if status not in (*GONE, *IN_BIN))
    if living and not cascade:
        raise _refused(
            f"{action} of {path} is not possible: {join_first(living, _SHOWN, ', ')} live in it",
            "add --cascade to take them along, or take them away first",
        )


def check_image(path: str, status: str | None) -> None:
    """Refused if machines cannot be made from it."""
    if status is None:
        raise Refused(Category.NOT_FOUND, f"there is no image {name_of(path)}", f"create it first: {_make(path)}")
    if status != S.CREATED:
        raise _refused(f"{path} is {status}", f"starter image enable {name_of(path)}")


def check_unused(path: str, action: str, users: Iterable[str]) -> None:
    """Refused if machines were made from this image; those in the recycle bin count, they may come back."""
    if found := sorted(users):
        raise _refused(
            f"{action} of {path} is not possible: it is in use by {join_first(found, _SHOWN, ', ')}",
            "destroy those first",
        )


def check_node(name: str, status: str | None, room: int, needed: int, here: str = "") -> None:
    """Refused if a machine cannot go to this node."""
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
    """Refused if there is no other node in use to take machines."""
    if not [each for each in enabled if each != name]:
        raise _refused(
            f"{what} is not possible: there is no other enabled node", "take one into use: starter node create"
        )


def check_disk(action: str, disk: str, status: str | None, of: str, machine: str) -> None:
    """Refused if the disk is not as the machine's action needs it."""
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
    """Refused if the machine cannot take or give a disk now."""
    if status is None:
        raise Refused(Category.NOT_FOUND, f"there is no such machine: {machine}", f"create it: {_make(machine)}")
    if status not in _USABLE_MACHINE:
        hint = f"restore it: starter machine restore {short(machine)}" if status == S.DELETED else "try again later"
        raise _refused(f"{action} is not possible: machine {machine} is {status}", hint)


def check_bin(path: str, status: str, kept: Any, number: int) -> None:
    """Refused if it was restored meanwhile, or deleted anew: then its time is not over."""
    if status not in IN_BIN or kept != number:
        raise _refused(f"{path} is {status}, not in the recycle bin under number {number}", "nothing needs to be done")


def tenant_of(path: str) -> str:
    """Whose recycle bin an object goes to: its account's, or the one of its kind if it belongs to none."""
    owner = account_of(path)
    return owner if kind_of(owner) == "account" else kind_of(owner)


def until(at: datetime, seconds: float) -> str:
    """When a stay in the recycle bin is over, rounded up: never a moment too early."""
    return stamp(datetime.fromtimestamp(math.ceil(at.timestamp() + seconds), UTC))


def stamp(at: datetime) -> str:
    """A time as it is kept with what is in the recycle bin: whole seconds in UTC, so that texts sort like times."""
    return at.astimezone(UTC).isoformat(timespec="seconds")


def retention(given: float | None, account: Mapping[str, Any] | None, usual: float) -> float:
    """Seconds in the recycle bin: as said now, or as the account has it, or as usual."""
    days = given if given is not None else (account or {}).get("retention_days", usual)
    return float(days) * DAY


def _make(path: str) -> str:
    return f"starter {kind_of(path)} create {short(path)}"


def _refused(message: str, hint: str) -> Refused:
    return Refused(Category.NOT_ALLOWED, message, hint)
