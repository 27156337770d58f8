"""Lost answers to a start: the workflow was started, but the update with it was not answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import (
    Client,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.service import RPCError, RPCStatusCode

from client import queries, takeover
from client.actions import ActionClient
from client.errors import LostAnswer, Unanswered
from client.launching import CLOSING_ERROR, STARTED_ANYWAY_ERRORS, TASK_FAILED_ERROR, TASK_OVERDUE_ERROR
from domain.errors import Refused
from domain.model import Request
from domain.wire import ACTIONS_QUEUE
from tests.cable import listening
from tests.patience import PATIENCE, PATIENT
from tests.user import User, spec
from workers.plugin import temporal_plugin


def losing(
    client: ActionClient,
    monkeypatch: pytest.MonkeyPatch,
    message: str,
    *,
    after: Any = None,
    status: RPCStatusCode = RPCStatusCode.UNAVAILABLE,
) -> list[int]:
    """The first start with a question is done, and its answer lost. Returns how often that happened."""
    real = client.client.execute_update_with_start_workflow
    lost: list[int] = []

    async def lose(*args: Any, **more: Any) -> Any:
        if lost:
            return await real(*args, **more)
        lost.append(1)
        try:
            await real(*args, **more)
        finally:
            if after:
                await after()
            error = RPCError(message, status, b"")
            if status in (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED):  # as the SDK reports them
                raise WorkflowUpdateRPCTimeoutOrCancelledError from error
            raise error

    monkeypatch.setattr(client.client, "execute_update_with_start_workflow", lose)
    return lost


@pytest.mark.parametrize("message", STARTED_ANYWAY_ERRORS)
async def test_an_action_that_runs_is_asked_once_more(
    user: User, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    lost = losing(user.asking, monkeypatch, f"rpc error: {message}")
    held = user.groups(option="hold")
    ticket = await user.asking.request_action(Request(path=user.mci(), action="create", spec=held))
    assert lost
    assert ticket.admission.grant
    running = await user.asking.newest_run(user.mci())
    assert running
    assert ticket.run == running.run_id
    await user.asking.cancel_action(user.mci())
    assert (await user.asking.wait_for_outcome(ticket.path, ticket.run)).result == "cancelled"


async def test_an_action_is_asked_once_more_if_the_server_was_too_slow_for_one_call(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = losing(user.asking, monkeypatch, "Timeout expired", status=RPCStatusCode.DEADLINE_EXCEEDED)
    real, slow = WorkflowHandle.execute_update, iter([RPCError("too late", RPCStatusCode.DEADLINE_EXCEEDED, b"")])

    async def late(handle: Any, *args: Any, **more: Any) -> Any:
        for error in slow:
            raise WorkflowUpdateRPCTimeoutOrCancelledError from error
        return await real(handle, *args, **more)

    monkeypatch.setattr(WorkflowHandle, "execute_update", late)
    ticket = await user.asking.request_action(
        Request(path=user.mci(), action="create", spec=user.groups(option="hold"))
    )
    assert lost
    assert not list(slow)
    assert ticket.admission.grant
    await user.asking.cancel_action(user.mci())
    assert (await user.asking.wait_for_outcome(ticket.path, ticket.run)).result == "cancelled"


async def test_an_answer_that_a_broken_connection_lost_is_told_as_lost(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    losing(user.asking, monkeypatch, "operation was canceled", status=RPCStatusCode.CANCELLED)
    with pytest.raises(LostAnswer, match="the connection broke"):
        await user.asking.request_action(Request(path=user.mci(), action="create", spec=spec(1, ["aws"])))


async def test_an_action_whose_task_is_overdue_is_asked_until_it_can_answer(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    losing(user.asking, monkeypatch, f"due to {TASK_OVERDUE_ERROR}.")
    real, deaf = (
        WorkflowHandle.execute_update,
        iter([RPCError(TASK_OVERDUE_ERROR, RPCStatusCode.FAILED_PRECONDITION, b"")] * 2),
    )

    async def overdue(handle: Any, *args: Any, **more: Any) -> Any:
        for error in deaf:
            raise error
        return await real(handle, *args, **more)

    monkeypatch.setattr(WorkflowHandle, "execute_update", overdue)
    ticket = await user.asking.request_action(
        Request(path=user.mci(), action="create", spec=user.groups(option="hold"))
    )
    assert ticket.admission.grant
    assert not list(deaf)
    await user.asking.cancel_action(user.mci())
    assert (await user.asking.wait_for_outcome(ticket.path, ticket.run)).result == "cancelled"


@pytest.mark.parametrize("message", STARTED_ANYWAY_ERRORS)
async def test_an_action_that_has_ended_tells_by_its_outcome(
    user: User, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    path = user.mci()

    async def ended() -> None:
        await user.asking.wait_for_outcome(path)

    losing(user.asking, monkeypatch, message, after=ended)
    ticket = await user.asking.request_action(Request(path=path, action="create", spec=spec(1, ["aws"])))
    assert ticket.admission.grant  # Temporal keeps the answer to a question that has an ID of its own
    assert (await user.asking.wait_for_outcome(ticket.path, ticket.run)).result == "succeeded"
    async with asyncio.timeout(PATIENCE):  # lists tell of it a bit later
        while not (runs := [run async for run in user.asking.client.list_workflows(f"WorkflowId = '{path}'")]):
            await asyncio.sleep(0.1)
    assert len(runs) == 1


async def test_a_refusal_that_got_lost_is_told_by_the_answer_and_the_outcome(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = user.asking.client.get_workflow_handle(user.mci("none"))

    async def it_has_ended() -> None:
        with pytest.raises(WorkflowFailureError):
            await handle.result()

    losing(user.asking, monkeypatch, STARTED_ANYWAY_ERRORS[0], after=it_has_ended)
    ticket = await user.asking.request_action(Request(path=user.mci("none"), action="suspend"))
    assert ticket.admission.refusal
    assert "there is no such MCI" in ticket.admission.refusal.message
    with pytest.raises(Refused, match="there is no such MCI"):
        await user.asking.wait_for_outcome(ticket.path, ticket.run)


async def test_the_answer_of_somebody_else_s_action_is_not_taken_for_ours(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = user.mci()
    await user.do(path, "create", spec=spec(1, ["aws"]))
    other = ActionClient(
        await Client.connect(user.asking.client.service_client.config.target_host, plugins=[temporal_plugin()])
    )

    async def somebody_else() -> None:
        await user.asking.wait_for_outcome(path)
        ticket = await other.request_action(Request(path=path, action="resume"))
        await other.wait_for_outcome(path, ticket.run)

    losing(user.asking, monkeypatch, STARTED_ANYWAY_ERRORS[0], after=somebody_else)
    with pytest.raises(Unanswered, match="its answer got lost"):
        await user.asking.request_action(Request(path=path, action="suspend"))


async def test_a_forced_action_for_which_somebody_is_always_quicker_is_a_conflict(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was to make way had ended, and before ours could start there was another one; again and again."""
    path = user.mci()
    ticket = await user.admitted(path, "create", spec=user.groups(option="hold"))
    gone = RPCError("workflow execution already completed", RPCStatusCode.NOT_FOUND, b"")

    async def ended_already(*_args: Any) -> Any:
        raise gone

    monkeypatch.setattr(takeover, "_send_preempt", ended_already)
    answer = await user.asking.request_action(Request(path=path, action="delete", force=True))
    assert answer.admission.refusal
    assert answer.admission.refusal.message.startswith(f"409 Conflict: other action currently happening on {path}")
    await user.asking.cancel_action(path)
    assert (await user.asking.wait_for_outcome(path, ticket.run)).result == "cancelled"


async def test_a_take_over_whose_question_got_lost_is_asked_again(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    path = user.mci()
    await user.admitted(path, "create", spec=user.groups(option="hold"))
    await user.until_status(path, "Prepared")
    real, lost = (
        takeover._send_preempt,
        iter(
            [
                RPCError(f"due to {TASK_FAILED_ERROR}.", RPCStatusCode.UNAVAILABLE, b""),
                RPCError(f"can not be applied {CLOSING_ERROR}", RPCStatusCode.RESOURCE_EXHAUSTED, b""),
            ]
        ),
    )

    async def once(client: ActionClient, request: Request, run: str) -> Any:
        for error in lost:
            raise error
        return await real(client, request, run)

    monkeypatch.setattr(takeover, "_send_preempt", once)
    assert (await user.do(path, "delete", force=True)).result == "succeeded"


async def test_any_other_error_is_told_as_it_is(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    losing(user.asking, monkeypatch, "something else")
    with pytest.raises(LostAnswer, match="something else"):
        await user.asking.request_action(Request(path=user.mci(), action="create", spec=spec(1, ["aws"])))


@asynccontextmanager
async def door(address: str) -> AsyncIterator[tuple[str, Any]]:
    """A way to the server that can be shut: who comes then is turned away."""
    host, port = address.rsplit(":", 1)
    state: dict[str, Any] = {"open": True, "refused": 0, "all": set()}

    async def pour(source: asyncio.StreamReader, into: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            into.write(data)
            await into.drain()

    async def let_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not state["open"]:
            state["refused"] += 1
            return
        there, back = await asyncio.open_connection(host, int(port))
        state["all"] |= {writer, back}
        try:
            await asyncio.gather(pour(reader, back), pour(there, writer))
        finally:
            back.close()

    async with listening(let_in) as opened:
        yield opened, state


async def test_a_worker_that_takes_work_is_seen_by_its_polls(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "LOOK_TIMEOUT", timedelta(seconds=PATIENCE))
    before = await user.asking._read_last_poll()
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    assert 0 < before < await user.asking._read_last_poll()


async def test_whether_somebody_polls_is_asked_again_while_the_server_is_away(
    user: User, temporal_address: str
) -> None:
    async with door(temporal_address) as (address, state):
        client = ActionClient(await Client.connect(address, plugins=[temporal_plugin()], retry_config=PATIENT))
        assert await client.count_pollers(ACTIONS_QUEUE) > 0
        state["open"] = False
        for writer in list(state["all"]):
            writer.close()
        question = asyncio.create_task(client.count_pollers(ACTIONS_QUEUE))
        async with asyncio.timeout(PATIENCE):
            while not state["refused"]:
                await asyncio.sleep(0.01)
        assert not question.done()
        state["open"] = True
        async with asyncio.timeout(PATIENCE):
            assert await question > 0
