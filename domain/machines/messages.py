"""What travels between this family's workflows and activities."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol

from domain.model import Grant, Model


class ObjectTask(Model):
    """An action to be carried out, or with `verbs` only these orders of it."""

    grant: Grant
    verbs: list[str] | None = None


class ObjectResult(Model):
    """What was done."""

    message: str = ""
    to: str = ""
    info: dict[str, Any] = {}


class Bin(Model):
    """The recycle bin of a tenant: an account, or `image` for all that belongs to none."""

    tenant: str


class BinQuery(Model):
    """What of a bin is due at a time: at most so many entries, none of those that are being worked on or put off."""

    tenant: str
    at: datetime
    limit: int
    busy: list[str] = []  # being destroyed: what lies below them goes along
    later: list[str] = []  # could not be destroyed just now


class BinEntry(Model):
    """An object in the recycle bin, by the number under which it was deleted."""

    path: str
    number: int


class BinList(Model):
    """What is due, when the next entry is, and whether something due is still on its way into the bin."""

    due: list[BinEntry] = []
    next: datetime | None = None
    waiting: bool = False


class RecycleBin(Protocol):
    """The recycle bin as the inventory has it."""

    async def due(self, query: BinQuery) -> BinList: ...

    async def overdue(self, prefix: str, before: datetime) -> dict[str, str]:
        """Entries at or below a path whose time was over before that moment, each with that time as it is kept."""
        ...

    async def tenants(self) -> list[str]:
        """Whoever has something in the bin, or on its way there."""
        ...


class Residents(Model):
    """The machines on a node: by path, whether each is running."""

    machines: dict[str, bool]
