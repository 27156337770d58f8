"""The messages of the wait queues: who is ahead, who may go on, and the order to close a queue or open it."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from domain.message import FrozenModel, SignedMessage
from domain.model import LockHolder


class LockHolders(FrozenModel):
    """A list of holders, as the single argument of an activity."""

    holders: list[LockHolder]


class QueuedWorkflow(FrozenModel):
    """A workflow in a wait queue, by its ID."""

    workflow: str


class QueueCommand(SignedMessage):
    """The order to close or open the wait queue at a path, for a run."""

    unsigned: ClassVar[frozenset[str]] = frozenset({"run", "at"})

    path: str
    run: str
    at: datetime
