"""Orders to the hypervisor on behalf of one action.

Every order carries a token of the action, so that one that is given again has no second effect. Whatever was not
answered is asked again until patience ends.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from domain.errors import ProviderError, Rejected, Throttled, Unavailable, UnknownOutcome
from domain.machines.port import ABSENT, MOVES, Facts, Hypervisor, Order, way_back
from domain.model import Grant
from domain.paths import kind_of


@dataclass(frozen=True)
class Patience:
    """How long to bear with the hypervisor: one order, all tries of it, and the pauses between them."""

    call: float = 300.0
    total: float = 900.0
    first_pause: float = 0.1
    longest_pause: float = 10.0


@dataclass(frozen=True)
class Orders:
    """What an action lets the hypervisor do."""

    hypervisor: Hypervisor
    patience: Patience
    grant: Grant

    async def carry_out(self, verbs: Sequence[str], path: str, about: dict[str, Any], goal: str | None) -> Facts | None:
        """Orders one after the other. Returns what the last one tells of the object."""
        facts = None
        for verb in verbs:
            try:
                facts = await self.give(verb, path, about)
            except Rejected as error:
                if goal is None:
                    raise
                return await self._from_elsewhere(verb, path, about, goal, error)
        return facts

    async def _from_elsewhere(self, verb: str, path: str, about: dict[str, Any], goal: str, error: Rejected) -> Facts:
        """The object is not what we took it for, as after an action that was cut off: lead it on from where it is."""
        facts, kind = await self.describe(path), kind_of(path)
        way = way_back(kind, facts.state, goal)
        as_expected = facts.state in MOVES[kind].get(verb, {})
        elsewhere = verb == "attach" and facts.machine != about.get("machine")
        if as_expected or elsewhere or way is None:
            raise error
        return await self._lead(facts, way, about)

    async def clear_away(self, path: str, about: dict[str, Any]) -> Facts:
        """What is only modelled has no orders; but a creation that was cut off may have made it all the same."""
        facts = await self.describe(path)
        return await self._lead(facts, way_back(kind_of(path), facts.state, ABSENT) or (), about)

    async def _lead(self, facts: Facts, way: Sequence[str], about: dict[str, Any]) -> Facts:
        for step in way:
            facts = await self.give(step, facts.path, about, "drift")
        return facts

    async def describe(self, path: str) -> Facts:
        """What the hypervisor has there."""
        try:
            async with asyncio.timeout(self.patience.call):
                return await self.hypervisor.describe(path)
        except TimeoutError as error:
            raise UnknownOutcome(f"no answer within {self.patience.call:g} s") from error

    async def give(self, verb: str, path: str, about: dict[str, Any], purpose: str = "") -> Facts:
        """One order, given again until it is answered or patience ends."""
        token = ":".join((path, str(self.grant.epoch), purpose or self.grant.action, verb))
        order = Order(path, kind_of(path), token, about)
        deadline, pause = _now() + self.patience.total, self.patience.first_pause
        while True:
            try:
                async with asyncio.timeout(self.patience.call):
                    return await self.hypervisor.perform(verb, order)
            except TimeoutError:
                trouble: ProviderError = UnknownOutcome(f"no answer within {self.patience.call:g} s")
            except (Throttled, Unavailable, UnknownOutcome) as error:
                trouble = error
            if _now() + pause > deadline:
                raise trouble
            asked = trouble.retry_after or 0.0 if isinstance(trouble, Throttled) else 0.0
            await asyncio.sleep(max(asked, random.uniform(pause / 2, pause)))  # noqa: S311  spreads load
            pause = min(pause * 2, self.patience.longest_pause)


def _now() -> float:
    return asyncio.get_running_loop().time()
