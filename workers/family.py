"""`Family`: what a family brings to a worker. Each has one subclass, in `workers/<family>.py`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar

from activities.dryrun import ExamineRequest
from activities.healing import InspectObject
from activities.leftovers import FindLeftovers
from activities.orphans import ProviderListing
from activities.retry import ProviderRetry
from activities.verify import AuditFunction
from activities.workerfacts import RaiseObjection
from domain.companions import CompanionType
from domain.connections import Connections
from domain.kinds import Kind
from domain.ports import WorkAtBegin
from store.hooks import HooksByKind
from workers.context import WorkerContext
from workers.settings import WorkerSettings

ActivitiesByQueue = Mapping[str, Sequence[Callable[..., Any]]]


class Family(ABC):
    """Base class of families; one instance per worker process.

    Every method except `activities` has an empty default.
    """

    name: ClassVar[str]  # also the name of its folders
    kinds: ClassVar[Sequence[Kind]]
    workflows: ClassVar[Sequence[type]]  # of actions: pinned to the build they began on
    companion_workflows: ClassVar[Sequence[type]] = ()  # of companions, which move to each new build
    queues: ClassVar[Sequence[str]] = ()  # besides the queues of actions and of clouds

    held_phases: ClassVar[Sequence[str]] = ()  # of actions that wait for a person to decide
    pauses: ClassVar[ProviderRetry] = ProviderRetry()  # between tries of calls to its provider; NEARBY has shorter ones

    def __init__(self, context: WorkerContext) -> None:
        self.context = context
        settings = context.settings
        self.retry = replace(self.pauses, call_seconds=settings.call_timeout, total_seconds=settings.patience)

    @classmethod
    def served_queues(cls, settings: WorkerSettings, connections: Connections) -> Sequence[str]:
        """Returns the family's queues that a worker with these settings and connections polls."""
        return cls.queues

    @classmethod
    def hooks(cls) -> HooksByKind:
        """Returns the functions that the store calls inside its transactions, by kind."""
        return {}

    @abstractmethod
    def activities(self) -> ActivitiesByQueue:
        """Returns the activities by queue."""

    def audits(self) -> Sequence[AuditFunction]:
        """Returns the checks of `verify` beyond the comparison of providers with records."""
        return ()

    def listings(self) -> Sequence[ProviderListing]:
        """Returns the listings of what the providers have: `verify` compares them with the records."""
        return ()

    def companions(self) -> Sequence[CompanionType]:
        """Returns the family's companions: workflows that live beside objects, one row per sort."""
        return ()

    def inspectors(self) -> Mapping[str, InspectObject]:
        """Returns functions that report an object's state at its provider, by kind, for self-healing."""
        return {}

    def leftover_searches(self) -> Sequence[FindLeftovers]:
        """Returns searches for resources that were created after their order was given up; each sweep runs them."""
        return ()

    def fault_verbs(self) -> Mapping[str, tuple[str, ...]]:
        """Returns the verbs that can be made to fail, by simulated provider."""
        return {}

    def work_at_begin(self) -> Mapping[tuple[str, str], WorkAtBegin]:
        """Returns work that is tried in the activity that begins the action, by kind and action."""
        return {}

    def dry_run_checks(self) -> Mapping[tuple[str, str], ExamineRequest]:
        """Returns the checks that a dry run makes before begin, by kind and action."""
        return {}

    def objections(self) -> Mapping[tuple[str, str], RaiseObjection]:
        """Returns what asks those who would do the work whether they will, by kind and action: begin refuses if not."""
        return {}

    @asynccontextmanager
    async def run_beside_workers(self, queues: Sequence[str]) -> AsyncIterator[None]:
        """Runs what the family needs beside the workers while these queues are served."""
        yield
