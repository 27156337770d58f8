"""`ActionClient`: request an action, wait for its outcome, cancel it, read. Every call goes through Temporal."""

from __future__ import annotations

import uuid
from contextlib import suppress
from datetime import timedelta

from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.exceptions import TemporalError, WorkflowAlreadyStartedError
from temporalio.service import RPCError

from activities.refusals import refusal_of_error
from client.admission import ActionStarter
from client.connect_errors import is_outage, to_unreachable
from client.errors import Unanswered, Unreachable
from client.launching import Ticket, workflow_id
from client.message_signer import MessageSigner
from client.takeover import take_over_run
from domain import registry, wire
from domain.dryrun import DryRun
from domain.exposure import OWN_ACTION
from domain.healing import HealReport, SweepOptions
from domain.limits import TASK_TIMEOUT
from domain.model import Admission, Progress, Request
from domain.requests import CancelOrder

__all__ = ["ActionClient", "Ticket"]

SWEEP = "sweep"  # the activity that judges the order
PROGRESS_SECONDS = 5  # a running action answers at once if a worker serves it


class ActionClient(ActionStarter):
    """Everything that a program can request of Ratchet, over one connection to Temporal."""

    def __init__(self, client: Client, ui: str = "", message_signer: MessageSigner | None = None) -> None:
        super().__init__(client, message_signer)
        self.ui = ui

    def web_ui_url(self, path: str, run: str) -> str:
        """Returns the action's URL in the Web UI; empty if the Web UI's address is not known."""
        if not (self.ui and run):
            return ""
        return f"{self.ui}/namespaces/{self.client.namespace}/workflows/{path}/{run}/history"

    async def request_action(self, request: Request) -> Ticket:
        """Starts an action and waits until it is admitted or refused. Temporal itself refuses a busy object."""
        registry.parse_spec(request)
        request = self.message_signer.sign(request, OWN_ACTION)
        await self._check_served()
        try:
            try:
                return await self.start_action(request)
            except WorkflowAlreadyStartedError:
                return await self._handle_busy_object(request)
        except WorkflowUpdateFailedError as error:
            if (refusal := refusal_of_error(error.cause)) is None:
                raise Unanswered(f"the action could not answer: {error.cause}") from error
            return Ticket(request.path, "", Admission(refusal=refusal))

    async def check_request(self, request: Request) -> DryRun:
        """Dry run: returns the answer that `request_action` would get now. Changes nothing."""
        kind = registry.kind_at(request.path)
        kind.parse_spec(request.action, request.spec)
        request = self.message_signer.sign(request, OWN_ACTION)
        newest = await self.newest_run(workflow_id(request))
        if (
            newest
            and newest.is_open
            and (newest.describe_pause() or not kind.may_preempt(request.action, request.force))
        ):
            return DryRun(refusal=await self.conflict_refusal(request, newest))
        return await self.run_query(wire.READ_CHECK, request, DryRun, seconds=self.admission_seconds)

    async def read_progress(self, path: str, run: str | None = None) -> Progress:
        """Queries a running action for its progress."""
        seen: Progress = await self.client.get_workflow_handle(path, run_id=run).query(
            wire.PROGRESS_QUERY, result_type=Progress, rpc_timeout=timedelta(seconds=PROGRESS_SECONDS)
        )
        return seen

    async def try_read_progress(self, path: str, run: str | None = None) -> Progress | None:
        """Reads the progress, in two tries; None if the action does not answer, such as while its worker is frozen."""
        for _ in range(2):
            with suppress(RPCError, TemporalError, ValueError):  # the SDK has no name for a paused run's status
                return await self.read_progress(path, run)
        return None

    async def read_current_step(self, path: str) -> str:
        """Returns the current step of a running action, in its own words; empty if it does not answer."""
        seen = await self.try_read_progress(path)
        return seen.step if seen else ""

    async def run_sweep(self, order: SweepOptions) -> HealReport:
        """Runs a sweep of self-healing now. It does not join a running sweep, whose orders may differ."""
        await self.check_polled(wire.ACTIONS_QUEUE)
        run = f"{wire.HEAL_SCHEDULE}-{uuid.uuid4().hex[:12]}"
        report: HealReport = await self.client.execute_workflow(
            wire.HEAL_WORKFLOW,
            self.message_signer.sign(order, SWEEP),
            id=run,
            task_queue=wire.ACTIONS_QUEUE,
            task_timeout=TASK_TIMEOUT,
            result_type=HealReport,
        )
        return report

    async def cancel_action(self, path: str, run: str = "") -> None:
        """Asks the running action to clean up and end; `path` is its workflow ID. A worker asks the policy first."""
        order = CancelOrder(path=wire.object_path_of(path), workflow=path, run=run)
        await self.run_query(wire.CANCEL_ACTIVITY, order, CancelOrder)

    async def _check_served(self) -> None:
        """Raises Unreachable if no worker polls for actions, or Temporal does not answer: nothing was started."""
        try:
            await self.check_polled(wire.ACTIONS_QUEUE)
        except RPCError as error:
            if not is_outage(error):
                raise
            raise Unreachable(f"{to_unreachable(error, self.client.namespace)}; nothing was started") from error

    async def _handle_busy_object(self, request: Request) -> Ticket:
        """Handles an object with a running action: ours from an earlier try, one to preempt, or a conflict."""
        running = await self.newest_run(workflow_id(request))
        if running and request.request_id and (await running.memo()).get("request_id") == request.request_id:
            return await self.wait_for_admission(request, running.run_id)
        if running and registry.may_preempt(request) and not running.describe_pause():
            named = request.model_copy(update={"request_id": request.request_id or uuid.uuid4().hex})
            return await take_over_run(self, named, running.run_id)
        refusal = await self.conflict_refusal(request, running)
        return Ticket(workflow_id(request), running.run_id if running else "", Admission(refusal=refusal))
