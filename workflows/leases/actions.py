"""The actions on leases, their events and their hosts: what each does between begin and finish.

What is legal, what is booked and what moves along was decided in the transaction of begin; what an action leaves is
written in the transaction of finish. In between there is only work on the world.
"""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from domain.leases import names
    from domain.leases.names import event_path
    from domain.leases.tables import END, START, Event, Lease, Reservation
    from domain.leases.views import Want
    from domain.machine import NONE
    from domain.model import Done, Grant, Move, Outcome, Request
    from domain.paths import name_of
    from workflows.action import Action, Failed
    from workflows.leases import calls
    from workflows.leases.plugins import Errors, Work, end_all, start_all

CUT_OFF = "cut off before it was known what became of it"


class _OnLease(Action):
    """Actions on a lease. `self._known` is what became of each reservation so far."""

    def __init__(self) -> None:
        super().__init__()
        self._known: Errors = {}

    def _check(self, grant: Grant) -> None:
        """A lease whose parts contradict it goes to ERROR, never silently on."""
        if wrong := grant.details.get("contradiction"):
            raise Failed(f"its parts cannot be reconciled: {wrong}", Done(to=Lease.ERROR))

    def _errors(self, work: list[Work]) -> Errors:
        """What went wrong, as far as it is known; what is not known went wrong."""
        found = {each["path"]: self._known.get(each["path"], CUT_OFF) for each in work}
        return {path: error for path, error in found.items() if error}


@workflow.defn(name=names.CREATE_LEASE)
class CreateLease(_OnLease):
    """Book for the whole term, and let the clock know if it would sleep too long."""

    @workflow.run
    async def run(self, request: Request) -> Outcome:
        return await self.carry_out(request)

    async def perform(self, request: Request, grant: Grant) -> Done:
        if grant.details["wake"]:
            await calls.wake_clock(grant.details["pool"])
        return Done()


@workflow.defn(name=names.UPDATE_LEASE)
class UpdateLease(_OnLease):
    """Change a lease. Dates and names were changed at begin; hosts of a running lease join or leave here."""

    @workflow.run
    async def run(self, request: Request) -> Outcome:
        return await self.carry_out(request)

    async def perform(self, request: Request, grant: Grant) -> Done:
        self._check(grant)
        if grant.details["wake"]:
            await calls.wake_clock(grant.details["pool"])
        changing = grant.details.get("hand_over", [])
        if changing and (errors := (await calls.hand_over(changing)).errors):
            raise Failed(f"the size cannot change: {_listed(errors)}")
        return Done(moves=[Move.model_validate(move) for move in grant.details.get("sizes", [])])

    async def settle(self, request: Request, grant: Grant) -> Done:
        if changing := grant.details.get("hand_over", []):
            await calls.hand_over(changing, Want.BEFORE)
        return Done()


@workflow.defn(name=names.START_LEASE)
class StartLease(_OnLease):
    """Start every reservation. Those that start stay active, whatever becomes of the others."""

    @workflow.run
    async def run(self, request: Request) -> Outcome:
        return await self.carry_out(request)

    async def perform(self, request: Request, grant: Grant) -> Done:
        self._check(grant)
        work: list[Work] = grant.details["reservations"]
        await start_all(work, self._known)
        left = self._left(grant, work)
        if errors := self._errors(work):
            raise Failed(_partly("started", errors, work), left)
        return left

    async def settle(self, request: Request, grant: Grant) -> Done:
        return self._left(grant, grant.details["reservations"])

    def _left(self, grant: Grant, work: list[Work]) -> Done:
        errors = self._errors(work)
        moves = [_moved(each["path"], errors, Reservation.ACTIVE) for each in work]
        status = Event.ERROR if len(errors) == len(work) else Event.DONE
        return Done(moves=[*moves, Move(path=event_path(grant.path, START), to=status, action="start")])


@workflow.defn(name=names.END_LEASE)
class EndLease(_OnLease):
    """End every reservation and give everything back."""

    @workflow.run
    async def run(self, request: Request) -> Outcome:
        return await self.carry_out(request)

    async def perform(self, request: Request, grant: Grant) -> Done:
        self._check(grant)
        work = _begun(grant)
        await end_all(work, self._known)
        left = self._left(grant, work)
        if errors := self._errors(work):
            raise Failed(_partly("ended", errors, work), left)
        return left

    async def settle(self, request: Request, grant: Grant) -> Done:
        return self._left(grant, _begun(grant))

    def _left(self, grant: Grant, work: list[Work]) -> Done:
        errors = self._errors(work)
        moves = [_moved(each["path"], errors, Reservation.DELETED) for each in work]
        status = Event.ERROR if errors else Event.DONE
        return Done(moves=[*moves, Move(path=event_path(grant.path, END), to=status, action="end")])


@workflow.defn(name=names.DELETE_LEASE)
class DeleteLease(_OnLease):
    """Take everything back, whatever the lease was doing, and forget it. May be repeated until it succeeds."""

    @workflow.run
    async def run(self, request: Request) -> Outcome:
        return await self.carry_out(request)

    async def perform(self, request: Request, grant: Grant) -> Done:
        work: list[Work] = grant.details["reservations"]
        await end_all(work, self._known)
        if errors := {path: error for path, error in self._known.items() if error}:
            raise Failed(f"not everything could be taken back: {_listed(errors)}")
        events = [event_path(grant.path, name) for name in grant.details["events"]]
        return Done(moves=[Move(path=path, to=NONE) for path in [*(each["path"] for each in work), *events]])


@workflow.defn(name=names.ANNOUNCE_END)
class AnnounceEnd(Action):
    """Tell that a lease will end: its history has it, and whoever follows this workflow's type hears of it."""

    @workflow.run
    async def run(self, request: Request) -> Outcome:
        return await self.carry_out(request)

    async def perform(self, request: Request, grant: Grant) -> Done:
        return Done(message="announced: the lease ends soon")


@workflow.defn(name=names.CHANGE_HOST)
class ChangeHost(Action):
    """Add, fail, recover or remove a host. Whoever holds other hosts because of it gets them here."""

    @workflow.run
    async def run(self, request: Request) -> Outcome:
        return await self.carry_out(request)

    async def perform(self, request: Request, grant: Grant) -> Done:
        changed: list[str] = grant.details.get("hand_over", [])
        errors = (await calls.hand_over(changed)).errors if changed else {}
        return Done(message=f"could not be handed over: {_listed(errors)}" if errors else "")


def _begun(grant: Grant) -> list[Work]:
    """Reservations that hold something, or may."""
    return [each for each in grant.details["reservations"] if each["status"] in (Reservation.ACTIVE, Reservation.ERROR)]


def _moved(path: str, errors: Errors, good: str) -> Move:
    return Move(path=path, to=Reservation.ERROR if path in errors else good, error=errors.get(path, ""))


def _partly(what: str, errors: Errors, work: list[Work]) -> str:
    return f"{len(work) - len(errors)} of {len(work)} reservations {what}: {_listed(errors)}"


def _listed(errors: Errors) -> str:
    shown = [f"{name_of(path)}: {error}" for path, error in list(errors.items())[:5]]
    return "; ".join(shown) + (f"; and {len(errors) - 5} more" if len(errors) > 5 else "")
