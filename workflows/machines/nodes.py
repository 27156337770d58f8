"""Actions on nodes: maintenance, enable, decommission. Machines are moved or stopped by their own actions."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.machines import MachineActivities
    from domain import machines
    from domain.errors import format_count, format_one_line
    from domain.machines.messages import HypervisorTask, MachineGrantDetails, MachinesOnNode
    from domain.model import Grant, ReadQuery, Request, WorkReport
    from workflows.action import ActionWorkflow, WorkFailed, action_workflow
    from workflows.calls import HEARTBEAT, run_child_action, run_short_activity
    from workflows.machines.operate import OPERATE_TIMEOUT, SETTLE_TIMEOUT, run_on_hypervisor

CONCURRENT_MACHINES = 10  # machines that are moved, stopped or started side by side
MAX_ROUNDS = 3  # machines may arrive while the node is cleared, until the hypervisor has cordoned it
BUSY_PATIENCE = timedelta(minutes=1)  # for another action on a machine to end


@action_workflow(machines.WORK_ON_NODE)
class WorkOnNode(ActionWorkflow):
    """Maintains, enables or decommissions a node."""

    async def perform_work(self, request: Request, grant: Grant) -> WorkReport:
        match request.action:
            case "maintain":
                return await self._maintain_node(grant)
            case "enable":
                return await self._enable_node(grant)
            case _:
                return await self._decommission_node(grant)

    async def settle_work(self, request: Request, grant: Grant) -> WorkReport:
        work = await run_on_hypervisor(MachineActivities.settle_object, HypervisorTask(grant=grant), SETTLE_TIMEOUT)
        return WorkReport(message=work.message)

    async def _maintain_node(self, grant: Grant) -> WorkReport:
        """Cordons the node, then migrates or stops its machines. Without leave to stop them, all have to move."""
        await _order_node(grant, "maintain")
        mode = MachineGrantDetails.model_validate(grant.details).mode
        stopped = await self._evacuate_node(grant, move=mode != "stop", stop=mode != "move")
        note = f"stopped, to be started again on enable: {format_count(len(stopped), 'machine')}" if stopped else ""
        return WorkReport(message=note, info={"stopped": stopped})

    async def _enable_node(self, grant: Grant) -> WorkReport:
        """Enables the node, and starts the machines that were stopped for the maintenance, if still stopped."""
        await _order_node(grant, "enable")
        stopped = MachineGrantDetails.model_validate(grant.details).stopped
        ends = await _act_on_machines(grant, stopped, "start")
        failed = [f"{path}: {why}" for path, why in ends.items() if why]
        return WorkReport(message=format_one_line("; ".join(failed)), info={"stopped": None})

    async def _decommission_node(self, grant: Grant) -> WorkReport:
        await _order_node(grant, "maintain")
        await self._evacuate_node(grant, move=True, stop=False, halted=True)
        await _order_node(grant, "decommission")
        return WorkReport(info={"stopped": None})

    async def _evacuate_node(self, grant: Grant, move: bool, stop: bool, halted: bool = False) -> list[str]:
        """Migrates or stops all machines, with `halted` also those that do not run. Returns the stopped ones; raises
        Failed if one stays."""
        stopped: list[str] = []
        left: dict[str, str] = {}
        for _ in range(MAX_ROUNDS):
            residents = (await _read_machines_on(grant.path)).machines
            todo = [path for path, runs in residents.items() if runs or halted]
            if not todo:
                return stopped
            self.update_progress(step=f"{format_count(len(todo), 'machine')} to clear", targets=0)
            left = await _act_on_machines(grant, todo, "migrate") if move else dict.fromkeys(todo, "stop")
            if stop:
                stopping = [path for path, why in left.items() if why]
                left = await _act_on_machines(grant, stopping, "stop")
                stopped += [path for path, why in left.items() if not why]
        if still := [path for path, runs in (await _read_machines_on(grant.path)).machines.items() if runs or halted]:
            raise WorkFailed(
                format_one_line(f"{still[0]} cannot be cleared from the node: {left.get(still[0]) or 'it came back'}")
            )
        return stopped


async def _order_node(grant: Grant, verb: str) -> None:
    await run_on_hypervisor(
        MachineActivities.operate_object, HypervisorTask(grant=grant, verbs=[verb]), OPERATE_TIMEOUT
    )


async def _read_machines_on(node: str) -> MachinesOnNode:
    summary = "which machines are there?"
    return await run_short_activity(
        MachineActivities.machines_on,
        ReadQuery(path=node),
        HEARTBEAT,
        summary,
        SETTLE_TIMEOUT,
        machines.HYPERVISOR_QUEUE,
    )


async def _act_on_machines(grant: Grant, paths: list[str], action: str) -> dict[str, str]:
    """Carries out a normal action on each machine, some in parallel. Returns the error of each, or an empty string.

    The actions go on if the node's action is cancelled.
    """
    spec = {"node": None} if action == "migrate" else None
    by = {"requested_by": grant.path, "on_behalf_of": grant.principal, "reason": f"work on {grant.path}"}
    room = asyncio.Semaphore(CONCURRENT_MACHINES)

    async def one(path: str) -> str:
        async with room:
            request = Request(path=path, action=action, spec=spec, **by)
            return await run_child_action(request, busy_for=BUSY_PATIENCE, leave_running=True)

    return dict(zip(paths, await asyncio.gather(*map(one, paths)), strict=True))
