"""Orders to nodes: hosts that workers serve, each by a task queue of its own.

What is to be done stands in a file that the backend's workers share; the message only names it. So whoever can write to
the Temporal namespace cannot give an order, and an order that was given up is void.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from domain.message import FrozenModel

SERVE_NODE_ORDER = "serve_node_order"
_QUEUE_PREFIX = "node-"


class NodeTask(FrozenModel):
    """Tells the worker of a node that an order waits for it, and the secret that the order has."""

    node: str
    order: str  # the name of the order's file
    ticket: str


class NodeAnswer(FrozenModel):
    """What an order has led to; or the class of its ProviderError, and its text."""

    value: Any = None
    error_type: str = ""
    error: str = ""


CallNode = Callable[[NodeTask], Awaitable[NodeAnswer]]


def node_queue(node: str) -> str:
    """Returns the task queue of a node."""
    return f"{_QUEUE_PREFIX}{node}"


def node_of_queue(queue: str) -> str:
    """Returns the node whose task queue this is, or an empty string."""
    return queue.removeprefix(_QUEUE_PREFIX) if queue.startswith(_QUEUE_PREFIX) else ""
