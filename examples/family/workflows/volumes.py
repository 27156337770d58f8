"""The one workflow of every action on a volume."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from domain import volumes
    from workflows.action import action_workflow
    from workflows.singleorder import SingleOrderAction


@action_workflow(volumes.OPERATE)
class OperateVolume(SingleOrderAction):
    """Gives the one order of an action."""

    queue = volumes.QUEUE
