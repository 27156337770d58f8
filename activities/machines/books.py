"""Our records of machines and their neighbours held against the hypervisor's own books."""

from __future__ import annotations

from activities.pages import every
from domain.machines.port import ABSENT, Hypervisor, expected
from domain.machines.tables import TABLES
from domain.model import Finding
from domain.ports import Inventory


class HypervisorBooks:
    """I3 and I7 for this family."""

    def __init__(self, inventory: Inventory, hypervisor: Hypervisor) -> None:
        self._inventory = inventory
        self._hypervisor = hypervisor

    async def audit(self, prefix: str) -> tuple[list[Finding], int]:
        """What is wrong at or below a path, and how many objects the hypervisor has there."""
        real = {facts.path: facts for facts in await self._hypervisor.below(prefix)}
        kinds = [kind for kind in TABLES if kind != "account"]  # of accounts the hypervisor knows nothing
        records = {view.path: view for kind in kinds async for view in every(self._inventory, kind, prefix)}
        orphans = [
            Finding("I3", path, f"is {facts.state} at the hypervisor, but unknown here")
            for path, facts in real.items()
            if path not in records
        ]
        wrong = []
        for path, view in records.items():
            if view.status in TABLES[view.kind].transitional:
                continue
            found = real[path].state if path in real else ABSENT
            if found != expected(view.kind, view.status):
                wrong.append(Finding("I7", path, f"is {view.status}, but the hypervisor has it {found}"))
        return orphans + wrong, len(real)
