"""A run of an action as Temporal describes it, paused ones and those of strangers included.

The SDK's own description fails on statuses that it does not know. A person can pause an action in Temporal's Web UI, or
start a workflow with an object's ID on a queue that no worker of ours polls; users must be told of both.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey
from temporalio.converter import WorkflowSerializationContext, decode_typed_search_attributes

from activities.runs import OPEN_RUNS, PAUSED, describe_run, is_open, list_runs
from client.connection import DEFAULT_ADDRESS
from client.encryption import RefusedPayload
from domain import registry, wire
from domain.errors import find_close_word

_ACTION_ATTRIBUTE = SearchAttributeKey.for_keyword("Action")


@dataclass(frozen=True)
class ActionRun:
    """One run, from Temporal's raw description. A paused run counts as running: it holds its object."""

    client: Client
    raw_description: DescribeWorkflowExecutionResponse

    @property
    def info(self) -> WorkflowExecutionInfo:
        return self.raw_description.workflow_execution_info

    @property
    def path(self) -> str:
        return self.info.execution.workflow_id

    @property
    def run_id(self) -> str:
        return self.info.execution.run_id

    @property
    def start_time(self) -> datetime:
        return self.info.start_time.ToDatetime(UTC)

    def seconds_since_end(self) -> float:
        """Returns how long ago the run ended; 0 if it has not."""
        return 0 if self.is_open else (datetime.now(UTC) - self.info.close_time.ToDatetime(UTC)).total_seconds()

    @property
    def is_open(self) -> bool:
        """Tells whether the run holds its object: it runs, or is paused."""
        return is_open(self.info)

    @property
    def status(self) -> WorkflowExecutionStatus:
        return WorkflowExecutionStatus.RUNNING if self.is_open else WorkflowExecutionStatus(self.info.status)

    @property
    def action(self) -> str:
        """The action that the run was started for; a workflow started by hand does not say so until it ends."""
        return decode_typed_search_attributes(self.info.search_attributes).get(_ACTION_ATTRIBUTE) or "an action"

    async def memo(self) -> dict[str, Any]:
        """Returns the decoded memo, with only the fields that our workflows write, not those of a stranger."""
        converter = self.client.data_converter.with_context(
            WorkflowSerializationContext(namespace=self.client.namespace, workflow_id=self.path)
        )
        fields: dict[str, Any] = {}
        for key, value in self.info.memo.fields.items():
            with suppress(RefusedPayload):
                [fields[key]] = await converter.decode([value], [Any])
        return {key: value for key, value in fields.items() if not isinstance(value, wire.UnreadableMessage)}

    def describe_pause(self) -> str:
        """Says who paused the run, when and why; empty if it is not paused."""
        if self.info.status != PAUSED:
            return ""
        pause = self.raw_description.workflow_extended_info.pause_info
        why = f": {pause.reason}" if pause.reason else ""
        return (
            f"paused by {pause.identity or 'somebody'} at {pause.paused_time.ToDatetime(UTC):%Y-%m-%d %H:%M:%SZ}{why}"
        )

    def describe_foreign_run(self) -> str:
        """Says why this run is no action of ours though it has an object's ID; empty if it is one."""
        if self.info.task_queue != wire.ACTIONS_QUEUE:
            queue = self.info.task_queue
            return f"the workflow {self.info.type.name} on the queue {queue!r}, not on {wire.ACTIONS_QUEUE!r}"
        name, types = self.info.type.name, registry.workflow_types()
        if registry.is_object_path(self.path) and name not in types:
            meant = find_close_word(name, types)
            return f"the workflow {name}, a type that does not exist" + (f" ({meant} does)" if meant else "")
        return ""

    def describe_obstacle(self) -> tuple[str, str]:
        """Returns why the run does nothing, and what helps; both empty if it is an action at work."""
        if self.is_open and (stranger := self.describe_foreign_run()):
            return (
                f"{stranger}: no worker of ours takes it",
                f"end it: {temporal_command(self.client, 'terminate', self.path)}",
            )
        if pause := self.describe_pause():
            return (
                f"{pause}; it goes on when it is unpaused",
                f"unpause it: {temporal_command(self.client, 'unpause', self.path)}",
            )
        return "", ""


def temporal_command(client: Client, verb: str, workflow_id: str) -> str:
    """Returns the command of Temporal's own CLI for one workflow, at this server and namespace."""
    address = client.service_client.config.target_host
    place = "" if address == DEFAULT_ADDRESS else f" --address {address}"
    place += "" if client.namespace == "default" else f" --namespace {client.namespace}"
    return f"temporal workflow {verb} --workflow-id {workflow_id}{place}"


async def find_stuck_runs(client: Client, most: int) -> list[ActionRun]:
    """Returns up to `most` open runs of objects that do nothing: paused, on another queue, or of an unknown type."""
    found: list[ActionRun] = []
    types = ", ".join(f"'{name}'" for name in registry.workflow_types())
    stuck = f"ExecutionStatus = 'Paused' OR TaskQueue != '{wire.ACTIONS_QUEUE}' OR WorkflowType NOT IN ({types})"
    async for listed in list_runs(client, f"{OPEN_RUNS} AND ({stuck})"):
        # Companions that are at work have other types, and IDs that are no object's.
        is_at_work = listed.task_queue == wire.ACTIONS_QUEUE and listed.status != PAUSED
        name = listed.execution.workflow_id
        if len(found) < most and registry.is_object_path(name if is_at_work else wire.object_path_of(name)):
            run = await find_run(client, name)
            found += [run] if run and run.describe_obstacle()[0] else []
    return found


async def find_run(client: Client, workflow_id: str, run: str = "") -> ActionRun | None:
    """Returns this run of a workflow ID, or its newest, open or closed; None if Temporal knows none."""
    found = await describe_run(client, workflow_id, run)
    return ActionRun(client, found) if found else None
