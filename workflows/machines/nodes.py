"""Actions on nodes: maintenance, enable, decommission. Machines are moved or stopped by their own actions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.machines import MachineActivities
    from domain import machines
    from domain.errors import one_line
    from domain.machines.messages import MachineTerms, ObjectTask, Residents
    from domain.model import Done, Grant, Query, Request
    from workflows.action import Action, Failed, action_workflow
    from workflows.calls import HEARTBEAT, act_on, run_quick
    from workflows.machines.operate import OPERATE_PATIENCE, SETTLE_PATIENCE, on_hypervisor

AT_ONCE = 10  # machines that are moved, stopped or started side by side
ROUNDS = 3  # machines may arrive while the node is cleared, until the hypervisor has cordoned it
BUSY_PATIENCE = timedelta(minutes=1)  # for another action on a machine to end


@action_workflow(machines.NODE_WORK)
class WorkOnNode(Action):
    """Maintains, enables or decommissions a node."""

    async def perform(self, request: Request, grant: Grant) -> Done:
        match request.action:
            case "maintain":
                return await self._maintain(grant)
            case "enable":
                return await self._enable(grant)
            case _:
                return await self._decommission(grant)

    async def settle(self, request: Request, grant: Grant) -> Done:
        work = await on_hypervisor(MachineActivities.settle_object, ObjectTask(grant=grant), SETTLE_PATIENCE)
        return Done(message=work.message)

    async def _maintain(self, grant: Grant) -> Done:
        """Cordons the node, then migrates its machines; stops those that cannot move."""
        await _order(grant, "maintain")
        stopped = await self._clear(grant, move=MachineTerms.model_validate(grant.details).mode != "stop", stop=True)
        note = f"{len(stopped)} machines were stopped; they start again on enable" if stopped else ""
        return Done(message=note, info={"stopped": stopped})

    async def _enable(self, grant: Grant) -> Done:
        """Enables the node, and starts the machines that were stopped for the maintenance, if still stopped."""
        await _order(grant, "enable")
        stopped = MachineTerms.model_validate(grant.details).stopped
        ends = await self._each(stopped, lambda path: _act(path, "start"))
        failed = [f"{path}: {why}" for path, why in ends.items() if why]
        return Done(message=one_line("; ".join(failed)), info={"stopped": None})

    async def _decommission(self, grant: Grant) -> Done:
        await _order(grant, "maintain")
        await self._clear(grant, move=True, stop=False)
        await _order(grant, "decommission")
        return Done(info={"stopped": None})

    async def _clear(self, grant: Grant, move: bool, stop: bool) -> list[str]:
        """Migrates or stops all machines. Returns the stopped ones; raises Failed if one can be neither."""
        stopped: list[str] = []
        left: dict[str, str] = {}
        for _ in range(ROUNDS):
            residents = (await _residents(grant.path)).machines
            todo = [path for path, runs in residents.items() if runs or not stop]
            if not todo:
                return stopped
            self.show(step=f"{len(todo)} machines to clear", targets=0)
            left = await self._each(todo, lambda path: _act(path, "migrate")) if move else dict.fromkeys(todo, "stop")
            if stop:
                stopping = [path for path, why in left.items() if why]
                left = await self._each(stopping, lambda path: _act(path, "stop"))
                stopped += [path for path, why in left.items() if not why]
        if still := [path for path, runs in (await _residents(grant.path)).machines.items() if runs or not stop]:
            raise Failed(
                one_line(f"{still[0]} cannot be cleared from the node: {left.get(still[0]) or 'it came back'}")
            )
        return stopped

    async def _each(self, paths: list[str], act: Callable[[str], Awaitable[str]]) -> dict[str, str]:
        """Acts on each machine, some in parallel. Returns the error of each, or an empty string."""
        room = asyncio.Semaphore(AT_ONCE)

        async def one(path: str) -> str:
            async with room:
                return await act(path)

        ends = await asyncio.gather(*map(one, paths))
        return dict(zip(paths, ends, strict=True))


async def _order(grant: Grant, verb: str) -> None:
    await on_hypervisor(MachineActivities.operate_object, ObjectTask(grant=grant, verbs=[verb]), OPERATE_PATIENCE)


async def _residents(node: str) -> Residents:
    summary = "which machines are there?"
    return await run_quick(
        MachineActivities.machines_on, Query(path=node), HEARTBEAT, summary, SETTLE_PATIENCE, machines.QUEUE
    )


async def _act(path: str, action: str) -> str:
    """Carries out a normal action on a machine. It goes on if the node's action is cancelled. Returns the error."""
    spec = {"node": None} if action == "migrate" else None
    node = workflow.info().workflow_id
    request = Request(path=path, action=action, spec=spec, requested_by=node, reason=f"work on {node}")
    return await act_on(request, busy_for=BUSY_PATIENCE, leave_running=True)
