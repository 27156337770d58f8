"""Reads and changes the fault script of all simulated providers, for users and tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from temporalio import activity

from activities.reads import refusals_as_errors
from domain import wire
from domain.errors import Category, Refused, suggest_word
from domain.faults import Fault, FaultScript

ANY_CLOUD = "*"


class FaultInjectable(Protocol):
    """A simulated provider whose fault script can be read and changed."""

    async def set_faults(self, faults: list[Fault]) -> None: ...

    async def add_fault(self, fault: Fault) -> None: ...

    async def list_faults(self) -> list[Fault]: ...


class FaultActivities:
    """Reads and changes the fault script. `simulated`: the providers that can fail, and their verbs."""

    def __init__(self, cloud: FaultInjectable, simulated: Mapping[str, Sequence[str]]) -> None:
        self._cloud = cloud
        self._simulated = simulated

    @activity.defn(name=wire.CLOUD_FAULTS)
    @refusals_as_errors
    async def change_fault_script(self, script: FaultScript) -> FaultScript:
        """Replaces the fault script or adds rules. Returns the script; refuses a rule that can never match."""
        for fault in script.faults:
            self._check_fault(fault)
        if script.replace:
            await self._cloud.set_faults(script.faults)
        else:
            for fault in script.faults:
                await self._cloud.add_fault(fault)
        return FaultScript(faults=await self._cloud.list_faults())

    def _check_fault(self, fault: Fault) -> None:
        if fault.csp != ANY_CLOUD and fault.csp not in self._simulated:
            hint = f"{suggest_word(fault.csp, self._simulated)}simulated here are: {', '.join(self._simulated)}"
            raise Refused(Category.INVALID, f"nothing simulated is called {fault.csp!r}: it would never fail", hint)
        named = [self._simulated[fault.csp]] if fault.csp != ANY_CLOUD else self._simulated.values()
        verbs = dict.fromkeys(verb for some in named for verb in some)
        if fault.verb != ANY_CLOUD and fault.verb not in verbs:
            who = fault.csp if fault.csp != ANY_CLOUD else "whatever is simulated"
            hint = f"{suggest_word(fault.verb, verbs)}verbs are: {', '.join(verbs)}"
            raise Refused(Category.INVALID, f"{who} knows no verb {fault.verb!r}", hint)
