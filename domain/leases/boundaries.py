"""The results of starting and ending a lease: where its reservations and its event go, and the error messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from domain.errors import format_count, format_one_line, join_first_texts
from domain.leases.messages import HoldingsToReach, LeaseGrantDetails, ReservationWork
from domain.leases.names import event_path
from domain.leases.tables import END, START, EventStatus, ReservationStatus
from domain.model import Grant, Move, WorkReport
from domain.paths import name_of

ReservationErrors = dict[str, str]  # reservation path -> error

HOST_RESOURCE_TYPES = ("physical:host", "virtual:instance")  # the types that the Hosts provider hands over
ERRORS_SHOWN = 5  # errors in one message


def lease_grant_details(grant: Grant) -> LeaseGrantDetails:
    """Parses the details of a lease action's grant."""
    return LeaseGrantDetails.model_validate(grant.details)


def reservations_to_start(grant: Grant) -> list[ReservationWork]:
    """Returns the reservations that a start has to start; none if the parts contradict the lease."""
    return lease_grant_details(grant).reservations


def reservations_to_end(grant: Grant) -> list[ReservationWork]:
    """Returns reservations that may hold something, also ones that have not started, as their record may be wrong."""
    return [work for work in reservations_to_start(grant) if work.status != ReservationStatus.DELETED]


def switch_to_slow_retries(grant: Grant) -> Grant:
    """Returns the grant after a failed quick try of a start or an end: only the slow retries are left."""
    tried = [
        work.model_copy(update={"tried": True}).model_dump(exclude_unset=True) for work in reservations_to_start(grant)
    ]
    return grant.model_copy(update={"details": {**grant.details, "reservations": tried}})


def build_start_report(grant: Grant, errors: ReservationErrors) -> WorkReport:
    """Returns the Done of a start: reservations that started stay active even if others failed."""
    work = reservations_to_start(grant)
    status = EventStatus.ERROR if len(errors) == len(work) else EventStatus.DONE
    event = Move(path=event_path(grant.path, START), to=status, action="start")
    moves = [_reservation_move(reservation.path, errors, ReservationStatus.ACTIVE) for reservation in work]
    return WorkReport(moves=[*moves, event])


def build_end_report(grant: Grant, errors: ReservationErrors) -> WorkReport:
    """Returns the Done of an end: a reservation that could not be returned has an error, for the next end to retry."""
    event = Move(path=event_path(grant.path, END), to=EventStatus.ERROR if errors else EventStatus.DONE, action="end")
    moves = [
        _reservation_move(reservation.path, errors, ReservationStatus.DELETED)
        for reservation in reservations_to_end(grant)
    ]
    return WorkReport(moves=[*moves, event])


@dataclass(frozen=True)
class BoundaryRules:
    """What differs between the start and the end of a lease: its reservations, its result, its wording."""

    past_participle: str  # for messages: what happened to a reservation
    list_reservations: Callable[[Grant], list[ReservationWork]]
    make_report: Callable[[Grant, ReservationErrors], WorkReport]
    want: HoldingsToReach  # of reservations on hosts


START_BOUNDARY, END_BOUNDARY = (
    BoundaryRules("started", reservations_to_start, build_start_report, HoldingsToReach.ALL),
    BoundaryRules("ended", reservations_to_end, build_end_report, HoldingsToReach.NOTHING),
)


def describe_partial_failure(what: str, errors: ReservationErrors, work: Sequence[ReservationWork]) -> str:
    """Returns why a start or an end failed, as one line."""
    return format_one_line(
        f"{len(work) - len(errors)} of {format_count(len(work), 'reservation')} {what}: {join_first_errors(errors)}"
    )


def join_first_errors(errors: Mapping[str, str]) -> str:
    """Returns the first few errors, as one text."""
    return join_first_texts([f"{name_of(path)}: {error}" for path, error in errors.items()], ERRORS_SHOWN)


def _reservation_move(path: str, errors: ReservationErrors, good: str) -> Move:
    return Move(path=path, to=ReservationStatus.ERROR if path in errors else good, error=errors.get(path, ""))
