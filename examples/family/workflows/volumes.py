"""The one workflow of every action on a volume."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from domain import volumes
    from domain.model import Outcome, Request
    from workflows.ordered import OrderedAction


@workflow.defn(name=volumes.OPERATE)
class OperateVolume(OrderedAction):
    queue = volumes.QUEUE

    @workflow.run
    async def run(self, request: Request) -> Outcome:
        return await self.carry_out(request)
