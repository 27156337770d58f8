"""The actions on leases, their events and their hosts: what each does between begin and finish.

The transaction of begin decided what is legal, booked and moved along; the transaction of finish stores what an action
leaves. In between there are only calls to providers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from temporalio import workflow
from temporalio.exceptions import FailureError

with workflow.unsafe.imports_passed_through():
    from domain.leases import ends, names
    from domain.leases.ends import ReservationErrors
    from domain.leases.messages import HandOverGoal, ReservationWork
    from domain.leases.names import event_path
    from domain.leases.tables import LeaseStatus
    from domain.model import Done, Grant, Move, Request
    from domain.statetable import NONE
    from workflows import summary
    from workflows.action import Action, Failed, action_workflow
    from workflows.leases import calls
    from workflows.leases.plugins import end_all, start_all

CUT_OFF = "cut off before it was known what became of it"
IN_ERROR = Done(to=LeaseStatus.ERROR)


class _OnLease(Action):
    """Base of the actions on a lease. `self._results` maps each finished reservation to its error; empty if none."""

    def __init__(self) -> None:
        super().__init__()
        self._results: ReservationErrors = {}

    def _check_parts(self, grant: Grant) -> None:
        """Fails the action if the lease's parts contradict its status: the lease goes to ERROR."""
        if wrong := ends.contradictions(grant):
            raise Failed(f"its parts cannot be reconciled: {wrong}", IN_ERROR)

    def _errors(self, work: list[ReservationWork]) -> ReservationErrors:
        """Returns the errors by reservation; one whose result is unknown counts as an error."""
        errors = {reservation.path: self._results.get(reservation.path, CUT_OFF) for reservation in work}
        return {path: error for path, error in errors.items() if error}


@action_workflow(names.CREATE_LEASE)
class CreateLease(_OnLease):
    """Books hosts for the whole term, and wakes the clock if the lease starts before its next event."""

    async def perform(self, request: Request, grant: Grant) -> Done:
        return await self.settle(request, grant)

    async def settle(self, request: Request, grant: Grant) -> Done:
        """Wakes the clock, also if the action was cut off."""
        if (terms := ends.terms_of(grant)).wake:
            await calls.wake_clock(terms.pool)
        return Done()


@action_workflow(names.UPDATE_LEASE)
class UpdateLease(_OnLease):
    """Changes a lease: all of it at the end, or nothing. Hosts of a running lease are added or returned before that."""

    async def perform(self, request: Request, grant: Grant) -> Done:
        self._check_parts(grant)
        terms = ends.terms_of(grant)
        if terms.wake:
            await calls.wake_clock(terms.pool)
        if terms.hand_over and (errors := (await calls.hand_over(grant, terms.hand_over)).errors):
            raise Failed(f"the size cannot change: {ends.join_errors(errors)}")
        return Done(spec=terms.spec, moves=terms.moves)

    async def settle(self, request: Request, grant: Grant) -> Done:
        """Gives back the hosts that were added. If one cannot be given back, the lease goes to ERROR."""
        changing = ends.terms_of(grant).hand_over
        try:
            errors = (await calls.hand_over(grant, changing, HandOverGoal.BEFORE)).errors if changing else {}
        except FailureError as error:  # no answer for too long, or another action has taken over
            errors = dict.fromkeys(changing, summary.reason_of(error))
        return Done(to=LeaseStatus.ERROR, message=f"not as it was: {ends.join_errors(errors)}") if errors else Done()


class _AtBoundary(_OnLease):
    """Base of starts and ends: does all reservations by `every`, and records the result of each."""

    boundary: ends.Boundary
    every: Callable[[Grant, list[ReservationWork], ReservationErrors], Awaitable[None]]

    async def perform(self, request: Request, grant: Grant) -> Done:
        self._check_parts(grant)
        work = self.boundary.work(grant)
        await self.every(grant, work, self._results)
        left = self.boundary.left(grant, errors := self._errors(work))
        if errors:
            raise Failed(ends.partial_failure(self.boundary.word, errors, work), left)
        return left

    async def settle(self, request: Request, grant: Grant) -> Done:
        if ends.contradictions(grant):
            return IN_ERROR
        return self.boundary.left(grant, self._errors(self.boundary.work(grant)))


@action_workflow(names.START_LEASE)
class StartLease(_AtBoundary):
    """Starts every reservation. Those that start stay active, whatever becomes of the others.

    If all of them are on hosts that are handed over quickly, begin has done it already.
    """

    boundary, every = ends.STARTS, staticmethod(start_all)


@action_workflow(names.END_LEASE)
class EndLease(_AtBoundary):
    """Ends every reservation and gives back what it holds. If that is quick, begin has done it already."""

    boundary, every = ends.ENDS, staticmethod(end_all)


@action_workflow(names.DELETE_LEASE)
class DeleteLease(_OnLease):
    """Gives back all that the lease holds, in any status, and removes it. It may be repeated until it succeeds."""

    async def perform(self, request: Request, grant: Grant) -> Done:
        terms = ends.terms_of(grant)
        work = terms.reservations
        await end_all(grant, work, self._results)
        if errors := {path: error for path, error in self._results.items() if error}:
            raise Failed(f"not everything could be taken back: {ends.join_errors(errors)}")
        events = [event_path(grant.path, name) for name in terms.events]
        return Done(moves=[Move(path=path, to=NONE) for path in [*(reservation.path for reservation in work), *events]])


@action_workflow(names.ANNOUNCE_END)
class AnnounceEnd(Action):
    """Announces that a lease will end: in its history, and as a workflow of this type that others can follow."""

    async def perform(self, request: Request, grant: Grant) -> Done:
        return Done(message="announced: the lease ends soon")


@action_workflow(names.CHANGE_HOST)
class ChangeHost(Action):
    """Adds, fails, recovers or removes a host. Hands over the replacement hosts of affected leases."""

    async def perform(self, request: Request, grant: Grant) -> Done:
        changed = ends.terms_of(grant).hand_over
        errors = (await calls.hand_over(grant, changed)).errors if changed else {}
        return Done(message=f"could not be handed over: {ends.join_errors(errors)}" if errors else "")
