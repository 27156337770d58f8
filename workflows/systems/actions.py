"""The actions on systems: create, deploy, teardown, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, FailureError, TimeoutError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.systems.backend import BackendActivities, SystemRecordActivities
    from domain.errors import format_count
    from domain.model import Grant, Move, Request, StepResult, WorkReport
    from domain.paths import kind_of
    from domain.statetable import NONE
    from domain.systems import TearDownSpec, ports
    from domain.systems.ports import (
        AcceptDeploy,
        RevertDeploy,
        RollOutResult,
        SystemGrantDetails,
        SystemWork,
        backend_queue,
    )
    from domain.systems.specs import DeploySpec
    from domain.systems.tables import PART, DeployStage, PartState
    from workflows import calls
    from workflows.action import ActionWorkflow, WorkFailed, action_workflow

PREPARE_TIMEOUT = timedelta(minutes=5)
SETTLE_TIMEOUT = timedelta(minutes=10)

T = TypeVar("T")
BackendActivity = Callable[[Any, SystemWork], Awaitable[T]]


class _SystemAction(ActionWorkflow):
    """Base of the actions whose work a backend does."""

    async def run_on_backend(
        self, activity: BackendActivity[T], work: SystemWork, patience: timedelta, summary: str
    ) -> T:
        """Runs an activity on the backend's queue."""
        return await calls.run_provider_activity(activity, work, patience, summary, backend_queue(work.backend))

    async def write_to_inventory(self, activity: Callable[[Any, Any], Awaitable[StepResult]], what: Any) -> None:
        """Writes to the inventory; raises WorkFailed if the write is refused, as the action has lost its system."""
        stepped = await calls.run_local_activity(activity, what)
        if not stepped.made:
            raise WorkFailed("; ".join(stepped.refusals[:3]))


def make_system_work(grant: Grant, undo: bool = False) -> SystemWork:
    """Returns the SystemWork of a granted action; with `undo`, of its rollback."""
    terms, born = SystemGrantDetails.model_validate(grant.details), grant.came_from == NONE
    same = {"path": grant.path, "epoch": grant.epoch, "undo": undo, "born": born}
    return SystemWork(backend=terms.backend, record=terms.record, **same)


def _is_deadline(error: ActivityError) -> bool:
    """Tells whether work ran out of its time. Work that is cut off times out, too, if its worker is dead by then."""
    task = asyncio.current_task()
    return isinstance(error.cause, TimeoutError) and not (task and task.cancelling())


def _make_stage_moves(grant: Grant, stage: DeployStage, message: str = "") -> list[Move]:
    """Returns the moves that bring the record of the deploy or the teardown to its end."""
    record = make_system_work(grant).record
    return [Move(path=record, to=stage, message=message, error=message)] if record else []


@action_workflow(ports.CREATE_SYSTEM)
class CreateSystem(_SystemAction):
    """Creates a system: its backend creates what it needs before the first service."""

    async def perform_work(self, request: Request, grant: Grant) -> WorkReport:
        await self.run_on_backend(
            BackendActivities.prepare_system, make_system_work(grant), PREPARE_TIMEOUT, "prepare the system"
        )
        return WorkReport()


@action_workflow(ports.DEPLOY_PART)
class DeployPart(_SystemAction):
    """Replaces the definition of exactly one subtree, and waits until its services are stable."""

    def __init__(self) -> None:
        super().__init__()
        self._why = "cut off"
        self._undone = False

    async def perform_work(self, request: Request, grant: Grant) -> WorkReport:
        spec, work = self.spec(DeploySpec), make_system_work(grant)
        name = SystemGrantDetails.model_validate(grant.details).name
        asked = AcceptDeploy(work=work, definition=(request.spec or {})["definition"], at=workflow.now())
        await self.write_to_inventory(SystemRecordActivities.accept_deploy, asked)
        self.update_progress(phase=DeployStage.IN_PROGRESS, step=f"{name} waits for its services to be stable")
        rolled = await self._roll_out(work, spec.deadline)
        if rolled.ok:
            note = f"{name}: {format_count(rolled.services, 'service')} rolled out"
            return WorkReport(message=note, moves=_make_stage_moves(grant, DeployStage.SUCCEEDED))
        self._why = rolled.reason
        raise WorkFailed(f"{name}: {rolled.reason}")

    async def settle_work(self, request: Request, grant: Grant) -> WorkReport:
        """Rolls back if requested, unless another action takes over; else writes the true status of the services."""
        spec, moves = self.spec(DeploySpec), _make_stage_moves(grant, DeployStage.FAILED, self._why)
        if spec.rollback and self._successor is None and await self._roll_back(grant, spec.deadline):
            to = "" if kind_of(grant.path) != PART.kind else NONE if grant.came_from == NONE else PartState.STABLE
            return WorkReport(message="rolled back to the former definition", to=to, moves=moves)
        if self._undone and self._successor:  # which need not wait until what is new has gone
            return WorkReport(moves=moves)
        self.update_progress(step="finding out what became of the services")
        work = make_system_work(grant, self._undone)
        left = await self.run_on_backend(
            BackendActivities.settle_parts, work, SETTLE_TIMEOUT, "what became of the services?"
        )
        return WorkReport(message="could not be rolled back" if self._undone else "", to=left.own, moves=moves)

    async def _roll_back(self, grant: Grant, deadline: float) -> bool:
        """Restores the former definition. An action that takes over cuts it off."""
        self.update_progress(step="putting the former definition back")
        await self.write_to_inventory(
            SystemRecordActivities.revert_deploy, RevertDeploy(work=make_system_work(grant), at=workflow.now())
        )
        self._undone = True
        rolling = asyncio.create_task(self._roll_out(make_system_work(grant, undo=True), deadline))
        await workflow.wait_condition(lambda: rolling.done() or self._successor is not None)
        if not rolling.done():
            rolling.cancel()
        try:
            return (await rolling).ok
        except (FailureError, asyncio.CancelledError) as error:
            if self._successor is None or not is_cancelled_exception(error):
                raise
            return False

    async def _roll_out(self, work: SystemWork, deadline: float) -> RollOutResult:
        """Rolls out until a deadline, a server-side timer that also runs without a worker."""
        summary = "put the former definition back" if work.undo else "roll out"
        try:
            return await self.run_on_backend(BackendActivities.roll_out, work, timedelta(seconds=deadline), summary)
        except ActivityError as error:
            if not _is_deadline(error):
                raise
            seen = await self.run_on_backend(
                BackendActivities.assess_parts, work, SETTLE_TIMEOUT, "which are not stable?"
            )
            if seen.ok:  # all was written before the deadline, and only the answer was late
                return seen
            return RollOutResult(ok=False, reason=f"not stable within {deadline:g} s: {seen.reason}")


class _RemovalAction(_SystemAction):
    """Base of teardown and delete: remove every service of the system."""

    def __init__(self) -> None:
        super().__init__()
        self._why = "cut off before every service was gone"

    async def perform_work(self, request: Request, grant: Grant) -> WorkReport:
        spec, work = self.spec(TearDownSpec), make_system_work(grant)
        await self.write_to_inventory(SystemRecordActivities.accept_removal, RevertDeploy(work=work, at=workflow.now()))
        self.update_progress(step="waiting until every service is gone")
        try:
            rolled = await self.run_on_backend(
                BackendActivities.remove_parts, work, timedelta(seconds=spec.deadline), "stop and remove every service"
            )
        except ActivityError as error:
            if not _is_deadline(error):
                raise
            self._why = f"not gone within {spec.deadline:g} s"
            raise WorkFailed(self._why) from error
        return WorkReport(
            message=f"{format_count(rolled.services, 'service')} removed",
            moves=_make_stage_moves(grant, DeployStage.SUCCEEDED),
        )

    async def settle_work(self, request: Request, grant: Grant) -> WorkReport:
        """Writes the true status of what a removal left, unless another action takes over."""
        if self._successor:
            return WorkReport(moves=_make_stage_moves(grant, DeployStage.FAILED, self._why))
        self.update_progress(step="finding out what is left")
        left = await self.run_on_backend(
            BackendActivities.settle_removal, make_system_work(grant), SETTLE_TIMEOUT, "what is left?"
        )
        reason = f"{self._why}: {left.reason}" if left.reason else self._why
        return WorkReport(message=left.reason, moves=_make_stage_moves(grant, DeployStage.FAILED, reason))


@action_workflow(ports.TEAR_DOWN_SYSTEM)
class TearDownSystem(_RemovalAction):
    """Stops and removes every service; the system stays, and can be deployed to again."""


@action_workflow(ports.DELETE_SYSTEM)
class DeleteSystem(_RemovalAction):
    """Tears the system down and removes it. It takes over from any running action."""
