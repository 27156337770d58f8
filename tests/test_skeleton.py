"""Edge cases of every action: a forced action takes over, whatever happens to the one before it.

A toy action under the name of a real one, on a queue of its own, so that it waits exactly where a test wants it to.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity, workflow
from temporalio.api.enums.v1 import EventType
from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowContinuedAsNewError,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateStage,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.worker import Worker

from activities.refusals import refusal_of_error
from domain import wire
from domain.errors import Category
from domain.model import (
    ActionEnding,
    Admission,
    BeginRequest,
    Grant,
    Outcome,
    Progress,
    ReadQuery,
    Refusal,
    Request,
    WorkReport,
)
from domain.statetable import Ruling
from tests.patience import PATIENCE, answer_of
from workers.plugin import temporal_plugin
from workflows.action import ActionWorkflow

CANCEL = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED
HEARD = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
WAITS = "waits in "  # with this in a request's reason, the toy waits there until it is told to go on


@workflow.defn(name=wire.CONTROL_VMS)
class Toy(ActionWorkflow):
    def __init__(self) -> None:
        super().__init__()
        self._told = False

    @workflow.run
    async def run(self, request: Request) -> Outcome:
        return await self.carry_out_request(request)

    @workflow.signal
    def go_on(self) -> None:
        self._told = True

    async def examine_request(self, request: Request) -> Request | Refusal:
        await self._wait("examine", request)
        return request

    async def perform_work(self, request: Request, grant: Grant) -> WorkReport:
        await self._wait("perform", request)
        return WorkReport()

    async def settle_work(self, request: Request, grant: Grant) -> WorkReport:
        await self._wait("settle", request)
        return WorkReport()

    async def _wait(self, where: str, request: Request) -> None:
        if f"{WAITS}{where}" in request.reason:
            self.update_progress(step=where)
            await workflow.wait_condition(lambda: self._told)


class Inventory:
    """Answers as the store would; what a request says in its reason is refused."""

    def __init__(self) -> None:
        self.may_permit, self.finished = asyncio.Event(), asyncio.Event()
        self.may_permit.set()

    @activity.defn
    async def begin(self, claim: BeginRequest) -> Admission:
        request = claim.request
        if "refused" in request.reason:
            return Admission(refusal=Refusal(category=Category.NOT_ALLOWED, message="not for the first one"))
        same = {"came_from": "Running", "during": "Suspending", "then": "Suspended"}
        grant = Grant(epoch=1, path=request.path, action=request.action, ruling=Ruling.GO, **same)
        return Admission(grant=grant)

    @activity.defn
    async def finish(self, ending: ActionEnding) -> Outcome:
        self.finished.set()
        told = {"path": ending.path, "action": "toy", "result": ending.result, "status": "Suspended"}
        return Outcome.model_validate({**told, "message": ending.message})

    @activity.defn
    async def has_ended(self, query: ReadQuery) -> bool:
        return False

    @activity.defn
    async def permit(self, request: Request) -> Refusal | None:
        await self.may_permit.wait()
        return None


class Stage:
    """A toy on its path, and what can be done to it."""

    def __init__(self, client: Client, ns: str, inventory: Inventory) -> None:
        self.client, self.path, self.queue, self.inventory = client, f"ns:{ns}:mci:toy", f"toy-{ns}", inventory

    def request(self, action: str, reason: str = "", **more: object) -> Request:
        return Request.model_validate({"path": self.path, "action": action, "reason": reason, **more})

    async def start(self, reason: str, task_timeout: timedelta | None = None) -> WorkflowHandle[object, object]:
        request = self.request("suspend", reason)
        started: WorkflowHandle[object, object] = await self.client.start_workflow(
            wire.CONTROL_VMS, request, id=self.path, task_queue=self.queue, task_timeout=task_timeout
        )
        return started

    async def until(self, handle: WorkflowHandle[object, object], step: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while (await answer_of(handle, wire.PROGRESS_QUERY, Progress)).step != step:
                await asyncio.sleep(0.02)

    async def cancel(self, handle: WorkflowHandle[object, object]) -> None:
        """Cancel it, and wait until its workflow has heard of it."""
        first = self.client.get_workflow_handle(self.path, run_id=handle.first_execution_run_id)
        await first.cancel()
        async with asyncio.timeout(PATIENCE):
            while True:
                happened = [event.event_type for event in (await first.fetch_history()).events]
                if CANCEL in happened and HEARD in happened[happened.index(CANCEL) :]:
                    return
                await asyncio.sleep(0.05)

    async def preempt(self, handle: WorkflowHandle[object, object]) -> asyncio.Task[str]:
        """The forced request is accepted: from now on it takes over."""
        request = self.request("terminate", force=True, request_id="second")
        update = await handle.start_update(
            wire.PREEMPT_UPDATE, request, wait_for_stage=WorkflowUpdateStage.ACCEPTED, result_type=str
        )
        return asyncio.create_task(update.result())

    async def second_runs(self, first: WorkflowHandle[object, object], answer: asyncio.Task[str]) -> None:
        """The action that took over runs, and its caller got that answer."""
        async with asyncio.timeout(PATIENCE):
            assert await answer == "terminate takes over"
            closed = self.client.get_workflow_handle(self.path, run_id=first.first_execution_run_id)
            with pytest.raises(WorkflowContinuedAsNewError):
                await closed.result(follow_runs=False)
        latest = self.client.get_workflow_handle(self.path, result_type=Outcome)
        assert (await (await latest.describe()).memo())["request_id"] == "second"
        assert (await latest.result()).status == "Suspended"


@pytest.fixture
async def stage(client: Client, ns: str) -> AsyncIterator[Stage]:
    connected = await Client.connect(client.service_client.config.target_host, plugins=[temporal_plugin()])
    inventory = Inventory()
    answering: list[Callable[..., Any]] = [inventory.begin, inventory.finish, inventory.has_ended, inventory.permit]
    async with Worker(connected, task_queue=f"toy-{ns}", workflows=[Toy], activities=answering):
        yield Stage(connected, ns, inventory)


async def test_who_takes_over_from_a_request_that_is_being_refused_is_carried_out(stage: Stage) -> None:
    start: WithStartWorkflowOperation[object, object] = WithStartWorkflowOperation(
        wire.CONTROL_VMS,
        stage.request("suspend", "refused"),
        id=stage.path,
        task_queue=stage.queue,
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
    )
    forced = stage.request("terminate", force=True, request_id="second")
    with_start = stage.client.execute_update_with_start_workflow
    answer = asyncio.create_task(
        with_start(wire.PREEMPT_UPDATE, forced, start_workflow_operation=start, result_type=str)
    )
    await stage.second_runs(await start.workflow_handle(), answer)


@pytest.mark.parametrize("where", ["examine", "settle"])
async def test_a_cancel_that_comes_besides_does_not_lose_who_takes_over(stage: Stage, where: str) -> None:
    first = await stage.start(f"{WAITS}{where}" if where == "examine" else f"{WAITS}perform, {WAITS}settle")
    await stage.until(first, "examine" if where == "examine" else "perform")
    answer = await stage.preempt(first)
    await stage.until(first, where)
    await stage.cancel(first)
    if where == "settle":
        await first.signal("go_on")
    await stage.second_runs(first, answer)


async def test_a_cancel_while_an_action_closes_does_not_lose_who_takes_over(stage: Stage) -> None:
    """Whether the second one may do it is still being asked when the first one has ended."""
    stage.inventory.may_permit.clear()
    first = await stage.start(f"{WAITS}perform", task_timeout=timedelta(seconds=2))
    await stage.until(first, "perform")
    answer = await stage.preempt(first)
    await first.signal("go_on")
    await asyncio.wait_for(stage.inventory.finished.wait(), PATIENCE)
    await stage.cancel(first)
    stage.inventory.may_permit.set()
    await stage.second_runs(first, answer)


async def test_whoever_waits_for_admission_is_told_when_it_was_cancelled_before(stage: Stage) -> None:
    first = await stage.start(f"{WAITS}examine")
    await stage.until(first, "examine")
    update = await first.start_update(
        wire.ADMIT_UPDATE, stage.request("suspend"), wait_for_stage=WorkflowUpdateStage.ACCEPTED, result_type=Admission
    )
    await first.cancel()
    with pytest.raises(WorkflowUpdateFailedError) as failure:
        await asyncio.wait_for(update.result(), PATIENCE)
    refusal = refusal_of_error(failure.value.cause)
    assert refusal
    assert refusal.message == "cancelled before it was admitted"


@pytest.mark.parametrize(
    "other", [{"action": "resume"}, {"spec": {"a": 1}}, {"requested_by": "mallory"}, {"request_id": "another"}]
)
async def test_who_asks_for_something_else_gets_no_answer_about_this(stage: Stage, other: dict[str, Any]) -> None:
    first = await stage.start(f"{WAITS}perform")
    await stage.until(first, "perform")
    assert (await first.execute_update(wire.ADMIT_UPDATE, stage.request("suspend"), result_type=Admission)).grant
    with pytest.raises(WorkflowUpdateFailedError) as failure:
        await first.execute_update(
            wire.ADMIT_UPDATE, stage.request(**{"action": "suspend", **other}), result_type=Admission
        )
    refusal = refusal_of_error(failure.value.cause)
    assert refusal
    assert refusal.message.startswith("this id was used for suspend")
    await first.signal("go_on")
    await first.result()


@pytest.mark.parametrize("wrong", [{"action": "terminate"}, {"action": "create", "force": True}])
async def test_only_force_takes_over_and_never_for_a_creation(stage: Stage, wrong: dict[str, Any]) -> None:
    first = await stage.start(f"{WAITS}perform")
    await stage.until(first, "perform")
    with pytest.raises(WorkflowUpdateFailedError) as failure:
        await first.execute_update(wire.PREEMPT_UPDATE, stage.request(**wrong), result_type=str)
    refusal = refusal_of_error(failure.value.cause)
    assert refusal
    assert refusal.message == "only force on the same object may take over, and never a creation"
    await first.signal("go_on")
    await first.result()
