"""What a family brings to a worker: one subclass of `Family` for each, in `workers/<family>.py`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from activities.healing import InspectObject
from activities.leftovers import FindLeftovers
from activities.reads import Examiner
from activities.verify import Audit
from domain.companions import CompanionRow
from domain.kinds import Kind
from domain.ports import InlineWork
from store.hooks import HooksByKind
from workers.context import WorkerContext

ActivitiesByQueue = Mapping[str, Sequence[Callable[..., Any]]]


class Family(ABC):
    """Made once in a worker process. What several methods need is an attribute of the instance.

    Every method but `activities` has an empty default: a family overrides what it has.
    """

    name: ClassVar[str]  # of its folders in domain, store, activities, workflows, starter
    kinds: ClassVar[Sequence[Kind]]
    workflows: ClassVar[Sequence[type]]  # of actions: they stay on the build that they began on
    lasting: ClassVar[Sequence[type]] = ()  # of companions, which live for years: they move to each new build
    queues: ClassVar[Sequence[str]] = ()  # besides the queues of actions and of clouds

    def __init__(self, context: WorkerContext) -> None:
        self.context = context

    @classmethod
    def hooks(cls) -> HooksByKind:
        """Functions that the store calls inside its transactions, by kind."""
        return {}

    @abstractmethod
    def activities(self) -> ActivitiesByQueue:
        """Activities by queue."""

    def audits(self) -> Sequence[Audit]:
        """Compare records with the systems outside, for `verify`."""
        return ()

    def companions(self) -> Sequence[CompanionRow]:
        """Workflows that live beside objects, one row for each sort."""
        return ()

    def inspectors(self) -> Mapping[str, InspectObject]:
        """Report what an object is outside, by kind, for self-healing."""
        return {}

    def searches(self) -> Sequence[FindLeftovers]:
        """Find resources that were created after their order was given up, in each sweep."""
        return ()

    def fault_verbs(self) -> Mapping[str, tuple[str, ...]]:
        """Verbs that can be told to fail, by the name of the simulated provider."""
        return {}

    def at_once(self) -> Mapping[tuple[str, str], InlineWork]:
        """Work that is tried in the activity that begins the action, by kind and action."""
        return {}

    def dry_run_checks(self) -> Mapping[tuple[str, str], Examiner]:
        """Checks that come before begin, for dry runs, by kind and action."""
        return {}

    @asynccontextmanager
    async def serving(self, queues: Sequence[str]) -> AsyncIterator[None]:
        """Run what the family needs beside the workers while these queues are served."""
        yield
