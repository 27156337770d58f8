"""Faults that a simulated cloud can be told to have: rules, tried in order.

`slow` and `hang` take their time and leave the call to the later rules; every other kind settles it. `times` counts
VMs, not calls. A rule for the verb `*` is about the verbs that change VMs; reads (`describe`, `list`, `validate`) and
what is done to a region's shared resources (`prepare`, `release`) meet it only if it delays, hides a status, or is an
outage of everything in a region (`throttle` or `unavailable` with vm `*`). To fail them otherwise, name the verb. A
shared resource goes by its name in place of a VM's: `vnet`, `securityGroup`, `sshKey`.
"""

from __future__ import annotations

from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Self

from pydantic import Field, model_validator

from domain.model import Model, ShortText, ShortWord
from domain.paths import name_of

APART = ("describe", "list", "validate", "prepare", "release")  # what a rule for `*` is not about by itself


class FaultKind(StrEnum):
    """What a simulated cloud, or another simulated provider, can be told to do wrong."""

    FAIL = "fail"  # Rejected
    CAPACITY = "capacity"  # NoCapacity: create finds no room in the region
    THROTTLE = "throttle"  # Throttled, with `retry_after` if given
    UNAVAILABLE = "unavailable"  # Unavailable
    LOSE_ANSWER = "lose-answer"  # does the work, then UnknownOutcome
    HANG = "hang"  # waits `seconds`, then does the work
    SLOW = "slow"  # the same, with the cloud's jitter
    UNKNOWN_STATUS = "unknown-status"  # describe finds a state that nobody knows
    LIE = "lie"  # terminate says done, but the VM lives


_DELAYS = (FaultKind.HANG, FaultKind.SLOW)
_OUTAGES = (FaultKind.THROTTLE, FaultKind.UNAVAILABLE)
_ONLY_VERB = {FaultKind.LIE: "terminate", FaultKind.UNKNOWN_STATUS: "describe", FaultKind.CAPACITY: "create"}


class Fault(Model):
    """One rule. `region` and `vm` are globs; `vm` is held against the VM's name and against its path."""

    kind: FaultKind
    csp: ShortWord = "*"
    region: ShortWord = "*"
    vm: ShortText = "*"
    verb: ShortWord = "*"
    times: int | None = Field(None, ge=1)
    retry_after: float | None = Field(None, ge=0)
    seconds: float = Field(1.0, ge=0)
    message: ShortText = ""

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        only = _ONLY_VERB.get(self.kind)
        if only and self.verb not in ("*", only):
            raise ValueError(f"{self.kind} is about {only}, not {self.verb}")
        return self

    def meets(self, verb: str, region: str, path: str) -> bool:
        return self._about(verb) and fnmatchcase(region, self.region) and self._covers(path)

    def _about(self, verb: str) -> bool:
        if self.verb != "*":
            return self.verb == verb
        if only := _ONLY_VERB.get(self.kind):
            return verb == only
        return verb not in APART or self.kind in _DELAYS or (self.kind in _OUTAGES and self.vm == "*")

    def _covers(self, path: str) -> bool:
        return self.vm == "*" or fnmatchcase(name_of(path), self.vm) or fnmatchcase(path, self.vm)


class FaultScript(Model):
    """A script as a file or a command gives it; `replace` forgets the rules that were there."""

    faults: list[Fault] = Field(default=[], max_length=1_000)
    replace: bool = False
