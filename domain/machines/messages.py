"""Messages between the workflows and activities of the machine family."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol

from domain.model import FrozenModel, Grant


class MachineGrantDetails(FrozenModel):
    """The details of a grant: what begin has found out for the action."""

    named: list[str] = []  # objects besides its own that it works on
    machine: str = ""  # of a disk
    node: str = ""  # to migrate to
    order: dict[str, Any] = {}  # about a disk
    snapshot: str = ""  # the name of a machine's snapshot
    bin: int | None = None  # the number of a cloudspace's stay in the recycle bin
    until: str = ""  # when its stay there ends
    mode: str = ""  # of a node's maintenance
    stopped: list[str] = []  # machines that a node's maintenance has stopped


class HypervisorTask(FrozenModel):
    """An action to carry out; with `verbs`, only these of its orders."""

    grant: Grant
    verbs: list[str] | None = None


class HypervisorResult(FrozenModel):
    """The result of a HypervisorTask: a message, the end status if it is not the row's, and info to store."""

    message: str = ""
    to: str = ""
    info: dict[str, Any] = {}


class RecycleBinOwner(FrozenModel):
    """The recycle bin of a tenant: of an account, or `image` for the objects without an account."""

    tenant: str


class DueBinEntriesQuery(FrozenModel):
    """Asks for due entries of a recycle bin: at most `limit`, without those being destroyed or postponed."""

    tenant: str
    at: datetime
    limit: int
    busy: list[str] = []  # being destroyed, with everything below them
    later: list[str] = []  # could not be destroyed yet: postponed


class BinEntry(FrozenModel):
    """An object in the recycle bin; `number` identifies its deletion."""

    path: str
    number: int


class DueBinEntries(FrozenModel):
    """The due entries, when the next one is due, and whether a due object is still on its way into the bin."""

    due: list[BinEntry] = []
    next: datetime | None = None
    waiting: bool = False


class RecycleBinStore(Protocol):
    """The store's protocol for recycle bins."""

    async def list_due_bin_entries(self, query: DueBinEntriesQuery) -> DueBinEntries: ...

    async def list_overdue_bin_entries(self, prefix: str, before: datetime) -> dict[str, str]:
        """Returns entries at or below a path whose retention ended before that moment: path -> its end, as stored."""
        ...

    async def list_bin_tenants(self) -> list[str]:
        """Returns the tenants with something in the bin, or on its way there."""
        ...


class MachinesOnNode(FrozenModel):
    """The machines on a node: path -> whether it runs."""

    machines: dict[str, bool]
