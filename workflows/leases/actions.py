"""The actions on leases, their events and their hosts: what each does between begin and finish.

The transaction of begin decided what is legal, booked and moved along; the transaction of finish stores what an action
leaves. In between there are only calls to providers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from temporalio import workflow
from temporalio.exceptions import FailureError

with workflow.unsafe.imports_passed_through():
    from domain.errors import format_one_line, join_first_texts
    from domain.leases import boundaries, names
    from domain.leases.boundaries import ReservationErrors
    from domain.leases.messages import HoldingsToReach, ReservationWork
    from domain.leases.names import describe_reservation, event_path
    from domain.leases.tables import LeaseStatus
    from domain.model import Grant, Move, Request, WorkReport
    from domain.paths import short_path
    from domain.statetable import NONE
    from workflows import summary
    from workflows.action import ActionWorkflow, WorkFailed, action_workflow
    from workflows.leases import calls
    from workflows.leases.reservations import end_all_reservations, start_all_reservations

CUT_OFF_MESSAGE = "cut off before it was known what became of it"
ERROR_REPORT = WorkReport(to=LeaseStatus.ERROR)


class _LeaseAction(ActionWorkflow):
    """Base of the actions on a lease. `self._results` maps each finished reservation to its error; empty if none."""

    def __init__(self) -> None:
        super().__init__()
        self._results: ReservationErrors = {}

    def _check_reservations_consistent(self, grant: Grant) -> None:
        """Fails the action if the lease's parts contradict its status: the lease goes to ERROR."""
        if wrong := boundaries.lease_grant_details(grant).contradiction:
            raise WorkFailed(f"its parts cannot be reconciled: {wrong}", ERROR_REPORT)

    def _collect_errors(self, grant: Grant, work: list[ReservationWork]) -> ReservationErrors:
        """Returns the errors by reservation; one whose result is unknown counts as an error."""
        unknown = grant.denied or CUT_OFF_MESSAGE
        errors = {reservation.path: self._results.get(reservation.path, unknown) for reservation in work}
        return {path: error for path, error in errors.items() if error}


@action_workflow(names.CREATE_LEASE)
class CreateLease(_LeaseAction):
    """Books hosts for the whole term, and wakes the clock if the lease starts before its next event."""

    async def perform_work(self, request: Request, grant: Grant) -> WorkReport:
        return await self.settle_work(request, grant)

    async def settle_work(self, request: Request, grant: Grant) -> WorkReport:
        """Wakes the clock, also if the action was cut off."""
        if (terms := boundaries.lease_grant_details(grant)).wake:
            await calls.wake_pool_clock(terms.pool)
        return WorkReport()


@action_workflow(names.UPDATE_LEASE)
class UpdateLease(_LeaseAction):
    """Changes a lease: all of it at the end, or nothing. Hosts of a running lease are added or returned before that."""

    async def perform_work(self, request: Request, grant: Grant) -> WorkReport:
        self._check_reservations_consistent(grant)
        terms = boundaries.lease_grant_details(grant)
        if terms.wake:
            await calls.wake_pool_clock(terms.pool)
        if terms.hand_over and (errors := (await calls.hand_over(grant, terms.hand_over)).errors):
            raise WorkFailed(f"the size cannot change: {boundaries.join_first_errors(errors)}")
        return WorkReport(message=format_one_line("; ".join(terms.changes)), spec=terms.spec, moves=terms.moves)

    async def settle_work(self, request: Request, grant: Grant) -> WorkReport:
        """Gives back the hosts that were added. If one cannot be given back, the lease goes to ERROR."""
        changing = boundaries.lease_grant_details(grant).hand_over
        try:
            errors = (await calls.hand_over(grant, changing, HoldingsToReach.BEFORE)).errors if changing else {}
        except FailureError as error:  # no answer for too long, or another action has taken over
            errors = dict.fromkeys(changing, summary.error_text(error))
        return (
            WorkReport(to=LeaseStatus.ERROR, message=f"not as it was: {boundaries.join_first_errors(errors)}")
            if errors
            else WorkReport()
        )


class _StartOrEndAction(_LeaseAction):
    """Base of a lease's start and end: does all its reservations by `run_all`, and records the result of each."""

    boundary: boundaries.BoundaryRules
    run_all: Callable[[Grant, list[ReservationWork], ReservationErrors], Awaitable[None]]

    async def perform_work(self, request: Request, grant: Grant) -> WorkReport:
        self._check_reservations_consistent(grant)
        work = self.boundary.list_reservations(grant)
        await self.run_all(grant, work, self._results)
        left = self.boundary.make_report(grant, errors := self._collect_errors(grant, work))
        if errors:
            raise WorkFailed(boundaries.describe_partial_failure(self.boundary.past_participle, errors, work), left)
        return left

    async def settle_work(self, request: Request, grant: Grant) -> WorkReport:
        if boundaries.lease_grant_details(grant).contradiction:
            return ERROR_REPORT
        return self.boundary.make_report(grant, self._collect_errors(grant, self.boundary.list_reservations(grant)))


@action_workflow(names.START_LEASE)
class StartLease(_StartOrEndAction):
    """Starts every reservation. Those that start stay active, whatever becomes of the others.

    If all of them are on hosts that are handed over quickly, begin has done it already.
    """

    boundary, run_all = boundaries.START_BOUNDARY, staticmethod(start_all_reservations)


@action_workflow(names.END_LEASE)
class EndLease(_StartOrEndAction):
    """Ends every reservation and gives back what it holds. If that is quick, begin has done it already."""

    boundary, run_all = boundaries.END_BOUNDARY, staticmethod(end_all_reservations)


@action_workflow(names.DELETE_LEASE)
class DeleteLease(_LeaseAction):
    """Gives back all that the lease holds, in any status, and removes it. It may be repeated until it succeeds."""

    async def perform_work(self, request: Request, grant: Grant) -> WorkReport:
        terms = boundaries.lease_grant_details(grant)
        work = terms.reservations
        await end_all_reservations(grant, work, self._results)
        if errors := {path: error for path, error in self._results.items() if error}:
            raise WorkFailed(f"not everything could be taken back: {boundaries.join_first_errors(errors)}")
        events = [event_path(grant.path, name) for name in terms.events]
        return WorkReport(
            moves=[Move(path=path, to=NONE) for path in [*(reservation.path for reservation in work), *events]]
        )


@action_workflow(names.ANNOUNCE_END)
class AnnounceEnd(ActionWorkflow):
    """Announces that a lease will end: in its history, and as a workflow of this type that others can follow."""

    async def perform_work(self, request: Request, grant: Grant) -> WorkReport:
        return WorkReport(message="announced: the lease ends soon")


@action_workflow(names.CHANGE_HOST)
class ChangeHost(ActionWorkflow):
    """Adds, fails, recovers, updates or removes a host. Hands over the replacement hosts of affected leases."""

    async def perform_work(self, request: Request, grant: Grant) -> WorkReport:
        terms = boundaries.lease_grant_details(grant)
        errors = (await calls.hand_over(grant, terms.hand_over)).errors if terms.hand_over else {}
        told = [
            *(f"{describe_reservation(path)} could not be handed over: {error}" for path, error in errors.items()),
            *(f"{short_path(lease)}: {text}" for lease, text in terms.swaps.items()),
        ]
        return WorkReport(message=format_one_line(join_first_texts(told)))
