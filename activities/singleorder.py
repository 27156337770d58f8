"""Activities of single-order actions: one fenced order, retried until it is answered, and a description to settle."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.fence import Fence, OrderFence
from activities.orphans import REFUSED_BY_PROVIDER, OrphanRemovingListing
from activities.retry import ProviderRetry
from domain.errors import ProviderError, format_one_line
from domain.kinds import Kind
from domain.model import Grant, ObjectView, WorkReport
from domain.orphans import ProviderObject, ProviderObjectKey
from domain.paths import kind_of
from domain.ports import Inventory
from domain.singleorder import (
    ABSENT,
    ORDER_OBJECT,
    SETTLE_ORDERED,
    ObjectFacts,
    ObjectProvider,
    OrderRules,
    OrderTask,
    ProviderOrder,
)


@dataclass(eq=False)
class SingleOrderActivities:
    """One family's orders to its provider. Activity names are the same in each family, so each has its own queue."""

    inventory: Inventory
    provider: ObjectProvider
    rules: OrderRules
    fence: Fence
    patience: ProviderRetry

    @activity.defn(name=ORDER_OBJECT)
    async def order_object(self, task: OrderTask) -> WorkReport:
        """Gives the action's order. Fails without retry if the provider refuses, or does not answer in time."""
        grant = task.grant
        async with self.fence.right_to_order(grant.path, grant.epoch) as right:
            verb, about = self.rules.order_for(task, await self.inventory.read_object(grant.path))
            order = _fenced_order(grant, verb, about)
            call = partial(right.prove_then_call, partial(self.provider.perform_order, order))
            facts = await self._call_with_retry(call)
        return WorkReport(info=dict(facts.info))

    @activity.defn(name=SETTLE_ORDERED)
    async def settle_ordered(self, task: OrderTask) -> WorkReport:
        """Returns the status that the provider reports for the object of a failed or interrupted action."""
        async with self.fence.right_to_order(task.grant.path, task.grant.epoch):
            facts = await self._call_with_retry(partial(self.provider.describe_object, task.grant.path))
        message = f"the provider has it {facts.state}"
        return WorkReport(to=self.rules.status_from(facts), info=dict(facts.info), message=message)

    async def _call_with_retry(self, call: Callable[[], Awaitable[ObjectFacts]]) -> ObjectFacts:
        """Retries here, not by Temporal: a refusal, or no answer before the deadline, fails the activity."""
        try:
            return await self.patience.call_with_retry(call)
        except ProviderError as error:
            raise ApplicationError(format_one_line(error), type=REFUSED_BY_PROVIDER, non_retryable=True) from error

    async def inspect_object(self, view: ObjectView) -> str:
        """Returns an object's state at the provider, for self-healing."""
        return (await self.provider.describe_object(view.path)).state


def _fenced_order(grant: Grant, verb: str, about: Mapping[str, Any]) -> ProviderOrder:
    """Makes an order that has one effect however often it arrives, and none after an order of a later action."""
    token = ":".join((grant.path, str(grant.epoch), verb))
    return ProviderOrder(grant.path, kind_of(grant.path), verb, token, grant.epoch, about)


class SingleOrderListing(OrphanRemovingListing):
    """What exists at the provider of one family, each object known by its path."""

    instead = "the provider keeps no spec to record: create it anew under its path, or remove it there"

    def __init__(
        self, family: str, provider: ObjectProvider, rules: OrderRules, kinds: Sequence[Kind], patience: ProviderRetry
    ) -> None:
        self.family = family
        self.kinds = [kind.name for kind in kinds]
        self.removes = [kind.name for kind in kinds if kind.table.orphan_removal_action]
        self._provider = provider
        self._rules = rules
        self._patience = patience
        self._stable = {kind.name: kind.table.stable_statuses for kind in kinds}

    async def list_providers(self, prefix: str) -> AsyncIterator[str]:
        yield self.family

    async def remove_orphan(self, grant: Grant, right: OrderFence) -> str:
        order = partial(self._provider.perform_order, _fenced_order(grant, self._rules.removal_verb, {}))
        facts = await self._patience.call_with_retry(partial(right.prove_then_call, order))
        return f"the provider has it {facts.state}"

    def describe_difference(self, thing: ProviderObject, record: ObjectView) -> str:
        wrong = self._is_certain(record) and record.status != self._rules.status_from(ObjectFacts("", thing.state))
        return f"is {record.status}, but outside it is {thing.state}" if wrong else ""

    def must_have_thing(self, record: ObjectView) -> bool:
        return self._is_certain(record) and record.status != self._rules.status_from(ObjectFacts(record.path, ABSENT))

    def _is_certain(self, record: ObjectView) -> bool:
        return record.status in self._stable[record.kind] and record.status not in self._rules.uncertain_states

    async def read_provider_page(
        self, provider: str, prefix: str, after: ProviderObjectKey
    ) -> Sequence[ProviderObject]:
        return [
            ProviderObject.known_by_path(self.family, facts.path, facts.state, facts.epoch)
            for facts in await self._provider.list_existing_objects(prefix, after[1])
        ]
