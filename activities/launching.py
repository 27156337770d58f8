"""Starts actions on behalf of programs of ours, which are admitted like any other, and wakes clocks."""

from __future__ import annotations

from temporalio.client import Client, WorkflowHandle
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes, WorkflowIDConflictPolicy

from activities.fairness import tenant_priority
from domain import registry, wire
from domain.limits import TASK_TIMEOUT
from domain.model import FrozenModel, Outcome, Request
from domain.paths import kind_of, short_path


async def wake_clock(client: Client, workflow: str, start: FrozenModel, workflow_id: str, title: str) -> None:
    """Makes a clock read again what is due, or starts it if it does not run."""
    await client.start_workflow(
        workflow,
        start,
        id=workflow_id,
        task_queue=wire.ACTIONS_QUEUE,
        task_timeout=TASK_TIMEOUT,
        start_signal=wire.LOOK_AGAIN,
        static_summary=title,
    )


async def start_action(client: Client, request: Request) -> WorkflowHandle[object, Outcome]:
    """Starts an action. Raises WorkflowAlreadyStartedError if one runs on the object."""
    verb = registry.verb_of(request)
    told = {"ObjectPath": request.path, "ObjectKind": kind_of(request.path), "Action": request.action}
    pairs = [SearchAttributePair(SearchAttributeKey.for_keyword(name), value) for name, value in told.items()]
    started: WorkflowHandle[object, Outcome] = await client.start_workflow(
        verb.workflow,
        request,
        id=registry.workflow_id_of(request.path, request.action),
        task_queue=wire.ACTIONS_QUEUE,
        result_type=Outcome,
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        task_timeout=TASK_TIMEOUT,
        search_attributes=TypedSearchAttributes(pairs),
        priority=tenant_priority(request.path),
        static_summary=f"{request.action} {short_path(request.path)}",
        request_eager_start=True,  # the first workflow task comes with the response
    )
    return started
