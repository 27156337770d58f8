"""Audit of the machines family: compares records with the hypervisor's own."""

from __future__ import annotations

from activities.pages import list_all
from domain.machines.ports import ABSENT, Hypervisor, expected
from domain.machines.tables import TABLES
from domain.model import BrokenPromise
from domain.ports import Inventory


class HypervisorAudit:
    """Audits the machines family: compares objects' existence (I3) and states (I7) with the hypervisor."""

    def __init__(self, inventory: Inventory, hypervisor: Hypervisor) -> None:
        self._inventory = inventory
        self._hypervisor = hypervisor

    async def audit(self, prefix: str) -> tuple[list[BrokenPromise], int]:
        """Returns violations at or below a path, and the number of objects that the hypervisor has there."""
        left = {facts.path: facts.state for facts in await self._hypervisor.below(prefix)}
        size, wrong = len(left), []
        for kind in TABLES:
            if kind == "account":
                continue  # the hypervisor has no accounts
            async for view in list_all(self._inventory, kind, prefix):  # one page in memory at a time
                found = left.pop(view.path, ABSENT)
                if view.status not in TABLES[kind].transitional and found != expected(kind, view.status):
                    wrong.append(BrokenPromise("I7", view.path, f"is {view.status}, but the hypervisor has it {found}"))
        orphans = [
            BrokenPromise("I3", path, f"is {state} at the hypervisor, but unknown here") for path, state in left.items()
        ]
        return orphans + wrong, size
