"""Ask for an action, wait for its outcome: everything through Temporal."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress
from dataclasses import dataclass

from temporalio.client import (
    Client,
    WorkflowContinuedAsNewError,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowUpdateFailedError,
)
from temporalio.exceptions import TemporalError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.refusals import refusal_in
from domain import registry, wire
from domain.errors import Refused
from domain.healing import HealReport, Sweep
from domain.limits import TASK_TIMEOUT
from domain.model import Admission, ObjectView, Outcome, Progress, Query, Refusal, Request, Result
from starter.answers import action_of, conflict, ended, failed
from starter.errors import NoWorker, Unanswered
from starter.launching import MARK, run_of, with_start, within, workflow_id
from starter.questions import Questions

ADMISSION_SECONDS = 15
PREEMPT_SECONDS = 60
PREEMPT_TRIES = 3  # what ended in the meantime may have made room for somebody quicker
# Said when the start was done and the question with it was not answered: a task of the worker failed just then, or the
# call itself was repeated on the way.
TASK_FAILED = "unexpected workflow task failure"
OVERDUE = "Workflow Task in failed state"  # its worker died, or has too much to do: until the next try
STARTED_ANYWAY = (TASK_FAILED, "StartDeduped", OVERDUE)


@dataclass(frozen=True)
class Ticket:
    """An answered request: which run carries it out, or why none does. `path` is the workflow's ID."""

    path: str
    run: str
    admission: Admission


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
            return await self._start(request)
        except WorkflowAlreadyStartedError:
            return await self._busy(request)
        except WorkflowUpdateFailedError as error:
            if (refusal := refusal_in(error.cause)) is None:
                raise Unanswered(f"the action could not answer: {error.cause}") from error
            return Ticket(request.path, "", Admission(refusal=refusal))

    async def check(self, request: Request) -> Admission:
        """What ask would be answered now. Nothing is changed."""
        registry.parse_spec(request)
        newest = await self.running(workflow_id(request))
        if newest and newest.status is WorkflowExecutionStatus.RUNNING and not request.force:
            return Admission(refusal=await self._conflict(request, newest))
        return await self.read(wire.READ_CHECK, request, Admission)

    async def outcome(self, path: str, run: str | None = None) -> Outcome:
        """Wait for the end of an action. Failed and cancelled actions have outcomes too."""
        handle: WorkflowHandle[object, Outcome] = self.client.get_workflow_handle(path, run_id=run, result_type=Outcome)
        try:
            return await handle.result(follow_runs=False)
        except WorkflowFailureError as failure:
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
            wire.PROGRESS, result_type=Progress
        )
        return seen

    async def step(self, path: str) -> str:
        """What a running action does right now, in its own words; nothing if it cannot be asked."""
        try:
            return (await self.progress(path)).step
        except (RPCError, TemporalError):
            return ""

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

    async def running(self, path: str) -> WorkflowExecutionDescription | None:
        """The newest action on a path, running or not; None if there never was one."""
        try:
            return await self.client.get_workflow_handle(path).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise

    async def _start(self, request: Request) -> Ticket:
        mark = uuid.uuid4().hex
        operation = with_start(request, mark)
        try:
            admission = await within(
                ADMISSION_SECONDS,
                self.client.execute_update_with_start_workflow(
                    wire.ADMIT, request, result_type=Admission, start_workflow_operation=operation
                ),
            )
        except TimeoutError as error:
            raise _unanswered(request) from error
        except RPCError as error:
            if not any(sign in error.message for sign in STARTED_ANYWAY):
                raise
            return await self._ask_again(request, mark)
        finally:
            run = await run_of(operation)
        return Ticket(workflow_id(request), run, admission)

    async def _ask_again(self, request: Request, mark: str) -> Ticket:
        """Our action was started, but the question that came with it got lost. If it has ended, its outcome tells."""
        newest = await self.client.get_workflow_handle(workflow_id(request)).describe()
        run = newest.run_id
        if (await newest.memo()).get(MARK) != mark:  # ours is over, and somebody else's has begun since
            why = f"{request.path} was asked for and is over, but its answer got lost"
            raise Unanswered(why, f"starter history {request.path}")
        handle: WorkflowHandle[object, object] = self.client.get_workflow_handle(workflow_id(request), run_id=run)
        try:
            admission = await self._admission(handle, request)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            admission = Admission()
        return Ticket(workflow_id(request), run, admission)

    async def _admission(self, handle: WorkflowHandle[object, object], request: Request) -> Admission:
        """Whether an action that runs was let in. Temporal takes no question while its last task is overdue."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + ADMISSION_SECONDS
        while True:
            try:
                return await within(
                    ADMISSION_SECONDS, handle.execute_update(wire.ADMIT, request, result_type=Admission)
                )
            except TimeoutError as error:
                raise _unanswered(request) from error
            except RPCError as error:
                if OVERDUE not in error.message:
                    raise
                if clock() > deadline:
                    raise _unanswered(request) from error
            await asyncio.sleep(0.2)

    async def _busy(self, request: Request) -> Ticket:
        """Somebody's action runs on this very object: ours from an earlier try, one to preempt, or a conflict."""
        running = await self.running(workflow_id(request))
        if running and request.request_id and (await running.memo()).get("request_id") == request.request_id:
            handle = self.client.get_workflow_handle(workflow_id(request), run_id=running.run_id)
            return Ticket(workflow_id(request), running.run_id, await self._admission(handle, request))
        if request.force or registry.kind_at(request.path).verb(request.action).preempts:
            return await self._preempt(request)
        refusal = await self._conflict(request, running)
        return Ticket(workflow_id(request), running.run_id if running else "", Admission(refusal=refusal))

    async def _conflict(self, request: Request, running: WorkflowExecutionDescription | None) -> Refusal:
        """409, naming the winner. An action with a name of its own is called by it: only the inventory knows that."""
        verbs = registry.kind_at(request.path).verbs
        if running and any(verb.named for verb in verbs if verb.action == action_of(running)):
            with suppress(Unanswered, NoWorker):  # it is refused all the same, by what Temporal knows
                told = await self.read(wire.READ_CHECK, request.model_copy(update={"force": False}), Admission)
                if told.refusal and told.refusal.holders:  # else it is about to begin, or has just ended
                    return told.refusal
        return conflict(request.path, running)

    async def _preempt(self, request: Request, tries: int = PREEMPT_TRIES) -> Ticket:
        """Take over: the running action cleans up and continues as ours. If it does not in time, it is terminated.

        Ours may be over before we hear of it: by its ID it is found again, and not done twice.
        """
        if not request.request_id:
            request = request.model_copy(update={"request_id": uuid.uuid4().hex})
        handle = self.client.get_workflow_handle(request.path)
        try:
            return await within(PREEMPT_SECONDS, self._make_way(handle, request))
        except WorkflowUpdateFailedError as error:
            if (refusal := refusal_in(error.cause)) is None:
                raise
            return Ticket(request.path, "", Admission(refusal=refusal))
        except TimeoutError:
            await handle.terminate(reason=f"did not make way for {request.action} in {PREEMPT_SECONDS} s")
        except RPCError as error:
            lost = any(sign in error.message for sign in (TASK_FAILED, OVERDUE))
            if lost and tries > 1:  # the task was thrown away, and our question with it
                return await self._preempt(request, tries - 1)
            if error.status is not RPCStatusCode.NOT_FOUND:  # not found: it ended in the meantime
                raise
        try:
            return await self._start(request)
        except WorkflowAlreadyStartedError:  # and somebody was quicker than we
            if tries > 1:
                return await self._preempt(request, tries - 1)
            running = await self.running(request.path)
            return Ticket(request.path, "", Admission(refusal=await self._conflict(request, running)))

    async def _make_way(self, handle: WorkflowHandle[object, object], request: Request) -> Ticket:
        await handle.execute_update(wire.PREEMPT, request, result_type=str)
        try:
            admission = await handle.execute_update(wire.ADMIT, request, result_type=Admission)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return await self._over_already(handle, request)
        return Ticket(request.path, (await handle.describe()).run_id, admission)

    async def _over_already(self, handle: WorkflowHandle[object, object], request: Request) -> Ticket:
        """Ours took over and ended before we could ask whether it was let in: it was, and this is what became of it."""
        run = (await handle.describe()).run_id
        try:
            return Ticket(request.path, run, Admission(outcome=await self.outcome(request.path, run)))
        except Refused as refused:
            return Ticket(request.path, run, Admission(refusal=Refusal.of(refused)))


def _unanswered(request: Request) -> Unanswered:
    return Unanswered(
        f"{request.path} was asked for, but no worker could answer within {ADMISSION_SECONDS} s; "
        "the request stays, and is carried out when one can",
        f"starter attach {workflow_id(request)} (or take it back: starter cancel {workflow_id(request)})",
    )
