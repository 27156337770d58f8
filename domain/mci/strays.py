"""What travels about an orphan that is acted on."""

from __future__ import annotations

from datetime import datetime

from domain.model import Model


class StrayOrder(Model):
    """An orphan that is acted on: its own path, below the path that it carries, and where it is, if that is known."""

    path: str
    epoch: int
    place: str = ""
    own: str = ""  # the cloud id of the VM that the record has had so far


class Identified(Model):
    """An orphan as its cloud describes it, or what keeps it from being adopted."""

    state: str = ""
    address: str = ""
    problem: str = ""


class Adoption(Model):
    """Give an orphan to the record of the path that it carries."""

    order: StrayOrder
    seen: Identified
    at: datetime
