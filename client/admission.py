"""Start an action and wait until it is admitted or refused. A mark in the memo finds a start whose answer got lost."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from contextlib import suppress

from temporalio.client import (
    RPCTimeoutOrCancelledError,
    WorkflowContinuedAsNewError,
    WorkflowFailureError,
    WorkflowHandle,
)
from temporalio.service import RPCError, RPCStatusCode

from activities.refusals import refusal_of_error
from client.connect_errors import is_outage, is_refused_payload, refused_payload_error, to_unreachable
from client.errors import LostAnswer, NoWorker, Unanswered
from client.launching import (
    CLOSED_ERROR,
    DEAF_ERRORS,
    MARK_MEMO,
    STARTED_ANYWAY_ERRORS,
    UPDATE_LIMIT_ERROR,
    Ticket,
    build_start_operation,
    is_late_answer,
    message_contains,
    started_run_id,
    workflow_id,
)
from client.outcomes import OutcomeReader, conflict_refusal
from client.patience import Patience
from client.runs import ActionRun, find_run
from domain import registry, wire
from domain.dryrun import DryRun
from domain.model import Admission, Refusal, Request
from domain.requests import make_update_id

ADMISSION_SECONDS = 15  # for a worker to say whether an action is admitted
BUSY_SECONDS = 300  # the same, while workers take work: they have much to do


class ActionStarter(OutcomeReader):
    """Starts actions. `client/takeover.py` uses it to take over from a running one."""

    admission_seconds: float = ADMISSION_SECONDS
    busy_seconds: float = BUSY_SECONDS
    on_delay: Callable[[], None] = staticmethod(lambda: None)  # called when an answer takes longer than usual

    def make_patience(self) -> Patience:
        """Returns the patience for one answer of a worker that polls for actions."""
        return Patience(self.poll_watch, self.admission_seconds, self.busy_seconds, lambda: self.on_delay())

    async def newest_run(self, path: str) -> ActionRun | None:
        """Returns the newest action on a path, running or not; None if there never was one."""
        return await find_run(self.client, path)

    async def start_action(self, request: Request) -> Ticket:
        """Starts the action and waits until it is admitted or refused. Raises if the object has a running action."""
        mark = uuid.uuid4().hex
        operation = build_start_operation(request, mark)
        patience = self.make_patience()
        try:
            admission = await patience.await_answer(
                self.client.execute_update_with_start_workflow(
                    wire.ADMIT_UPDATE,
                    request,
                    id=_admission_update_id(mark),
                    result_type=Admission,
                    start_workflow_operation=operation,
                ),
            )
        except TimeoutError as error:
            raise _unanswered_error(request, patience) from error
        except RPCTimeoutOrCancelledError as error:  # how the SDK reports a connection that breaks during an update
            if not is_late_answer(error):
                raise LostAnswer(request.action, request.path, "the connection broke") from error
            return await self._resend_admission_update(request, mark)
        except RPCError as error:
            if message_contains(error, CLOSED_ERROR):
                await self._raise_refused_payload(request, mark)
            if not message_contains(error, *STARTED_ANYWAY_ERRORS):
                if not is_outage(error):
                    raise
                lost = str(to_unreachable(error, self.client.namespace))
                raise LostAnswer(request.action, request.path, lost) from error
            return await self._resend_admission_update(request, mark)
        finally:
            run = await started_run_id(operation)
        return Ticket(workflow_id(request), run, admission)

    async def _resend_admission_update(self, request: Request, mark: str) -> Ticket:
        """Sends the admission update again: the start succeeded, but the update that came with it got lost."""
        newest = await self.newest_run(workflow_id(request))
        if newest is None:
            raise LostAnswer(request.action, request.path, "it took too long to answer")
        if (await newest.memo()).get(MARK_MEMO) != mark:  # ours has ended, and another action has begun since
            why = f"{request.path} was asked for and is over, but its answer got lost"
            raise Unanswered(why, f"starter history {request.path}")
        return await self.wait_for_admission(request, newest.run_id, _admission_update_id(mark))

    async def _raise_refused_payload(self, request: Request, mark: str) -> None:
        """Raises Unreachable if our run failed because its worker cannot read what we sent."""
        newest = await self.newest_run(workflow_id(request))
        if newest is None or (await newest.memo()).get(MARK_MEMO) != mark:
            return
        try:
            await self.client.get_workflow_handle(newest.path, run_id=newest.run_id).result()
        except WorkflowFailureError as failure:
            if is_refused_payload(failure.cause):
                raise refused_payload_error() from failure

    async def wait_for_admission(self, request: Request, run: str, question: str = "") -> Ticket:
        """Waits until a run says whether it was admitted.

        Asks again while its patience lasts: Temporal accepts no update while the run's last task is overdue.
        """
        handle: WorkflowHandle[object, object] = self.client.get_workflow_handle(workflow_id(request), run_id=run)
        question = question or make_update_id(wire.ADMIT_UPDATE, request)
        patience = self.make_patience()
        while True:
            try:
                await patience.check()
                asked = handle.execute_update(wire.ADMIT_UPDATE, request, id=question, result_type=Admission)
                return Ticket(workflow_id(request), run, await patience.await_answer(asked))
            except TimeoutError as error:
                raise _unanswered_error(request, patience) from error
            except RPCTimeoutOrCancelledError as error:
                if not is_late_answer(error):
                    raise
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return Ticket(workflow_id(request), run, await _admission_of_ended_run(handle))
                if message_contains(error, UPDATE_LIMIT_ERROR):
                    return Ticket(workflow_id(request), run, Admission())  # it was admitted long ago
                if not message_contains(error, *DEAF_ERRORS):
                    raise
            await asyncio.sleep(0.2)

    async def conflict_refusal(self, request: Request, running: ActionRun | None) -> Refusal:
        """Returns the 409 that names the running action; only the inventory knows actions with a name of their own."""
        verbs = registry.kind_at(request.path).verbs
        if running and any(verb.has_own_name for verb in verbs if verb.action == running.action):
            with suppress(Unanswered, NoWorker):  # then the refusal says what Temporal knows
                admission = await self.run_query(wire.READ_CHECK, request.model_copy(update={"force": False}), DryRun)
                if admission.refusal and admission.refusal.holders:  # none: the action is about to begin, or has ended
                    return admission.refusal
        return conflict_refusal(request, running)


def _unanswered_error(request: Request, patience: Patience) -> Unanswered:
    return Unanswered(
        f"{request.path} was asked for, but no worker could answer within {patience.waited_seconds:.1f} s; "
        "the request stays, and is carried out when one can",
        f"starter wait {workflow_id(request)} (or take it back: starter cancel {workflow_id(request)})",
    )


async def _admission_of_ended_run(handle: WorkflowHandle[object, object]) -> Admission:
    """Returns the refusal with which the run ended, if it was refused."""
    try:
        await handle.result(follow_runs=False)
    except WorkflowFailureError as failure:
        return Admission(refusal=refusal_of_error(failure.cause))
    except (WorkflowContinuedAsNewError, RPCError):  # taken over, or gone from Temporal by its retention
        pass
    return Admission()


def _admission_update_id(mark: str) -> str:
    """Returns the update ID of one start. Each start has its own, so that each is judged anew."""
    return f"{wire.ADMIT_UPDATE}-{mark}"
