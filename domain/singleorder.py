"""The single-order action: one order for one object, and a description to learn what became of it.

A family whose actions are all like that brings a provider and two pure functions: which order an action gives, and
which status a description means. `activities/singleorder.py` and `workflows/singleorder.py` do the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from domain.model import FrozenModel, Grant, ObjectView

ORDER_OBJECT = "order_object"
SETTLE_ORDERED = "settle_ordered"
ABSENT = "absent"  # the state of an object that the provider does not have


class OrderTask(FrozenModel):
    """An action that was admitted, and the spec of its request."""

    grant: Grant
    spec: dict[str, Any] = {}


@dataclass(frozen=True)
class ProviderOrder:
    """One order. The provider carries a token out once, and refuses an epoch below the highest of its object."""

    path: str
    kind: str
    verb: str
    token: str
    epoch: int
    object_details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ObjectFacts:
    """A provider's facts about an object. `info` is stored with the record; None deletes a key."""

    path: str
    state: str
    info: Mapping[str, Any] = field(default_factory=dict)
    epoch: int = 0  # the highest that ordered anything, if the provider keeps it


class ObjectProvider(Protocol):
    """Carries out orders for the objects of one family."""

    async def perform_order(self, order: ProviderOrder) -> ObjectFacts:
        """Carries out an order and returns when it is done. Raises a ProviderError, or Superseded for a lower epoch."""
        ...

    async def describe_object(self, path: str) -> ObjectFacts:
        """Returns an object's present facts; ABSENT if there is none."""
        ...

    async def list_existing_objects(self, prefix: str, after: str) -> list[ObjectFacts]:
        """Returns a page of the objects at or below `prefix` (empty: of all), by path, from the first after `after`."""
        ...


@dataclass(frozen=True)
class OrderRules:
    """A family's two pure functions: action -> order, and facts -> status."""

    order_for: Callable[[OrderTask, ObjectView], tuple[str, Mapping[str, Any]]]  # the verb and the parameters
    status_from: Callable[[ObjectFacts], str]  # the stable status for these facts
    uncertain_states: tuple[str, ...] = ()  # statuses of objects that nobody could describe: verify expects nothing
    removal_verb: str = "delete"  # the order that removes what no record knows
