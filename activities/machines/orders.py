"""Orders to the hypervisor for one action.

Every order carries the action's epoch and a token, so a repeated order has no second effect. The right to order is
proven before each try; unanswered orders are retried until the deadline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from activities.fence import OrderFence
from activities.retry import ProviderRetry
from domain.errors import Rejected
from domain.machines.ports import ABSENT, STATE_AFTER_VERB, Hypervisor, HypervisorFacts, HypervisorOrder, verbs_to_reach
from domain.model import Grant
from domain.paths import kind_of

REMOVING_VERB_OF_KIND = {
    kind: next(verb for verb, moves in verbs.items() if ABSENT in moves and moves[ABSENT] == ABSENT)
    for kind, verbs in STATE_AFTER_VERB.items()
    if verbs
}  # the order that removes an object of each kind, and has no effect on an absent one


@dataclass(frozen=True)
class HypervisorCalls:
    """Orders and reads at the hypervisor for one action."""

    hypervisor: Hypervisor
    patience: ProviderRetry
    grant: Grant
    right: OrderFence

    async def carry_out_verbs(
        self, verbs: Sequence[str], path: str, about: dict[str, Any], goal: str | None
    ) -> HypervisorFacts | None:
        """Gives orders one after the other. Returns the object's facts after the last one."""
        facts = None
        for verb in verbs:
            try:
                facts = await self.order_with_retry(verb, path, about)
            except Rejected as error:
                if goal is None:
                    raise
                return await self._recover_state(verb, path, about, goal, error)
        return facts

    async def _recover_state(
        self, verb: str, path: str, about: dict[str, Any], goal: str, error: Rejected
    ) -> HypervisorFacts:
        """Leads an object in an unexpected state to the goal, as after an interrupted action; else raises the error."""
        facts, kind = await self.describe_object(path), kind_of(path)
        way = verbs_to_reach(kind, facts.state, goal)
        as_expected = facts.state in STATE_AFTER_VERB[kind].get(verb, {})
        elsewhere = verb == "attach" and facts.machine != about.get("machine")
        if as_expected or elsewhere or way is None:
            raise error
        return await self._order_verb_sequence(facts, way, about)

    async def remove_object(self, path: str, about: dict[str, Any]) -> str:
        """Lead an object that should not exist to its end, from wherever it is. Returns what was done."""
        facts = await self.describe_object(path)
        if facts.state == ABSENT:
            # Ordered all the same: an order of an earlier action that is on its way finds our epoch.
            await self.order_with_retry(REMOVING_VERB_OF_KIND[kind_of(path)], path, about, "drift")
            return "nothing was left at the hypervisor"
        way = verbs_to_reach(kind_of(path), facts.state, ABSENT) or ()
        if (await self._order_verb_sequence(facts, way, {**about, "machine": facts.machine})).state != ABSENT:
            raise Rejected(f"{path} is {facts.state} at the hypervisor, and no order leads away from there")
        return f"was {facts.state} at the hypervisor, and was removed"

    async def _order_verb_sequence(
        self, facts: HypervisorFacts, way: Sequence[str], about: dict[str, Any]
    ) -> HypervisorFacts:
        for step in way:
            facts = await self.order_with_retry(step, facts.path, about, "drift")
        return facts

    async def describe_object(self, path: str) -> HypervisorFacts:
        """Returns an object's facts at the hypervisor."""
        return await self.patience.call_with_timeout(lambda: self.hypervisor.describe_object(path))

    async def order_with_retry(self, verb: str, path: str, about: dict[str, Any], purpose: str = "") -> HypervisorFacts:
        """Gives one order, retried until it is answered or the deadline passes."""
        token = ":".join((path, str(self.grant.epoch), purpose or self.grant.action, verb))
        order = HypervisorOrder(path, kind_of(path), token, about, self.grant.epoch)
        return await self.patience.call_with_retry(
            lambda: self.right.prove_then_call(lambda: self.hypervisor.perform_order(verb, order))
        )
