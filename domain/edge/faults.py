"""Fault rules for the reference CRM: the first rule that matches decides, at most `times` times."""

from __future__ import annotations

from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Literal

from pydantic import Field

from domain.model import FrozenModel, ShortText, ShortWord


class CrmFaultKind(StrEnum):
    """The ways in which the reference CRM can misbehave."""

    FAIL = "fail"  # answers with an error
    SILENT = "silent"  # never answers
    SLOW = "slow"  # takes `seconds` longer
    NO_ACK = "no-ack"  # leaves the intermediate message out
    TWICE = "twice"  # says everything twice
    CRASH_BEFORE = "crash-before"  # dies before the work is done
    CRASH_AFTER = "crash-after"  # dies after the work is done, before it says so


_InstanceVerb = Literal["*", "create", "update", "delete", "report"]
_CrmStep = Literal["start", "gather", "upgrade", "maintain", "operate", "shutdown"]
FaultVerb = _InstanceVerb | _CrmStep


class CrmFault(FrozenModel):
    """One rule. `path` is a glob; `verb` may also name the CRM's own steps: start, gather, upgrade and so on."""

    kind: CrmFaultKind
    verb: FaultVerb = "*"
    path: ShortText = "*"
    version: ShortWord = "*"
    times: int | None = Field(None, ge=1)
    seconds: float = Field(1.0, ge=0)
    message: ShortText = ""

    def matches(self, verb: str, path: str, version: str) -> bool:
        """Tells whether the rule matches. The verb `*` covers work on instances, not the CRM's own steps."""
        about = self.verb == verb or (self.verb == "*" and verb in ("create", "update", "delete"))
        return about and fnmatchcase(path, self.path) and self.version in ("*", version)


class CrmFaults(FrozenModel):
    """The fault rules of one CRM, in the order in which they are tried."""

    faults: list[CrmFault] = Field(default=[], max_length=1_000)
