"""The families that a worker serves: a line for each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

from activities.healing import Inspect
from activities.leftovers import Search
from activities.reading import Examiner
from activities.verifying import Audit
from domain.companions import CompanionRow
from domain.ports import AtOnce
from workers import edge, leases, machines, mci, systems
from workers.parts import Parts
from workflows.heal import Heal
from workflows.line import DrainLine


class Family(Protocol):
    """A module of a family in `workers/`. It may have more: `QUEUES`, the names of queues of its own; `beside(parts,
    queues)`, an async context in which these queues are served; `companions(parts)`, a row for each sort of workflow
    that lives beside objects."""

    WORKFLOWS: list[type]

    def activities(self, parts: Parts, /) -> dict[str, list[Callable[..., Any]]]:
        """The family's activities, queue by queue."""
        ...

    def audits(self, parts: Parts, /) -> list[Audit]:
        """What holds the family's records against the books of the world outside."""
        ...


FAMILIES: tuple[Family, ...] = (mci, edge, machines, leases, systems)
QUEUES: tuple[str, ...] = tuple(queue for family in FAMILIES for queue in getattr(family, "QUEUES", ()))

WORKFLOWS: list[type] = [Heal, DrainLine, *(workflow for family in FAMILIES for workflow in family.WORKFLOWS)]


def inspectors(parts: Parts) -> dict[str, Inspect]:
    """Who can say what objects are outside, kind by kind: a family that can has a function of this name."""
    asked = [getattr(family, "inspectors", None) for family in FAMILIES]
    return {kind: inspect for ask in asked if ask for kind, inspect in ask(parts).items()}


def searches(parts: Parts) -> list[Search]:
    """Who looks, in each sweep, for what was ordered and came late: a family that can has a function of this name."""
    asked = [getattr(family, "searches", None) for family in FAMILIES]
    return [search for ask in asked if ask for search in ask(parts)]


def faults(parts: Parts) -> dict[str, tuple[str, ...]]:
    """What is simulated and can be told to fail, by name, and in which verbs: a family may have such a function."""
    asked = [getattr(family, "faults", None) for family in FAMILIES]
    return {name: verbs for ask in asked if ask for name, verbs in ask(parts).items()}


def at_once(parts: Parts) -> dict[tuple[str, str], AtOnce]:
    """Work that is tried in the step that admits it, by kind and action: a family may have a function of this name."""
    asked = [getattr(family, "at_once", None) for family in FAMILIES]
    return {which: work for ask in asked if ask for which, work in ask(parts).items()}


def examiners(parts: Parts) -> dict[tuple[str, str], Examiner]:
    """What comes before begin, for dry runs, by kind and action: a family whose actions examine has such a function."""
    asked = [getattr(family, "examiners", None) for family in FAMILIES]
    return {which: examine for ask in asked if ask for which, examine in ask(parts).items()}


def activities(parts: Parts) -> dict[str, list[Callable[..., Any]]]:
    """Every family's activities, queue by queue."""
    found: defaultdict[str, list[Callable[..., Any]]] = defaultdict(list)
    for family in FAMILIES:
        for queue, some in family.activities(parts).items():
            found[queue] += some
    return dict(found)


@asynccontextmanager
async def beside(parts: Parts, queues: Sequence[str]) -> AsyncIterator[None]:
    """What families run beside the workers, for as long as these queues are served."""
    async with AsyncExitStack() as stack:
        for family in FAMILIES:
            if hook := getattr(family, "beside", None):
                await stack.enter_async_context(hook(parts, queues))
        yield


def companions(parts: Parts) -> list[CompanionRow]:
    """Workflows that live beside objects: a family that has some has a function of this name."""
    asked = [getattr(family, "companions", None) for family in FAMILIES]
    return [row for ask in asked if ask for row in ask(parts)]


def audits(parts: Parts) -> list[Audit]:
    """Every family's audits."""
    return [audit for family in FAMILIES for audit in family.audits(parts)]
