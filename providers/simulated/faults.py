"""The fault script: rules that make a simulated cloud fail on purpose. Kept in the database, so every process sees it.

Rules are tried in order. `slow` and `hang` take their time and leave the call to the later rules; every other kind
settles it. `times` counts VMs, not calls. A rule for the verb `*` is about the verbs that change something; reads
(`describe`, `list`) meet it only if it delays, hides a status, or is an outage of everything in a region (`throttle`
or `unavailable` with vm `*`). To fail a read otherwise, name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Literal, Self

import sqlalchemy as sa
from pydantic import Field, model_validator

from domain.model import Model, ShortText, Word
from domain.paths import name_of
from domain.ports import Order, Transactions
from providers.simulated.tables import clouds, faults

READS = ("describe", "list")


class Kind(StrEnum):
    FAIL = "fail"  # Rejected
    THROTTLE = "throttle"  # Throttled, with `retry_after` if given
    UNAVAILABLE = "unavailable"  # Unavailable
    LOSE_ANSWER = "lose-answer"  # does the work, then UnknownOutcome
    HANG = "hang"  # waits `seconds`, then does the work
    SLOW = "slow"  # the same, with the cloud's jitter
    UNKNOWN_STATUS = "unknown-status"  # describe finds a state that nobody knows
    LIE = "lie"  # terminate says done, but the VM lives


_DELAYS = (Kind.HANG, Kind.SLOW)
_OUTAGES = (Kind.THROTTLE, Kind.UNAVAILABLE)
_ONLY_VERB = {Kind.LIE: "terminate", Kind.UNKNOWN_STATUS: "describe"}


class Fault(Model):
    """One rule. `region` and `vm` are globs; `vm` is held against the VM's name and against its path."""

    kind: Kind
    csp: Word = "*"
    region: Word = "*"
    vm: ShortText = "*"
    verb: Literal["*", "create", "suspend", "resume", "reboot", "terminate", "describe", "list"] = "*"
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
        return verb not in READS or self.kind in _DELAYS or (self.kind in _OUTAGES and self.vm == "*")

    def _covers(self, path: str) -> bool:
        return self.vm == "*" or fnmatchcase(name_of(path), self.vm) or fnmatchcase(path, self.vm)


@dataclass(slots=True)
class Rule:
    """A fault of the script, and how many more times it strikes."""

    id: int
    fault: Fault
    left: int | None
    used: int = 0


class Rules:
    """The script as one transaction sees it. What was used up is counted down when the transaction ends well."""

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self._rules = rules

    def __bool__(self) -> bool:
        return bool(self._rules)

    @classmethod
    def read(cls, connection: sa.Connection, csp: str) -> Rules:
        """The rules for one cloud, locked: another cloud may be using up the same rule."""
        query = sa.select(faults.c.id, faults.c.rule, faults.c.left)
        mine = query.where(faults.c.csp.in_(("*", csp))).order_by(faults.c.id).with_for_update()
        return cls([Rule(id, Fault.model_validate_json(rule), left) for id, rule, left in connection.execute(mine)])

    def strike(self, verb: str, region: str, order: Order, after: int) -> Rule | None:
        """The first rule after number `after` that meets this call, used once."""
        for rule in self._rules:
            spent = rule.left is not None and rule.used >= rule.left
            if rule.id > after and not spent and rule.fault.meets(verb, region, order.path):
                rule.used += 1
                return rule
        return None

    def save(self, connection: sa.Connection) -> None:
        for rule in self._rules:
            if rule.left is None or not rule.used:
                continue
            mine = faults.c.id == rule.id
            if rule.used == rule.left:
                connection.execute(sa.delete(faults).where(mine))
            else:
                connection.execute(sa.update(faults).where(mine).values(left=rule.left - rule.used))


class FaultScript:
    """Sets, lists and clears the rules of all clouds in a database."""

    def __init__(self, database: Transactions) -> None:
        self._database = database

    async def replace(self, rules: Iterable[Fault]) -> None:
        """Replace the whole script."""
        new = list(rules)

        def work(connection: sa.Connection) -> None:
            _announce(connection)
            connection.execute(sa.delete(faults))
            _append(connection, new)

        await self._database.run(work)

    async def append(self, rule: Fault) -> None:
        """One more rule, after the others."""

        def work(connection: sa.Connection) -> None:
            _announce(connection)
            _append(connection, [rule])

        await self._database.run(work)

    async def rules(self) -> list[Fault]:
        """The rules that still strike, in order; `times` is what is left."""

        def work(connection: sa.Connection) -> list[Fault]:
            rows = connection.execute(sa.select(faults.c.rule, faults.c.left).order_by(faults.c.id))
            return [Fault.model_validate_json(rule).model_copy(update={"times": left}) for rule, left in rows]

        return await self._database.run(work)


def _announce(connection: sa.Connection) -> None:
    """Tell every cloud to read the script again. Locks in the order of the names, before any rule: no deadlock."""
    connection.execute(sa.select(clouds.c.csp).order_by(clouds.c.csp).with_for_update()).all()
    connection.execute(sa.update(clouds).values(version=clouds.c.version + 1))


def _append(connection: sa.Connection, rules: Sequence[Fault]) -> None:
    for rule in rules:  # one by one: the numbers must rise in this order
        connection.execute(
            sa.insert(faults).values(csp=rule.csp, rule=rule.model_dump_json(exclude_defaults=True), left=rule.times)
        )
