"""What a start and an end of a lease leave behind: where its reservations and its event go, and what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from domain.errors import join_first, one_line
from domain.leases.names import event_path
from domain.leases.tables import END, START, EventStatus, ReservationStatus
from domain.model import Done, Grant, Move
from domain.paths import name_of

ReservationWork = dict[str, Any]  # a reservation: its path, its type, and what that type needs
ReservationErrors = dict[str, str]  # by reservation: what went wrong

ON_HOSTS = ("physical:host", "virtual:instance")  # what is handed over by whoever has the hosts
TRIED = "tried"  # of a reservation: it has been tried quickly
SHOWN = 5  # errors that a message tells


def contradictions(grant: Grant) -> str:
    """How its parts contradict a lease, if they do: then it must not go on."""
    return str(grant.details.get("contradiction", ""))


def to_start(grant: Grant) -> list[ReservationWork]:
    """The reservations that a start is about; none if its parts contradict the lease."""
    return list(grant.details.get("reservations", ()))


def to_end(grant: Grant) -> list[ReservationWork]:
    """Reservations that hold something, or may: even one that has not started, if its records were wrong."""
    return [each for each in to_start(grant) if each["status"] != ReservationStatus.DELETED]


def after_first_try(grant: Grant) -> Grant:
    """The grant of a start or an end that could not be done at once: it needs patience, not another quick try."""
    work = [{**each, TRIED: True} for each in to_start(grant)]
    return grant.model_copy(update={"details": {**grant.details, "reservations": work}})


def started(grant: Grant, errors: ReservationErrors) -> Done:
    """Those that started stay active, whatever became of the others."""
    work = to_start(grant)
    status = EventStatus.ERROR if len(errors) == len(work) else EventStatus.DONE
    event = Move(path=event_path(grant.path, START), to=status, action="start")
    moves = [_moved(each["path"], errors, ReservationStatus.ACTIVE) for each in work]
    return Done(moves=[*moves, event])


def ended(grant: Grant, errors: ReservationErrors) -> Done:
    """What could not be given back has an error, and the next end tries it again."""
    event = Move(path=event_path(grant.path, END), to=EventStatus.ERROR if errors else EventStatus.DONE, action="end")
    moves = [_moved(each["path"], errors, ReservationStatus.DELETED) for each in to_end(grant)]
    return Done(moves=[*moves, event])


@dataclass(frozen=True)
class Boundary:
    """The start or the end of a lease's term."""

    word: str  # what became of a reservation
    work: Callable[[Grant], list[ReservationWork]]
    left: Callable[[Grant, ReservationErrors], Done]


STARTS, ENDS = Boundary("started", to_start, started), Boundary("ended", to_end, ended)


def partial_failure(what: str, errors: ReservationErrors, work: Sequence[ReservationWork]) -> str:
    """Why a start or an end failed."""
    return one_line(f"{len(work) - len(errors)} of {len(work)} reservations {what}: {join_errors(errors)}")


def join_errors(errors: Mapping[str, str]) -> str:
    """Errors in words: the first few of them."""
    return join_first([f"{name_of(path)}: {error}" for path, error in errors.items()], SHOWN)


def _moved(path: str, errors: ReservationErrors, good: str) -> Move:
    return Move(path=path, to=ReservationStatus.ERROR if path in errors else good, error=errors.get(path, ""))
