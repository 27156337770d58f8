"""Our records of machines and their neighbours held against the hypervisor's own books."""

from __future__ import annotations

from activities.pages import list_all
from domain.machines.ports import ABSENT, Hypervisor, expected
from domain.machines.tables import TABLES
from domain.model import BrokenPromise
from domain.ports import Inventory


class HypervisorAudit:
    """I3 and I7 for this family."""

    def __init__(self, inventory: Inventory, hypervisor: Hypervisor) -> None:
        self._inventory = inventory
        self._hypervisor = hypervisor

    async def audit(self, prefix: str) -> tuple[list[BrokenPromise], int]:
        """What is wrong at or below a path, and how many objects the hypervisor has there."""
        left = {facts.path: facts.state for facts in await self._hypervisor.below(prefix)}
        size, wrong = len(left), []
        for kind in TABLES:
            if kind == "account":
                continue  # of accounts the hypervisor knows nothing
            async for view in list_all(
                self._inventory, kind, prefix
            ):  # a page of records in memory, however many there are
                found = left.pop(view.path, ABSENT)
                if view.status not in TABLES[kind].transitional and found != expected(kind, view.status):
                    wrong.append(BrokenPromise("I7", view.path, f"is {view.status}, but the hypervisor has it {found}"))
        orphans = [
            BrokenPromise("I3", path, f"is {state} at the hypervisor, but unknown here") for path, state in left.items()
        ]
        return orphans + wrong, size
