"""Messages about an orphan that is being removed or adopted."""

from __future__ import annotations

from datetime import datetime

from domain.model import FrozenModel


class OrphanOrder(FrozenModel):
    """An orphan to act on: its own path, below the path that the VM carries, and its place if that is known."""

    path: str
    epoch: int
    place: str = ""
    own: str = ""  # the cloud id in the record so far


class IdentifiedOrphan(FrozenModel):
    """An orphan as its cloud describes it; `problem` says why it cannot be adopted."""

    state: str = ""
    address: str = ""
    problem: str = ""


class AdoptOrphanOrder(FrozenModel):
    """The order to give an orphan to the record of the path that it carries."""

    order: OrphanOrder
    seen: IdentifiedOrphan
    at: datetime
