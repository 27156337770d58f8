"""The fault script of the simulated providers, stored in the database, so that every process sees it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from domain.faults import Fault
from domain.ports import TransactionRunner
from providers.simulated.tables import clouds, faults

_LOCK_RULES = (
    sa.select(faults.c.id, faults.c.rule, faults.c.left)
    .where(faults.c.csp.in_(sa.bindparam("csps", expanding=True)))
    .order_by(faults.c.id)
    .with_for_update()
)


@dataclass(slots=True)
class FaultRule:
    """A rule of the fault script, and how many more times it applies."""

    id: int
    fault: Fault
    left: int | None
    used: int = 0


class LockedFaultRules:
    """The fault script within one transaction; used rules are counted down when it commits."""

    def __init__(self, rules: Sequence[FaultRule] = ()) -> None:
        self._rules = rules

    def __bool__(self) -> bool:
        return bool(self._rules)

    @classmethod
    def lock_rules_for(cls, connection: sa.Connection, csp: str) -> LockedFaultRules:
        """Reads and locks the rules for one cloud, as another cloud may use up the same rule."""
        found = connection.execute(_LOCK_RULES, {"csps": ["*", csp]})
        return cls([FaultRule(id, Fault.model_validate_json(rule), left) for id, rule, left in found])

    def take_matching_rule(self, verb: str, region: str, path: str, after: int) -> FaultRule | None:
        """Returns the first rule after number `after` that matches this call, and counts its use."""
        for rule in self._rules:
            spent = rule.left is not None and rule.used >= rule.left
            if rule.id > after and not spent and rule.fault.matches(verb, region, path):
                rule.used += 1
                return rule
        return None

    def save_rule_counts(self, connection: sa.Connection) -> None:
        for rule in self._rules:
            if rule.left is None or not rule.used:
                continue
            mine = faults.c.id == rule.id
            if rule.used == rule.left:
                connection.execute(sa.delete(faults).where(mine))
            else:
                connection.execute(sa.update(faults).where(mine).values(left=rule.left - rule.used))


class FaultScriptStore:
    """Sets, lists and clears the rules of all clouds in a database."""

    def __init__(self, database: TransactionRunner) -> None:
        self._database = database

    async def replace_rules(self, rules: Iterable[Fault]) -> None:
        """Replaces the whole script."""
        await self._write_rules(list(rules), replace=True)

    async def append_rule(self, rule: Fault) -> None:
        """Adds a rule after the others."""
        await self._write_rules([rule], replace=False)

    async def _write_rules(self, rules: Sequence[Fault], replace: bool) -> None:
        def work(connection: sa.Connection) -> None:
            # Clouds are locked by name before any rule, to avoid deadlocks.
            connection.execute(sa.select(clouds.c.csp).order_by(clouds.c.csp).with_for_update()).all()
            connection.execute(sa.update(clouds).values(version=clouds.c.version + 1))
            if replace:
                connection.execute(sa.delete(faults))
            for rule in rules:  # one by one, so that the ids rise in this order
                text = rule.model_dump_json(exclude_defaults=True)
                connection.execute(sa.insert(faults).values(csp=rule.csp, rule=text, left=rule.times))

        await self._database.run_transaction(work)

    async def list_rules(self) -> list[Fault]:
        """Returns the rules that still apply, in order; `times` is the remaining number."""

        def work(connection: sa.Connection) -> list[Fault]:
            rows = connection.execute(sa.select(faults.c.rule, faults.c.left).order_by(faults.c.id))
            return [Fault.model_validate_json(rule).model_copy(update={"times": left}) for rule, left in rows]

        return await self._database.run_transaction(work)
