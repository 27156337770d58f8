"""Ask for an action, wait for its outcome: everything through Temporal."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress
from datetime import timedelta

from temporalio.client import (
    Client,
    WorkflowContinuedAsNewError,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowUpdateFailedError,
)
from temporalio.exceptions import TemporalError, TerminatedError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.refusals import refusal_in
from activities.runs import reset_to
from domain import registry, wire
from domain.errors import Refused
from domain.healing import HealReport, Sweep
from domain.limits import TASK_TIMEOUT
from domain.model import Admission, ObjectView, Outcome, Progress, Query, Refusal, Request, Result
from domain.requests import update_id
from starter.answers import action_of, conflict, ended, failed
from starter.errors import NoWorker, Unanswered
from starter.launching import (
    MARK,
    OVERDUE,
    STARTED_ANYWAY,
    USED_UP,
    Ticket,
    run_of,
    said,
    with_start,
    within,
    workflow_id,
)
from starter.questions import Questions
from starter.takeover import take_over

__all__ = ["Asking", "Ticket"]

ADMISSION_SECONDS = 15
GLIMPSE_SECONDS = 5  # an action that runs answers at once, if somebody is there to answer


class Asking(Questions):
    """What a user can do with a Temporal client."""

    def __init__(self, client: Client, ui: str = "") -> None:
        super().__init__(client)
        self.ui = ui

    def link(self, path: str, run: str) -> str:
        """The action in the Web UI; empty if nobody knows where that is."""
        if not (self.ui and run):
            return ""
        return f"{self.ui}/namespaces/{self.client.namespace}/workflows/{path}/{run}/history"

    async def ask(self, request: Request) -> Ticket:
        """Start an action and wait until it is admitted or refused. A busy object is refused by Temporal itself."""
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
        """What ask would be answered now. Nothing is changed."""
        registry.parse_spec(request)
        newest = await self.newest(workflow_id(request))
        if newest and newest.status is WorkflowExecutionStatus.RUNNING and not registry.takes_over(request):
            return Admission(refusal=await self.conflict(request, newest))
        return await self.read(wire.READ_CHECK, request, Admission, seconds=ADMISSION_SECONDS)

    async def outcome(self, path: str, run: str | None = None) -> Outcome:
        """Wait for the end of an action, also if its run is reset. Failed and cancelled actions have outcomes too."""
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
        """A run that was cut off closes without an outcome; if it could still finish, the inventory has one."""
        described = await handle.describe()
        try:
            return await self.read(wire.READ_OUTCOME, Query(run=described.run_id), Outcome)
        except Refused:
            view = await self.read(wire.READ_OBJECT, Query(path=wire.object_of(cut_off.path)), ObjectView)
            return cut_off.model_copy(update={"status": view.status, "action": action_of(described)})

    async def progress(self, path: str, run: str | None = None) -> Progress:
        """How far a running action is."""
        seen: Progress = await self.client.get_workflow_handle(path, run_id=run).query(
            wire.PROGRESS, result_type=Progress, rpc_timeout=timedelta(seconds=GLIMPSE_SECONDS)
        )
        return seen

    async def glimpse(self, path: str, run: str | None = None) -> Progress | None:
        """How far it is; None if it cannot be asked, as when its worker is frozen or its task fails. Asked twice."""
        for _ in range(2):
            with suppress(RPCError, TemporalError):
                return await self.progress(path, run)
        return None

    async def step(self, path: str) -> str:
        """What a running action does right now, in its own words; nothing if it cannot be asked."""
        seen = await self.glimpse(path)
        return seen.step if seen else ""

    async def heal(self, order: Sweep) -> HealReport:
        """A sweep of self-healing, now. One that runs already is not joined: it was told something else."""
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
        """Ask the running action to clean up and end."""
        await self.client.get_workflow_handle(path).cancel()

    async def newest(self, path: str) -> WorkflowExecutionDescription | None:
        """The newest action on a path, running or not; None if there never was one."""
        try:
            return await self.client.get_workflow_handle(path).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise

    async def start(self, request: Request) -> Ticket:
        """Start the action, and wait until it is admitted or refused. Raises if another one runs on the object."""
        mark = uuid.uuid4().hex
        operation = with_start(request, mark)
        try:
            admission = await within(
                ADMISSION_SECONDS,
                self.client.execute_update_with_start_workflow(
                    wire.ADMIT,
                    request,
                    id=_question(mark),
                    result_type=Admission,
                    start_workflow_operation=operation,
                ),
            )
        except TimeoutError as error:
            raise _unanswered(request) from error
        except RPCError as error:
            if not said(error, *STARTED_ANYWAY):
                raise
            return await self._ask_again(request, mark)
        finally:
            run = await run_of(operation)
        return Ticket(workflow_id(request), run, admission)

    async def _ask_again(self, request: Request, mark: str) -> Ticket:
        """Our action was started, but the question that came with it got lost. If it has ended, its outcome tells."""
        newest = await self.client.get_workflow_handle(workflow_id(request)).describe()
        if (await newest.memo()).get(MARK) != mark:  # ours is over, and somebody else's has begun since
            why = f"{request.path} was asked for and is over, but its answer got lost"
            raise Unanswered(why, f"starter history {request.path}")
        return await self.ticket(request, newest.run_id, _question(mark))

    async def ticket(self, request: Request, run: str, question: str = "") -> Ticket:
        """Whether the action of a run was let in. Temporal takes no question while its last task is overdue."""
        handle: WorkflowHandle[object, object] = self.client.get_workflow_handle(workflow_id(request), run_id=run)
        question = question or update_id(wire.ADMIT, request)
        clock = asyncio.get_running_loop().time
        deadline = clock() + ADMISSION_SECONDS
        while True:
            try:
                asked = handle.execute_update(wire.ADMIT, request, id=question, result_type=Admission)
                return Ticket(workflow_id(request), run, await within(ADMISSION_SECONDS, asked))
            except TimeoutError as error:
                raise _unanswered(request) from error
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND or said(error, USED_UP):
                    return Ticket(workflow_id(request), run, Admission())  # it is over, or has long been let in
                if not said(error, OVERDUE):
                    raise
                if clock() > deadline:
                    raise _unanswered(request) from error
            await asyncio.sleep(0.2)

    async def _busy(self, request: Request) -> Ticket:
        """Somebody's action runs on this very object: ours from an earlier try, one to preempt, or a conflict."""
        running = await self.newest(workflow_id(request))
        if running and request.request_id and (await running.memo()).get("request_id") == request.request_id:
            return await self.ticket(request, running.run_id)
        if running and registry.takes_over(request):
            named = request.model_copy(update={"request_id": request.request_id or uuid.uuid4().hex})
            return await take_over(self, named, running.run_id)
        refusal = await self.conflict(request, running)
        return Ticket(workflow_id(request), running.run_id if running else "", Admission(refusal=refusal))

    async def conflict(self, request: Request, running: WorkflowExecutionDescription | None) -> Refusal:
        """409, naming the winner. An action with a name of its own is called by it: only the inventory knows that."""
        verbs = registry.kind_at(request.path).verbs
        if running and any(verb.named for verb in verbs if verb.action == action_of(running)):
            with suppress(Unanswered, NoWorker):  # it is refused all the same, by what Temporal knows
                told = await self.read(wire.READ_CHECK, request.model_copy(update={"force": False}), Admission)
                if told.refusal and told.refusal.holders:  # else it is about to begin, or has just ended
                    return told.refusal
        return conflict(request, running)


def _question(mark: str) -> str:
    """The ID of the update that comes with a start: of this start alone, so that it is judged anew each time."""
    return f"{wire.ADMIT}-{mark}"


def _unanswered(request: Request) -> Unanswered:
    return Unanswered(
        f"{request.path} was asked for, but no worker could answer within {ADMISSION_SECONDS} s; "
        "the request stays, and is carried out when one can",
        f"starter wait {workflow_id(request)} (or take it back: starter cancel {workflow_id(request)})",
    )
