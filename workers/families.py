"""The families that a worker serves: a line for each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

from activities.healing import InspectObject
from activities.leftovers import FindLeftovers
from activities.reads import Examiner
from activities.verify import Audit
from domain.companions import CompanionRow
from domain.ports import InlineWork
from workers import edge, leases, machines, mci, systems
from workers.context import WorkerContext
from workflows.heal import Heal
from workflows.waitqueue import DrainQueue


class Family(Protocol):
    """A module of a family in `workers/`. It may have more: `QUEUES`, the names of queues of its own; `beside(parts,
    queues)`, an async context in which these queues are served; `companions(parts)`, a row for each sort of workflow
    that lives beside objects."""

    WORKFLOWS: list[type]

    def activities(self, context: WorkerContext, /) -> dict[str, list[Callable[..., Any]]]:
        """The family's activities, queue by queue."""
        ...

    def audits(self, context: WorkerContext, /) -> list[Audit]:
        """What holds the family's records against the books of the world outside."""
        ...


FAMILIES: tuple[Family, ...] = (mci, edge, machines, leases, systems)
QUEUES: tuple[str, ...] = tuple(queue for family in FAMILIES for queue in getattr(family, "QUEUES", ()))

WORKFLOWS: list[type] = [Heal, DrainQueue, *(workflow for family in FAMILIES for workflow in family.WORKFLOWS)]


def inspectors(context: WorkerContext) -> dict[str, InspectObject]:
    """Who can say what objects are outside, kind by kind: a family that can has a function of this name."""
    asked = [getattr(family, "inspectors", None) for family in FAMILIES]
    return {kind: inspect for ask in asked if ask for kind, inspect in ask(context).items()}


def searches(context: WorkerContext) -> list[FindLeftovers]:
    """Who looks, in each sweep, for what was ordered and came late: a family that can has a function of this name."""
    asked = [getattr(family, "searches", None) for family in FAMILIES]
    return [search for ask in asked if ask for search in ask(context)]


def faults(context: WorkerContext) -> dict[str, tuple[str, ...]]:
    """What is simulated and can be told to fail, by name, and in which verbs: a family may have such a function."""
    asked = [getattr(family, "faults", None) for family in FAMILIES]
    return {name: verbs for ask in asked if ask for name, verbs in ask(context).items()}


def at_once(context: WorkerContext) -> dict[tuple[str, str], InlineWork]:
    """Work that is tried in the step that admits it, by kind and action: a family may have a function of this name."""
    asked = [getattr(family, "at_once", None) for family in FAMILIES]
    return {which: work for ask in asked if ask for which, work in ask(context).items()}


def examiners(context: WorkerContext) -> dict[tuple[str, str], Examiner]:
    """What comes before begin, for dry runs, by kind and action: a family whose actions examine has such a function."""
    asked = [getattr(family, "examiners", None) for family in FAMILIES]
    return {which: examine for ask in asked if ask for which, examine in ask(context).items()}


def activities(context: WorkerContext) -> dict[str, list[Callable[..., Any]]]:
    """Every family's activities, queue by queue."""
    found: defaultdict[str, list[Callable[..., Any]]] = defaultdict(list)
    for family in FAMILIES:
        for queue, some in family.activities(context).items():
            found[queue] += some
    return dict(found)


@asynccontextmanager
async def beside(context: WorkerContext, queues: Sequence[str]) -> AsyncIterator[None]:
    """What families run beside the workers, for as long as these queues are served."""
    async with AsyncExitStack() as stack:
        for family in FAMILIES:
            if hook := getattr(family, "beside", None):
                await stack.enter_async_context(hook(context, queues))
        yield


def companions(context: WorkerContext) -> list[CompanionRow]:
    """Workflows that live beside objects: a family that has some has a function of this name."""
    asked = [getattr(family, "companions", None) for family in FAMILIES]
    return [row for ask in asked if ask for row in ask(context)]


def audits(context: WorkerContext) -> list[Audit]:
    """Every family's audits."""
    return [audit for family in FAMILIES for audit in family.audits(context)]
