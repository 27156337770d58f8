"""A message with too many or too few arguments stops nothing: it is dropped or refused, and the action goes on."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from domain.wire import ADMIT, PASSED, PREEMPT
from tests.user import User
from workflows.shield import UNFIT


@pytest.mark.parametrize("args", [[], [{}, {}], [1, 2, 3]])
async def test_an_action_goes_on_after_messages_that_no_handler_can_take(
    user: User, client: Client, args: list[Any]
) -> None:
    ticket = await user.admitted(user.mci(), "create", spec=user.groups(option="hold"))
    await user.until_status(user.mci(), "Prepared")
    handle = client.get_workflow_handle(user.mci())
    await handle.signal(PASSED, args=args)
    for update in (ADMIT, PREEMPT):
        with pytest.raises(WorkflowUpdateFailedError) as caught:
            await handle.execute_update(update, args=args)
        assert isinstance(caught.value.cause, ApplicationError)
    await handle.signal("continue", {})
    assert (await user.asking.outcome(ticket.path, ticket.run)).status.startswith("Running")
    events = (await handle.fetch_history()).to_json()
    assert "EVENT_TYPE_WORKFLOW_TASK_FAILED" not in events


async def test_a_workflow_that_is_started_with_too_much_fails_instead_of_waiting_for_ever(
    user: User, client: Client
) -> None:
    with pytest.raises(WorkflowFailureError) as caught:
        await client.execute_workflow(
            "ControlVms", args=[{"path": user.mci(), "action": "suspend"}, 2], id=user.mci("x"), task_queue="actions"
        )
    assert isinstance(caught.value.cause, ApplicationError)
    assert caught.value.cause.type == UNFIT
