"""`ActionClient`: request an action, wait for its outcome, cancel it, read. Every call goes through Temporal."""

from __future__ import annotations

import uuid
from contextlib import suppress
from datetime import timedelta

from temporalio.client import (
    Client,
    WorkflowContinuedAsNewError,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowUpdateFailedError,
)
from temporalio.exceptions import TemporalError, TerminatedError, WorkflowAlreadyStartedError
from temporalio.service import RPCError

from activities.refusals import refusal_in
from activities.runs import reset_to
from client.admission import ADMISSION_SECONDS, ActionStarter
from client.errors import Unanswered
from client.launching import Ticket, workflow_id
from client.outcomes import action_of, ended, failed
from client.takeover import take_over
from domain import registry, wire
from domain.errors import Refused
from domain.healing import HealReport, Sweep
from domain.limits import TASK_TIMEOUT
from domain.model import Admission, Outcome, Progress, Query, Request, Result

__all__ = ["ActionClient", "Ticket"]

GLIMPSE_SECONDS = 5  # a running action answers at once if a worker serves it


class ActionClient(ActionStarter):
    """Everything that a program can request of Ratchet, over one connection to Temporal."""

    def __init__(self, client: Client, ui: str = "") -> None:
        super().__init__(client)
        self.ui = ui

    def link(self, path: str, run: str) -> str:
        """Returns the action's URL in the Web UI; empty if the Web UI's address is not known."""
        if not (self.ui and run):
            return ""
        return f"{self.ui}/namespaces/{self.client.namespace}/workflows/{path}/{run}/history"

    async def ask(self, request: Request) -> Ticket:
        """Starts an action and waits until it is admitted or refused. Temporal itself refuses a busy object."""
        registry.parse_spec(request)
        await self.someone_polls(wire.ACTIONS_QUEUE)
        try:
            try:
                return await self.start(request)
            except WorkflowAlreadyStartedError:
                return await self._busy(request)
        except WorkflowUpdateFailedError as error:
            if (refusal := refusal_in(error.cause)) is None:
                raise Unanswered(f"the action could not answer: {error.cause}") from error
            return Ticket(request.path, "", Admission(refusal=refusal))

    async def check(self, request: Request) -> Admission:
        """Dry run: returns the answer that `ask` would get now. Changes nothing."""
        registry.parse_spec(request)
        newest = await self.newest(workflow_id(request))
        if newest and newest.status is WorkflowExecutionStatus.RUNNING and not registry.takes_over(request):
            return Admission(refusal=await self.conflict(request, newest))
        return await self.read(wire.READ_CHECK, request, Admission, seconds=ADMISSION_SECONDS)

    async def outcome(self, path: str, run: str | None = None) -> Outcome:
        """Waits for an action's outcome, across resets of its run. Failed and cancelled actions have outcomes too."""
        handle: WorkflowHandle[object, Outcome] = self.client.get_workflow_handle(path, run_id=run, result_type=Outcome)
        try:
            return await handle.result(follow_runs=False)
        except WorkflowFailureError as failure:
            if isinstance(failure.cause, TerminatedError) and (later := await reset_to(self.client, path, run)):
                return await self.outcome(path, later)
            cut_off = failed(path, failure.cause)
        except WorkflowContinuedAsNewError:
            cut_off = ended(path, Result.CANCELLED, "preempted by a forced action")
        return cut_off if cut_off.action else await self._kept(handle, cut_off)

    async def _kept(self, handle: WorkflowHandle[object, Outcome], cut_off: Outcome) -> Outcome:
        """Reads the stored outcome of a run that was cut off; else returns `cut_off` with the present status."""
        described = await handle.describe()
        try:
            return await self.read(wire.READ_OUTCOME, Query(run=described.run_id), Outcome)
        except Refused:
            view = await self.get(wire.object_of(cut_off.path))
            return cut_off.model_copy(update={"status": view.status, "action": action_of(described)})

    async def progress(self, path: str, run: str | None = None) -> Progress:
        """Queries a running action for its progress."""
        seen: Progress = await self.client.get_workflow_handle(path, run_id=run).query(
            wire.PROGRESS, result_type=Progress, rpc_timeout=timedelta(seconds=GLIMPSE_SECONDS)
        )
        return seen

    async def glimpse(self, path: str, run: str | None = None) -> Progress | None:
        """Returns `progress`, tried twice; None if the action does not answer, such as while its worker is frozen."""
        for _ in range(2):
            with suppress(RPCError, TemporalError):
                return await self.progress(path, run)
        return None

    async def step(self, path: str) -> str:
        """Returns the current step of a running action, in its own words; empty if it does not answer."""
        seen = await self.glimpse(path)
        return seen.step if seen else ""

    async def heal(self, order: Sweep) -> HealReport:
        """Runs a sweep of self-healing now. It does not join a running sweep, whose orders may differ."""
        await self.someone_polls(wire.ACTIONS_QUEUE)
        run = f"{wire.HEAL_SCHEDULE}-{uuid.uuid4().hex[:12]}"
        report: HealReport = await self.client.execute_workflow(
            wire.HEAL,
            order,
            id=run,
            task_queue=wire.ACTIONS_QUEUE,
            task_timeout=TASK_TIMEOUT,
            result_type=HealReport,
        )
        return report

    async def cancel(self, path: str) -> None:
        """Asks the running action to clean up and end."""
        await self.client.get_workflow_handle(path).cancel()

    async def _busy(self, request: Request) -> Ticket:
        """Handles an object with a running action: ours from an earlier try, one to preempt, or a conflict."""
        running = await self.newest(workflow_id(request))
        if running and request.request_id and (await running.memo()).get("request_id") == request.request_id:
            return await self.ticket(request, running.run_id)
        if running and registry.takes_over(request):
            named = request.model_copy(update={"request_id": request.request_id or uuid.uuid4().hex})
            return await take_over(self, named, running.run_id)
        refusal = await self.conflict(request, running)
        return Ticket(workflow_id(request), running.run_id if running else "", Admission(refusal=refusal))
