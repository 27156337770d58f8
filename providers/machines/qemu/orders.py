"""Orders to nodes: carried out here for the nodes that this worker serves, else by a worker of the node's host."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from domain.errors import NoCapacity, ProviderError, Rejected, Unavailable, UnknownOutcome, format_one_line
from domain.nodecalls import CallNode, NodeAnswer, NodeTask
from providers.machines.qemu.node import NodeOrder, QemuNode
from providers.machines.qemu.options import QemuOptions

_ERRORS = {error.__name__: error for error in (Rejected, NoCapacity, Unavailable, UnknownOutcome)}


class NodeOrders:
    """Gives orders to nodes. An order to another worker waits in a file, one for each machine.

    The next order for the machine replaces it, and so does nobody who only knows how to call the activity: an order
    that is not there any more, or has another ticket, is not carried out.
    """

    def __init__(self, options: QemuOptions, serves_node: Callable[[str], bool], call_node: CallNode) -> None:
        self._options = options
        self._serves_node = serves_node
        self._call_node = call_node
        (options.folder / "locks").mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = options.folder / "orders"
        self._folder.mkdir(exist_ok=True, mode=0o700)

    async def give(self, node: str, verb: str, machine: str = "", **about: Any) -> Any:
        """Has an order carried out on a node. Raises a ProviderError."""
        order = NodeOrder(node=node, verb=verb, machine=machine, **about)
        if self._serves_node(node):
            return await QemuNode(self._options, node).perform_order(order)
        ticket = secrets.token_hex(16)
        name = machine or f"list-{ticket[:12]}"
        self._write_file(name, {"ticket": ticket, **order.model_dump(mode="json", exclude_defaults=True)})
        try:
            answer = await self._call_node(NodeTask(node=node, order=name, ticket=ticket))
        finally:
            self._file_of(name).unlink(missing_ok=True)
        if answer.error_type:
            raise _ERRORS.get(answer.error_type, UnknownOutcome)(answer.error)
        return answer.value

    async def perform_task(self, task: NodeTask) -> NodeAnswer:
        """Carries out an order that another worker has given."""
        try:
            order = self._take_order(task)
            return NodeAnswer(value=await QemuNode(self._options, order.node).perform_order(order))
        except ProviderError as error:
            return NodeAnswer(error_type=type(error).__name__, error=format_one_line(error))

    def _take_order(self, task: NodeTask) -> NodeOrder:
        """Reads an order and removes it: each is carried out once."""
        void = Unavailable(f"the order for {task.order[:200]} is not there any more: it was given up, or another came")
        if "/" in task.order:
            raise void
        try:
            told = json.loads(self._file_of(task.order).read_text())
            if not secrets.compare_digest(told.pop("ticket"), task.ticket) or told["node"] != task.node:
                raise void
            self._file_of(task.order).unlink()
        except (OSError, ValueError):
            raise void from None
        return NodeOrder.model_validate(told)

    def _write_file(self, name: str, content: dict[str, Any]) -> None:
        """Writes an order, whole or not at all."""
        part = self._folder / f"{secrets.token_hex(8)}.part"
        part.write_text(json.dumps(content))
        part.rename(self._file_of(name))

    def _file_of(self, name: str) -> Path:
        return self._folder / f"{name}.json"
