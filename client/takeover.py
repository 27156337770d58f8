"""Force on a busy object: what runs there makes way and continues as ours, or is ended after its minute.

Everything names the run that was looked at, so that nothing that came since is ended by mistake. Ours may be over
before we hear of it: it has a request id, by which it is found again and not done twice.
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

from activities.refusals import refusal_in
from client.admission import ActionStarter
from client.launching import DEAF, USED_UP, Ticket, said, within
from domain import wire
from domain.errors import Refused
from domain.model import Admission, Refusal, Request
from domain.requests import EvictRun, update_id

PREEMPT_SECONDS = 60.0  # to make way
END_SECONDS = 75.0  # for a worker to end it: a run that was never asked has its minute then
PREEMPT_TRIES = 3  # what ended in the meantime may have made room for somebody quicker
PAUSE = 0.5


async def take_over(starter: ActionStarter, request: Request, run: str, tries: int = PREEMPT_TRIES) -> Ticket:
    """Our request in place of the run, and whether it was let in."""
    try:
        if ticket := await _continued(starter, request, run):
            return ticket
        return await starter.start(request)  # what ran there has ended
    except Refused as refused:
        return Ticket(request.path, "", Admission(refusal=Refusal.of(refused)))
    except WorkflowAlreadyStartedError:  # and somebody was quicker than we
        running = await starter.newest(request.path)
        if running and tries > 1:
            return await take_over(starter, request, running.run_id, tries - 1)
        return Ticket(request.path, "", Admission(refusal=await starter.conflict(request, running)))


async def _continued(starter: ActionStarter, request: Request, run: str) -> Ticket | None:
    """The run is asked to make way, for a minute. None: it has ended, by itself or because it was ended."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + PREEMPT_SECONDS
    while (left := deadline - clock()) > 0:
        try:
            return await within(left, _make_way(starter, request, run))
        except TimeoutError:
            break
        except WorkflowUpdateFailedError as error:
            if refusal := refusal_in(error.cause):
                raise refusal.error() from error
            return await _found(starter, request)  # it was ended while it was making way
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:  # it has ended, or is ours already
                return await _found(starter, request)
            if said(error, USED_UP):
                await _end(starter, request, run)
                return None
            if not said(error, *DEAF):
                raise
        await asyncio.sleep(PAUSE)  # its task was thrown away, and our question with it: it may get well
    await _end(starter, request, run)
    return None


async def _make_way(starter: ActionStarter, request: Request, run: str) -> Ticket | None:
    handle: WorkflowHandle[object, object] = starter.client.get_workflow_handle(request.path, run_id=run)
    await handle.execute_update(wire.PREEMPT, request, id=update_id(wire.PREEMPT, request), result_type=str)
    try:
        await handle.result(follow_runs=False)
    except WorkflowContinuedAsNewError as continued:
        return await starter.ticket(request, continued.new_execution_run_id)
    except WorkflowFailureError:  # somebody ended it before it could continue
        return None
    return None


async def _found(starter: ActionStarter, request: Request) -> Ticket | None:
    """Our own run, if the one before it has continued as that already."""
    newest = await starter.newest(request.path)
    if newest and (await newest.memo()).get("request_id") == request.request_id:
        return await starter.ticket(request, newest.run_id)
    return None


async def _end(starter: ActionStarter, request: Request, run: str) -> None:
    """A worker ends the run, if whoever asks may do that, and when it had its minute by the worker's clock."""
    await starter.read(wire.MAKE_WAY, EvictRun(request=request, run=run), EvictRun, seconds=END_SECONDS)
