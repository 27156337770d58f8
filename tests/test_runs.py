"""Whether a run is open, followed along resets: a reset action continues under another run ID."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from temporalio import activity, workflow
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.enums.v1 import WorkflowExecutionStatus as Status
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
    ResetWorkflowExecutionRequest,
)
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment
from temporalio.worker import Worker

from activities.companions import CompanionReconciler
from activities.healing import HealingActivities
from activities.runs import CONCURRENT_CALLS, RunState, read_run_state
from domain import wire
from domain.healing import ANY_ACTION, HealFinding, SweepOptions
from domain.invariants import VerificationReport
from domain.model import ActionResult, LockHolder, ReadQuery
from domain.waitqueue import LockHolders
from tests.patience import PATIENCE
from tests.user import User, spec
from tests.virtualtime import in_virtual_time
from workflows.calls import make_key

pytestmark = pytest.mark.stores("postgres")


async def reset(client: Client, workflow_id: str, run: str, task: int) -> str:
    """`temporal workflow reset` to a completed workflow task: the first is 0, the last -1. Returns the new run."""
    handle, done = client.get_workflow_handle(workflow_id, run_id=run), list[int]()
    async for event in handle.fetch_history_events(wait_new_event=task == 0):
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            done.append(event.event_id)
            if task == 0:
                break
    order = ResetWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=workflow_id, run_id=run),
        reason="an operator",
        workflow_task_finish_event_id=done[task],
        request_id=str(uuid4()),
    )
    return (await client.workflow_service.reset_workflow_execution(order)).run_id


@pytest.fixture
async def hung(user: User, patient: None) -> AsyncIterator[tuple[str, str]]:
    """An MCI whose reboot takes its time, and the run of the reboot."""
    await user.do(user.mci(), "create", spec=spec(2, ["aws"]))
    await user.fault("hang", vm="aws0-1", verb="reboot", seconds=60)
    ticket = await user.admitted(user.mci(), "reboot")
    await user.until_delayed(user.vm("aws0-1"))
    yield user.mci(), ticket.run
    await user.heal_faults()


@pytest.mark.parametrize("task", [0, -1], ids=["to its first task", "to its last task"])
async def test_an_action_that_was_reset_is_left_alone_and_ends_well(
    user: User, hung: tuple[str, str], task: int
) -> None:
    mci, run = hung
    epoch = (await user.see(mci)).epoch
    client = user.asking.client
    waiting = asyncio.create_task(user.asking.wait_for_outcome(mci, run))  # for the run that was asked for
    second = await reset(client, mci, run, task)
    again = await reset(client, mci, second, 0)  # and once more
    assert [await read_run_state(client, mci, each) for each in (run, second, again)] == [RunState.OPEN] * 3
    report = await user.asking.run_sweep(SweepOptions(limits={ANY_ACTION: 0}))
    assert [found.finding for found in report.found if found.path == mci] == [HealFinding.SLOW]
    found = await user.asking.run_query(wire.VERIFY_ACTIVITY, ReadQuery(path=mci), VerificationReport, seconds=60)
    assert found.findings == []
    await user.heal_faults()
    assert (await user.asking.wait_for_outcome(mci, again)).result is ActionResult.SUCCEEDED
    assert (await waiting).result is ActionResult.SUCCEEDED  # and hears of it, however often that was reset
    assert (await user.asking.wait_for_outcome(mci, second)).result is ActionResult.SUCCEEDED
    assert [line for line in await user.history(mci) if line.action == "heal"] == []
    assert (await user.see(mci)).epoch == epoch  # the same action, not another one
    await user.books_agree()
    assert [await read_run_state(client, mci, each) for each in (run, second, again)] == [RunState.CLOSED] * 3


async def test_an_action_that_had_ended_is_not_done_again_by_a_reset(user: User) -> None:
    mci = user.mci()
    await user.do(mci, "create", spec=spec(1, ["aws"]))
    ticket = await user.admitted(mci, "suspend")
    assert (await user.asking.wait_for_outcome(mci, ticket.run)).result is ActionResult.SUCCEEDED
    await user.do(mci, "resume")
    again = await reset(user.asking.client, mci, ticket.run, 0)
    outcome = await user.asking.wait_for_outcome(mci, again)
    assert (outcome.result, outcome.action) == (ActionResult.SUCCEEDED, "suspend")
    assert (await user.see(mci)).counts == {"Running": 1}
    await user.books_agree()


async def test_force_from_above_reaches_an_action_that_was_reset(user: User, patient: None) -> None:
    await user.do(user.mci(), "create", spec=spec(2, ["aws"]))
    vm = user.vm("aws0-1")
    await user.fault("hang", vm="aws0-1", verb="reboot", seconds=60)
    ticket = await user.admitted(vm, "reboot")
    await user.until_delayed(vm)
    await reset(user.asking.client, vm, ticket.run, -1)
    await user.heal_faults()
    assert (await user.do(user.mci(), "suspend", force=True)).result is ActionResult.SUCCEEDED


async def test_who_waits_for_an_action_that_was_reset_and_then_preempted_hears_that_and_not_the_other_s_outcome(
    user: User, hung: tuple[str, str]
) -> None:
    mci, run = hung
    await reset(user.asking.client, mci, run, -1)
    await user.heal_faults()
    assert (await user.do(mci, "terminate", force=True)).result is ActionResult.SUCCEEDED
    outcome = await user.asking.wait_for_outcome(mci, run)
    assert outcome.action == "reboot"
    assert "terminated" not in outcome.message


@workflow.defn(sandboxed=False)
class Stumbling:
    """Its first task fails after its local activity, as if its worker had died."""

    keys: ClassVar[list[str]] = []

    @workflow.run
    async def run(self) -> None:
        key = make_key()
        await workflow.execute_local_activity(note_key, key, start_to_close_timeout=timedelta(seconds=PATIENCE))
        if len(self.keys) == 1:
            raise RuntimeError("the worker stumbles")


@activity.defn
async def note_key(key: str) -> None:
    Stumbling.keys.append(key)


async def test_a_task_that_is_retried_asks_with_the_same_key(client: Client, ns: str) -> None:
    Stumbling.keys.clear()
    async with Worker(client, task_queue=ns, workflows=[Stumbling], activities=[note_key]):
        await client.execute_workflow(Stumbling.run, id=f"stumbling-{ns}", task_queue=ns)
    assert len(Stumbling.keys) == 2
    assert len(set(Stumbling.keys)) == 1


class Slow:
    """A Temporal that answers a moment later, and never for one workflow."""

    namespace = "default"

    def __init__(self, deaf: str) -> None:
        self.workflow_service, self._deaf = self, deaf
        self.open = self.most = 0

    async def describe_workflow_execution(
        self, asked: DescribeWorkflowExecutionRequest, **_more: Any
    ) -> DescribeWorkflowExecutionResponse:
        self.open += 1
        self.most = max(self.most, self.open)
        await asyncio.sleep(3_600 if asked.execution.workflow_id == self._deaf else 0)
        self.open -= 1
        found = DescribeWorkflowExecutionResponse()
        found.workflow_execution_info.status = Status.WORKFLOW_EXECUTION_STATUS_TERMINATED
        return found


class AbandonCounter:
    """An inventory that only notes whose actions were abandoned."""

    def __init__(self) -> None:
        self.abandoned: list[str] = []

    async def abandon_run(self, owner: str, run: str, at: datetime, message: str) -> int:
        self.abandoned.append(owner)
        return 1


def test_five_hundred_holders_are_asked_for_many_at_a_time_and_one_that_cannot_be_is_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    owners = [f"ns:a:mci:web:vm:{n}" for n in range(500)]
    inventory, since = AbandonCounter(), datetime.now(UTC)
    temporal = Slow(deaf=owners[7])
    work = HealingActivities(temporal, inventory, CompanionReconciler(temporal))  # type: ignore[arg-type]
    holders = LockHolders(holders=[LockHolder(owner=owner, action="reboot", run="r", since=since) for owner in owners])

    @in_virtual_time  # a busy machine has the time for all the others
    async def heal() -> None:
        assert await ActivityEnvironment().run(work.heal_holders, holders) == 499

    heal()
    assert temporal.most == CONCURRENT_CALLS
    assert owners[7] not in inventory.abandoned
    assert owners[7] in caplog.text
