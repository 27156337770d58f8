"""Waits for an action's outcome, and translates what Temporal knows of an action into refusals and outcomes."""

from __future__ import annotations

from contextlib import suppress

from temporalio.client import (
    WorkflowContinuedAsNewError,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
)
from temporalio.exceptions import ApplicationError, CancelledError, TerminatedError
from temporalio.service import RPCError, RPCStatusCode

from activities.refusals import refusal_of_error
from activities.runs import find_reset_run
from client.errors import Unreachable
from client.queries import WorkerQueries
from client.runs import ActionRun, find_run
from domain import registry, wire
from domain.actionview import ActionView
from domain.errors import Category, Refused
from domain.model import ActionResult, LockHolder, Outcome, ReadQuery, Refusal, Request


class OutcomeReader(WorkerQueries):
    """Waits for the outcomes of actions. A run that was cut off has none of its own: the inventory has it."""

    async def wait_for_outcome(self, path: str, run: str | None = None) -> Outcome:
        """Waits for an action's outcome, across resets of its run. Failed and cancelled actions have outcomes too.

        Without a run: for the action that runs, else for the last that was admitted. A refused request is no action.
        """
        if run:
            return await self._wait_for_run(path, run)
        run = await self.find_last_run(path)
        try:
            return await self._wait_for_run(path, run)
        except Refused:  # the newest run had not been judged yet
            if run == (admitted := await self.find_last_run(path)):
                raise
            return await self._wait_for_run(path, admitted)

    async def find_last_run(self, path: str) -> str:
        """Returns the run of the action that runs, else of the last that was admitted; empty if there was none.

        The newest run may be a refused request, or a stranger's workflow: only the inventory knows what was admitted.
        """
        newest = await find_run(self.client, path)
        if newest and not newest.is_open and newest.describe_foreign_run():
            newest = None
        if newest and (newest.is_open or newest.status is WorkflowExecutionStatus.COMPLETED):
            return newest.run_id
        return await self._read_admitted_run(path) or (newest.run_id if newest else "")

    async def _read_admitted_run(self, path: str) -> str:
        """Reads which run the inventory admitted last; empty if nothing is on record, or nobody can read it."""
        last = ReadQuery(path=wire.object_path_of(path), action=wire.companion_role_of(path))
        with suppress(Refused, Unreachable):
            return (await self.run_query(wire.READ_ACTION, last, ActionView)).run
        return ""

    async def knows_run(self, path: str, run: str) -> bool:
        """Tells whether a run is one of this path: Temporal knows it, or the inventory if Temporal has forgotten it."""
        if await find_run(self.client, path, run):
            return True
        try:
            action = await self.run_query(
                wire.READ_ACTION, ReadQuery(path=wire.object_path_of(path), run=run), ActionView
            )
        except Refused:
            return False
        return action.path == wire.object_path_of(path)

    async def last_run(self, path: str) -> ActionRun | None:
        """Returns the action that runs, else the last that was admitted; None if Temporal knows none."""
        run = await self.find_last_run(path)
        return await find_run(self.client, path, run) if run else None

    async def last_admitted_run(self, path: str) -> ActionRun | None:
        """Returns the action that was admitted last, even if a request runs that is not judged yet."""
        run = await self._read_admitted_run(path)
        return await find_run(self.client, path, run) if run else None

    async def _wait_for_run(self, path: str, run: str) -> Outcome:
        while True:
            handle: WorkflowHandle[object, Outcome] = self.client.get_workflow_handle(
                path, run_id=run or None, result_type=Outcome
            )
            try:
                return await handle.result(follow_runs=False)
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND or not run:
                    raise
                try:  # Temporal has forgotten the run
                    return await self.run_query(wire.READ_OUTCOME, ReadQuery(run=run), Outcome)
                except Refused:
                    raise error from None
            except WorkflowFailureError as failure:
                if isinstance(failure.cause, TerminatedError) and (
                    later := await find_reset_run(self.client, path, run)
                ):
                    run = later
                    continue
                cut_off = outcome_of_failure(path, failure.cause)
            except WorkflowContinuedAsNewError:
                cut_off = minimal_outcome(path, ActionResult.CANCELLED, "preempted by a forced action")
            return cut_off if cut_off.action else await self._read_stored_outcome(run, cut_off)

    async def _read_stored_outcome(self, run: str, cut_off: Outcome) -> Outcome:
        """Reads the stored outcome of a run that was cut off; else returns `cut_off` with the present status."""
        described = await find_run(self.client, cut_off.path, run)
        try:
            return await self.run_query(
                wire.READ_OUTCOME, ReadQuery(run=described.run_id if described else ""), Outcome
            )
        except Refused:
            view = await self.read_object(wire.object_path_of(cut_off.path))
            action = described.action if described else "an action"
            return cut_off.model_copy(update={"status": view.status, "action": action})


def conflict_refusal(request: Request, running: ActionRun | None) -> Refusal:
    """Returns the 409 that names the running action. Its hint offers --force where that would take over."""
    path = registry.workflow_id_of(request.path, request.action)
    forced = registry.may_preempt(request.model_copy(update={"force": True}))
    take_over = "; or take over: add --force" if forced and not request.force else ""
    message, hint = f"409 Conflict: other action currently happening on {path}", f"wait for it: starter wait {path}"
    if running is None:
        return Refusal(category=Category.CONFLICT, message=f"{message}: an action", hint=f"{hint}{take_over}")
    message += f": {running.action} since {running.start_time:%Y-%m-%d %H:%M:%SZ}"
    obstacle, help_hint = running.describe_obstacle()
    return Refusal(
        category=Category.CONFLICT,
        message=f"{message}; {obstacle}" if obstacle else message,
        hint=help_hint or f"{registry.busy_hint(path)}{hint}{take_over}",
        holders=[LockHolder(owner=path, action=running.action, run=running.run_id, since=running.start_time)],
    )


def outcome_of_failure(path: str, cause: BaseException | None) -> Outcome:
    """Returns the outcome of an action that did not complete. Raises if it was refused."""
    if isinstance(cause, ApplicationError) and cause.type == wire.ACTION_FAILED_ERROR_TYPE and cause.details:
        return Outcome.model_validate(cause.details[0])
    if (refusal := refusal_of_error(cause)) is not None:
        raise refusal.to_error()
    if isinstance(cause, CancelledError):
        return minimal_outcome(path, ActionResult.CANCELLED, "cancelled")
    if isinstance(cause, TerminatedError):
        return minimal_outcome(
            path, ActionResult.FAILED, "terminated from outside; the next action repairs what it left"
        )
    return minimal_outcome(path, ActionResult.FAILED, str(cause))


def minimal_outcome(path: str, result: ActionResult, message: str) -> Outcome:
    """Returns a minimal outcome for an action that recorded none."""
    return Outcome(path=path, action="", result=result, status="", message=message)
