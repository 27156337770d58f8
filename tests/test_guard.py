"""A message with too many or too few arguments is dropped or refused, and the action continues."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio import workflow
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from domain.wire import ACTIONS_QUEUE, ADMIT_UPDATE, PASSED_SIGNAL, PREEMPT_UPDATE, UNFIT_ERROR_TYPE
from tests.patience import PATIENCE, is_late_task
from tests.user import User
from workers.families import WORKFLOWS
from workers.service import WorkerService


@pytest.mark.parametrize("args", [[], [{}, {}], [1, 2, 3]])
async def test_an_action_goes_on_after_messages_that_no_handler_can_take(
    user: User, client: Client, args: list[Any]
) -> None:
    ticket = await user.admitted(user.mci(), "create", spec=user.groups(option="hold"))
    await user.until_status(user.mci(), "Prepared")
    handle = client.get_workflow_handle(user.mci())
    await handle.signal(PASSED_SIGNAL, args=args)
    for update in (ADMIT_UPDATE, PREEMPT_UPDATE):
        with pytest.raises(WorkflowUpdateFailedError) as caught:
            await handle.execute_update(update, args=args)
        assert isinstance(caught.value.cause, ApplicationError)
    await handle.signal("continue", {})
    assert (await user.asking.wait_for_outcome(ticket.path, ticket.run)).status.startswith("Running")
    events = [event for event in (await handle.fetch_history()).events if not is_late_task(event)]
    assert EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED not in {event.event_type for event in events}


@pytest.mark.parametrize("args", [[], [{}, 2]])
@pytest.mark.parametrize("kind", WORKFLOWS)
async def test_a_workflow_that_is_started_with_too_much_or_too_little_fails_instead_of_waiting_for_ever(
    ns: str, client: Client, stack: WorkerService, kind: type, args: list[Any]
) -> None:
    definition = workflow._Definition.must_from_class(kind)
    name, heard = str(definition.name), next(iter(definition.signals), PASSED_SIGNAL)
    with pytest.raises(WorkflowFailureError) as caught:
        async with asyncio.timeout(PATIENCE):
            await client.execute_workflow(
                name,
                args=args,
                id=f"{ns}-unfit",
                task_queue=ACTIONS_QUEUE,
                start_signal=str(heard),
                start_signal_args=[{}],
            )
    assert isinstance(caught.value.cause, ApplicationError)
    assert (caught.value.cause.type, caught.value.cause.message[:29]) == (
        UNFIT_ERROR_TYPE,
        "not started as it should be: ",
    )
