"""The simulated clouds' fault script, for users and tests: set from the CLI or a file."""

from __future__ import annotations

from typing import Protocol

from temporalio import activity

from domain import wire
from domain.faults import Fault, FaultScript


class Faulty(Protocol):
    """A cloud that can be told to fail."""

    async def set_faults(self, faults: list[Fault]) -> None: ...

    async def add_fault(self, fault: Fault) -> None: ...

    async def faults(self) -> list[Fault]: ...


class Simulation:
    """Changes the fault script of the simulated clouds, and tells what it is."""

    def __init__(self, cloud: Faulty) -> None:
        self._cloud = cloud

    @activity.defn(name=wire.CLOUD_FAULTS)
    async def faults(self, script: FaultScript) -> FaultScript:
        """Replace the script, or add to it; answers what it is then."""
        if script.replace:
            await self._cloud.set_faults(script.faults)
        else:
            for fault in script.faults:
                await self._cloud.add_fault(fault)
        return FaultScript(faults=await self._cloud.faults())
