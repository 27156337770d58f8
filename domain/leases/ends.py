"""The results of starting and ending a lease: where its reservations and its event go, and the error messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from domain.errors import join_first, one_line
from domain.leases.messages import LeaseTerms, ReservationWork
from domain.leases.names import event_path
from domain.leases.tables import END, START, EventStatus, ReservationStatus
from domain.model import Done, Grant, Move
from domain.paths import name_of

ReservationErrors = dict[str, str]  # reservation path -> error

ON_HOSTS = ("physical:host", "virtual:instance")  # the types that the Hosts provider hands over
SHOWN = 5  # errors in one message


def terms_of(grant: Grant) -> LeaseTerms:
    """The grant's details."""
    return LeaseTerms.model_validate(grant.details)


def contradictions(grant: Grant) -> str:
    """Returns how the lease's parts contradict its status, if they do; then the action must not continue."""
    return terms_of(grant).contradiction


def to_start(grant: Grant) -> list[ReservationWork]:
    """Returns the reservations that a start has to start; none if the parts contradict the lease."""
    return terms_of(grant).reservations


def to_end(grant: Grant) -> list[ReservationWork]:
    """Returns reservations that may hold something, also ones that have not started, as their record may be wrong."""
    return [work for work in to_start(grant) if work.status != ReservationStatus.DELETED]


def after_first_try(grant: Grant) -> Grant:
    """Returns the grant after a failed quick try of a start or an end: only the slow retries are left."""
    tried = [work.model_copy(update={"tried": True}).model_dump(exclude_unset=True) for work in to_start(grant)]
    return grant.model_copy(update={"details": {**grant.details, "reservations": tried}})


def started(grant: Grant, errors: ReservationErrors) -> Done:
    """Returns the Done of a start: reservations that started stay active even if others failed."""
    work = to_start(grant)
    status = EventStatus.ERROR if len(errors) == len(work) else EventStatus.DONE
    event = Move(path=event_path(grant.path, START), to=status, action="start")
    moves = [_moved(reservation.path, errors, ReservationStatus.ACTIVE) for reservation in work]
    return Done(moves=[*moves, event])


def ended(grant: Grant, errors: ReservationErrors) -> Done:
    """Returns the Done of an end: a reservation that could not be returned has an error, for the next end to retry."""
    event = Move(path=event_path(grant.path, END), to=EventStatus.ERROR if errors else EventStatus.DONE, action="end")
    moves = [_moved(reservation.path, errors, ReservationStatus.DELETED) for reservation in to_end(grant)]
    return Done(moves=[*moves, event])


@dataclass(frozen=True)
class Boundary:
    """What differs between the start and the end of a lease: its reservations, its result, its wording."""

    word: str  # for messages: what happened to a reservation
    work: Callable[[Grant], list[ReservationWork]]
    left: Callable[[Grant, ReservationErrors], Done]


STARTS, ENDS = Boundary("started", to_start, started), Boundary("ended", to_end, ended)


def partial_failure(what: str, errors: ReservationErrors, work: Sequence[ReservationWork]) -> str:
    """Returns why a start or an end failed, as one line."""
    return one_line(f"{len(work) - len(errors)} of {len(work)} reservations {what}: {join_errors(errors)}")


def join_errors(errors: Mapping[str, str]) -> str:
    """Returns the first few errors, as one text."""
    return join_first([f"{name_of(path)}: {error}" for path, error in errors.items()], SHOWN)


def _moved(path: str, errors: ReservationErrors, good: str) -> Move:
    return Move(path=path, to=ReservationStatus.ERROR if path in errors else good, error=errors.get(path, ""))
