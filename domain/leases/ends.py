"""What a start and an end of a lease leave behind: where its reservations and its event go, and what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from domain.errors import brief, several
from domain.leases.names import event_path
from domain.leases.tables import END, START, Event, Reservation
from domain.model import Done, Grant, Move
from domain.paths import name_of

Work = dict[str, Any]  # a reservation: its path, its type, and what that type needs
Errors = dict[str, str]  # by reservation: what went wrong

ON_HOSTS = ("physical:host", "virtual:instance")  # what is handed over by whoever has the hosts
TRIED = "tried"  # of a reservation: it has been tried quickly
SHOWN = 5  # errors that a message tells


def in_doubt(grant: Grant) -> str:
    """How its parts contradict a lease, if they do: then it must not go on."""
    return str(grant.details.get("contradiction", ""))


def to_start(grant: Grant) -> list[Work]:
    """The reservations that a start is about; none if its parts contradict the lease."""
    return list(grant.details.get("reservations", ()))


def to_end(grant: Grant) -> list[Work]:
    """Reservations that hold something, or may: even one that has not started, if its records were wrong."""
    return [each for each in to_start(grant) if each["status"] != Reservation.DELETED]


def tried(grant: Grant) -> Grant:
    """The grant of a start or an end that could not be done at once: it needs patience, not another quick try."""
    work = [{**each, TRIED: True} for each in to_start(grant)]
    return grant.model_copy(update={"details": {**grant.details, "reservations": work}})


def started(grant: Grant, errors: Errors) -> Done:
    """Those that started stay active, whatever became of the others."""
    work = to_start(grant)
    status = Event.ERROR if len(errors) == len(work) else Event.DONE
    event = Move(path=event_path(grant.path, START), to=status, action="start")
    moves = [_moved(each["path"], errors, Reservation.ACTIVE) for each in work]
    return Done(moves=[*moves, event])


def ended(grant: Grant, errors: Errors) -> Done:
    """What could not be given back has an error, and the next end tries it again."""
    event = Move(path=event_path(grant.path, END), to=Event.ERROR if errors else Event.DONE, action="end")
    moves = [_moved(each["path"], errors, Reservation.DELETED) for each in to_end(grant)]
    return Done(moves=[*moves, event])


@dataclass(frozen=True)
class Boundary:
    """The start or the end of a lease's term."""

    word: str  # what became of a reservation
    work: Callable[[Grant], list[Work]]
    left: Callable[[Grant, Errors], Done]


STARTS, ENDS = Boundary("started", to_start, started), Boundary("ended", to_end, ended)


def partly(what: str, errors: Errors, work: Sequence[Work]) -> str:
    """Why a start or an end failed."""
    return brief(f"{len(work) - len(errors)} of {len(work)} reservations {what}: {listed(errors)}")


def listed(errors: Mapping[str, str]) -> str:
    """Errors in words: the first few of them."""
    return several([f"{name_of(path)}: {error}" for path, error in errors.items()], SHOWN)


def _moved(path: str, errors: Errors, good: str) -> Move:
    return Move(path=path, to=Reservation.ERROR if path in errors else good, error=errors.get(path, ""))
