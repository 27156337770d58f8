"""`--force` on a busy object: the running action continues as ours, or a worker ends it after a minute.

Every call names the run that was seen, so that a newer one is never ended by mistake. Our action may end before its
answer arrives: its request ID finds it again, and it is not done twice.
"""

from __future__ import annotations

import asyncio

from temporalio.client import (
    WorkflowContinuedAsNewError,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowUpdateFailedError,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.refusals import refusal_of_error
from client.admission import ActionStarter
from client.launching import DEAF_ERRORS, UPDATE_LIMIT_ERROR, Ticket, message_contains
from client.patience import run_with_timeout
from domain import wire
from domain.errors import Refused
from domain.model import Admission, Refusal, Request
from domain.requests import EvictRun, make_update_id

PREEMPT_SECONDS = 60.0  # for the running action to make way
END_SECONDS = 75.0  # for a worker to end it: only then does the minute of a run that never answered begin
PREEMPT_TRIES = 3  # another request may take the object as soon as the run ends
RETRY_PAUSE = 0.5


async def take_over_run(starter: ActionStarter, request: Request, run: str, tries: int = PREEMPT_TRIES) -> Ticket:
    """Replaces the running action by our request. Returns the ticket, which says whether it was admitted."""
    try:
        if ticket := await _ask_to_make_way(starter, request, run):
            return ticket
        return await starter.start_action(request)  # the run has ended
    except Refused as refused:
        return Ticket(request.path, "", Admission(refusal=Refusal.from_error(refused)))
    except WorkflowAlreadyStartedError:  # another request was faster
        running = await starter.newest_run(request.path)
        if running and tries > 1:
            return await take_over_run(starter, request, running.run_id, tries - 1)
        return Ticket(request.path, "", Admission(refusal=await starter.conflict_refusal(request, running)))


async def _ask_to_make_way(starter: ActionStarter, request: Request, run: str) -> Ticket | None:
    """Asks the run to make way, for up to a minute, then has it ended. Returns None if the run has ended."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + PREEMPT_SECONDS
    while (left := deadline - clock()) > 0:
        try:
            return await run_with_timeout(left, _send_preempt(starter, request, run))
        except TimeoutError:
            break
        except WorkflowUpdateFailedError as error:
            if refusal := refusal_of_error(error.cause):
                raise refusal.to_error() from error
            return await _find_own_ticket(starter, request)  # it was terminated while it made way
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:  # it has ended, or continues as ours already
                return await _find_own_ticket(starter, request)
            if message_contains(error, UPDATE_LIMIT_ERROR):
                await _end_run(starter, request, run)
                return None
            if not message_contains(error, *DEAF_ERRORS):
                raise
        await asyncio.sleep(RETRY_PAUSE)  # its workflow task failed, and our update with it: the next one may succeed
    await _end_run(starter, request, run)
    return None


async def _send_preempt(starter: ActionStarter, request: Request, run: str) -> Ticket | None:
    handle: WorkflowHandle[object, object] = starter.client.get_workflow_handle(request.path, run_id=run)
    await handle.execute_update(
        wire.PREEMPT_UPDATE, request, id=make_update_id(wire.PREEMPT_UPDATE, request), result_type=str
    )
    try:
        await handle.result(follow_runs=False)
    except WorkflowContinuedAsNewError as continued:
        return await starter.wait_for_admission(request, continued.new_execution_run_id)
    except WorkflowFailureError:  # it was ended before it could continue
        return None
    return None


async def _find_own_ticket(starter: ActionStarter, request: Request) -> Ticket | None:
    """Returns the ticket of our own run, if the old run has already continued as it."""
    newest = await starter.newest_run(request.path)
    if newest and (await newest.memo()).get("request_id") == request.request_id:
        return await starter.wait_for_admission(request, newest.run_id)
    return None


async def _end_run(starter: ActionStarter, request: Request, run: str) -> None:
    """Makes a worker end the run; it checks the policy, and waits until the run had its minute."""
    await starter.run_query(wire.MAKE_WAY_ACTIVITY, EvictRun(request=request, run=run), EvictRun, seconds=END_SECONDS)
