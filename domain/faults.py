"""Fault rules for the simulated clouds and other simulated providers: the first rule that matches decides.

`slow` and `hang` only delay the call, and later rules still apply; every other kind decides it. `times` counts VMs, not
calls. A rule for the verb `*` applies to the verbs that change VMs. To reads (`describe`, `list`, `validate`) and to a
region's shared resources (`prepare`, `release`) it applies only if it delays, hides a status, or is an outage of a
whole region (`throttle` or `unavailable` with vm `*`); to fail them otherwise, name the verb. For a shared resource,
`vm` is matched against `vnet`, `securityGroup` or `sshKey`.
"""

from __future__ import annotations

from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Self

from pydantic import Field, model_validator

from domain.model import FrozenModel, ShortText, ShortWord, SignedMessage
from domain.paths import name_of

VERBS_OUTSIDE_WILDCARD = (
    "describe",
    "list",
    "validate",
    "prepare",
    "release",
)  # verbs that a rule for `*` does not match by itself


class FaultKind(StrEnum):
    """The ways in which a simulated provider can fail or delay a call."""

    FAIL = "fail"  # Rejected
    CAPACITY = "capacity"  # NoCapacity: create finds no room in the region
    THROTTLE = "throttle"  # Throttled, with `retry_after` if given
    UNAVAILABLE = "unavailable"  # Unavailable
    LOSE_ANSWER = "lose-answer"  # does the work, then UnknownOutcome
    HANG = "hang"  # waits `seconds`, then does the work
    SLOW = "slow"  # the same, with the cloud's jitter
    UNKNOWN_STATUS = "unknown-status"  # describe returns VmState.UNKNOWN
    LIE = "lie"  # terminate reports success, but the VM keeps running


_DELAY_KINDS = (FaultKind.HANG, FaultKind.SLOW)
_OUTAGE_KINDS = (FaultKind.THROTTLE, FaultKind.UNAVAILABLE)
_ONLY_VERB_OF_KIND = {FaultKind.LIE: "terminate", FaultKind.UNKNOWN_STATUS: "describe", FaultKind.CAPACITY: "create"}


class Fault(FrozenModel):
    """One rule. `region` and `vm` are globs; `vm` is matched against the VM's name and against its path."""

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
    def _check_combination(self) -> Self:
        only = _ONLY_VERB_OF_KIND.get(self.kind)
        if only and self.verb not in ("*", only):
            raise ValueError(f"{self.kind} is about {only}, not {self.verb}")
        return self

    def matches(self, verb: str, region: str, path: str) -> bool:
        """Tells whether the rule matches a call of `verb` for the VM at `path` in `region`."""
        matches_vm = any(fnmatchcase(text, self.vm) for text in (name_of(path), path))
        return self._matches_verb(verb) and fnmatchcase(region, self.region) and matches_vm

    def _matches_verb(self, verb: str) -> bool:
        if self.verb != "*":
            return self.verb == verb
        if only := _ONLY_VERB_OF_KIND.get(self.kind):
            return verb == only
        return (
            verb not in VERBS_OUTSIDE_WILDCARD
            or self.kind in _DELAY_KINDS
            or (self.kind in _OUTAGE_KINDS and self.vm == "*")
        )


class FaultScript(SignedMessage):
    """Fault rules as a file or a command gives them; `replace` drops the rules that were set before."""

    faults: list[Fault] = Field(default=[], max_length=1_000)
    replace: bool = False
