"""Activities of ordered actions: one fenced order, retried until it is answered, and a description to settle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.fence import Fence
from activities.pages import list_all
from activities.retry import ProviderRetry
from domain.errors import ProviderError, one_line
from domain.kinds import Kind
from domain.model import BrokenPromise, Done, ObjectView
from domain.ordered import (
    ABSENT,
    ORDER_OBJECT,
    SETTLE_OBJECT,
    ObjectFacts,
    ObjectOrder,
    ObjectProvider,
    OrderRules,
    OrderTask,
)
from domain.paths import kind_of
from domain.ports import Inventory

REFUSED_BY_PROVIDER = "RefusedByProvider"


class OrderedActivities:
    """One family's orders to its provider. Activity names are the same in each family, so each has its own queue."""

    def __init__(
        self, inventory: Inventory, provider: ObjectProvider, rules: OrderRules, fence: Fence, patience: ProviderRetry
    ) -> None:
        self._inventory = inventory
        self._provider = provider
        self._rules = rules
        self._fence = fence
        self._patience = patience

    @activity.defn(name=ORDER_OBJECT)
    async def order_object(self, task: OrderTask) -> Done:
        """Gives the action's order. Fails without retry if the provider refuses, or does not answer in time."""
        grant = task.grant
        async with self._fence.right(grant.path, grant.epoch) as right:
            verb, about = self._rules.order_for(task, await self._inventory.get(grant.path))
            token = ":".join((grant.path, str(grant.epoch), verb))
            order = ObjectOrder(grant.path, kind_of(grant.path), verb, token, grant.epoch, about)
            call = partial(right.order, partial(self._provider.perform, order))
            facts = await self._answer(call)
        return Done(info=dict(facts.info))

    @activity.defn(name=SETTLE_OBJECT)
    async def settle_ordered(self, task: OrderTask) -> Done:
        """Returns the status that the provider reports for the object of a failed or interrupted action."""
        async with self._fence.right(task.grant.path, task.grant.epoch):
            facts = await self._answer(partial(self._provider.describe, task.grant.path))
        message = f"the provider has it {facts.state}"
        return Done(to=self._rules.status_from(facts), info=dict(facts.info), message=message)

    async def _answer(self, call: Callable[[], Awaitable[ObjectFacts]]) -> ObjectFacts:
        """Retries here, not by Temporal: a refusal, or no answer before the deadline, fails the activity."""
        try:
            return await self._patience.call_with_retry(call)
        except ProviderError as error:
            raise ApplicationError(one_line(error), type=REFUSED_BY_PROVIDER, non_retryable=True) from error

    async def inspect(self, view: ObjectView) -> str:
        """Returns an object's state at the provider, for self-healing."""
        return (await self._provider.describe(view.path)).state


class OrderedAudit:
    """Audits I3 and I7 for one family: compares records with the provider's objects."""

    def __init__(
        self, inventory: Inventory, provider: ObjectProvider, rules: OrderRules, kinds: Sequence[Kind]
    ) -> None:
        self._inventory = inventory
        self._provider = provider
        self._rules = rules
        self._kinds = kinds

    async def audit(self, prefix: str) -> tuple[list[BrokenPromise], int]:
        """Returns violations at or below a path, and the number of objects that the provider has there."""
        left = {facts.path: facts for facts in await self._provider.below(prefix)}
        size, wrong = len(left), []
        for kind in self._kinds:
            async for view in list_all(self._inventory, kind.name, prefix):
                facts = left.pop(view.path, ObjectFacts(view.path, ABSENT))
                certain = view.status in kind.table.stable and view.status not in self._rules.uncertain
                if certain and view.status != self._rules.status_from(facts):
                    wrong.append(BrokenPromise("I7", view.path, f"is {view.status}, but outside it is {facts.state}"))
        orphans = [
            BrokenPromise("I3", path, f"is {facts.state} outside, but unknown here") for path, facts in left.items()
        ]
        return orphans + wrong, size
