"""The activity of a node: carries out the orders of other workers about its processes."""

from __future__ import annotations

from temporalio import activity

from activities.heartbeat import send_heartbeats
from domain.machines.ports import MultiHostHypervisor
from domain.nodecalls import SERVE_NODE_ORDER, NodeAnswer, NodeTask


class NodeActivities:
    """Serves the nodes that this worker's host is."""

    def __init__(self, hypervisor: MultiHostHypervisor) -> None:
        self._hypervisor = hypervisor

    @activity.defn(name=SERVE_NODE_ORDER)
    async def serve_node_order(self, task: NodeTask) -> NodeAnswer:
        """Carries out an order on a node."""
        async with send_heartbeats():
            return await self._hypervisor.serve_node_order(task)
