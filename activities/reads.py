"""Reads as standalone activities, so that a user needs one address and one credential: Temporal's.

Readers get the status words of the source system, such as `NotPresent` for a deleted instance at the edge. The
inventory and the workflows use one word for all families.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities import refusals
from activities.access import Authorizer
from activities.dryrun import DryRunChecker
from activities.workerfacts import WorkerFacts
from domain import registry
from domain.actionview import ActionView
from domain.aliases import AliasesView, AliasQuery
from domain.dryrun import DryRun
from domain.errors import Refused, StoreUnavailable
from domain.events import EventPage, EventQuery, parse_cursor
from domain.locks import LocksView, LockView
from domain.model import (
    HistoryLine,
    HistoryView,
    ObjectsView,
    ObjectView,
    Outcome,
    ReadQuery,
    Refusal,
    Request,
    StoreView,
    TreeView,
)
from domain.ports import Inventory
from domain.quotas import QuotaQuery, QuotasView
from domain.requests import AccessQuery, AccessView
from domain.statetable import NONE

P = ParamSpec("P")
T = TypeVar("T")
Activity = Callable[P, Coroutine[Any, Any, T]]


def refusals_as_errors(work: Activity[P, T]) -> Activity[P, T]:
    """Lets an activity raise Refused as a benign, non-retryable error: it is an answer, not an incident."""

    @wraps(work)
    async def translated(*args: P.args, **more: P.kwargs) -> T:
        try:
            return await work(*args, **more)
        except Refused as refused:
            raise refusals.refusal_as_error(Refusal.from_error(refused)) from refused
        except StoreUnavailable as error:
            raise ApplicationError(str(error), type="StoreUnavailable") from error

    return translated


def answered_from_store(read: Activity[P, T]) -> Activity[P, T]:
    """Marks an activity that needs nothing but the store: whoever has the store can answer it without a worker."""
    marked = refusals_as_errors(read)
    marked.reads_store = True  # type: ignore[attr-defined]
    return marked


def answered_in_worker_process(read: Activity[P, T]) -> Activity[P, T]:
    """Marks an activity that only reads, but needs what a worker has: the policy, the clouds, the backends."""
    marked = refusals_as_errors(read)
    marked.reads_in_worker_process = True  # type: ignore[attr-defined]
    return marked


def collect_direct_reads(
    activities: Iterable[Callable[..., Any]], in_worker_process: bool = False
) -> dict[str, Callable[..., Awaitable[Any]]]:
    """Returns the reads that a process with the store can answer itself, by name; beside a worker there are more."""
    marks = ("reads_store", "reads_in_worker_process") if in_worker_process else ("reads_store",)
    return {read.__name__: read for read in activities if any(getattr(read, mark, False) for mark in marks)}


@dataclass(eq=False)
class ReadActivities:
    """The activities behind `starter get`, `list`, `history`, `locks`, `check` and `doctor`."""

    inventory: Inventory
    describe_store: Callable[[], Awaitable[StoreView]]
    dry_runs: DryRunChecker
    authorizer: Authorizer = field(default_factory=Authorizer)
    facts: WorkerFacts = field(default_factory=WorkerFacts)

    @answered_from_store
    @activity.defn
    async def read_object(self, query: ReadQuery) -> ObjectView:
        view = await self.inventory.read_object(query.path)
        return (await self._complete_views([view]))[0]

    @answered_from_store
    @activity.defn
    async def read_tree(self, query: ReadQuery) -> TreeView:
        tree = await self.inventory.read_tree(query.path, query.limit)
        return tree.model_copy(update={"object": (await self._complete_views([tree.object]))[0]})

    @answered_from_store
    @activity.defn
    async def read_outcome(self, query: ReadQuery) -> Outcome:
        return await self.inventory.read_outcome(query.run)

    @answered_from_store
    @activity.defn
    async def read_action(self, query: ReadQuery) -> ActionView:
        """Returns the action of a run; without a run, the last one that was admitted on the path."""
        if query.run:
            return await self.inventory.read_action(query.run)
        return await self.inventory.read_last_action(query.path, query.action)

    @answered_from_store
    @activity.defn
    async def read_events(self, query: EventQuery) -> EventPage:
        """Returns the events after a position, in an order in which none is missed."""
        found = await self.inventory.list_events_after(parse_cursor(query.after), query.limit)
        events = [
            event.model_copy(update={"line": _show_line_statuses(registry.kind_at(event.line.path), event.line)})
            if registry.is_object_path(event.line.path)
            else event  # a refused login
            for event in found
        ]
        return EventPage(events=events, cursor=events[-1].id if events else query.after)

    @answered_from_store
    @activity.defn
    async def read_newest_position(self, query: EventQuery) -> EventPage:
        """Returns the position from which events can be followed: after the newest one."""
        return EventPage(cursor=str(await self.inventory.read_newest_position()))

    @answered_from_store
    @activity.defn
    async def read_objects(self, query: ReadQuery) -> ObjectsView:
        found, after = await self._list_visible(query)
        return ObjectsView(objects=await self._complete_views(found), after=after)

    async def _complete_views(self, views: Sequence[ObjectView]) -> list[ObjectView]:
        """Adds what the store does not say: the source system's words, and whether objects are simulated."""
        telling = {view.path: registry.find_kind(view.kind).path_telling_simulation(view.path) for view in views}
        elsewhere = {path for own, path in telling.items() if path != own}
        known = {view.path: view for view in views}
        if elsewhere:
            known |= await self.inventory.read_objects(sorted(elsewhere))
        return [_show_view_statuses(view, self._is_simulated(known.get(telling[view.path]))) for view in views]

    def _is_simulated(self, view: ObjectView | None) -> bool:
        return view is not None and registry.find_kind(view.kind).has_simulated_provider(
            view.spec, view.placement, self.facts.real_backends, view.info
        )

    async def _list_visible(self, query: ReadQuery) -> tuple[list[ObjectView], str]:
        """Reads a page below each path that the reader may see, not below all paths. Returns where the next begins."""
        found: list[ObjectView] = []
        for path in self.authorizer.readable_paths(query.path):
            found += await self.inventory.list_objects(query.kind, path, query.after, query.limit)
        page = sorted(found, key=lambda view: view.path)[: query.limit]
        return page, page[-1].path if len(page) == query.limit else ""

    @answered_from_store
    @activity.defn
    async def read_aliases(self, query: AliasQuery) -> AliasesView:
        return AliasesView(aliases=await self.inventory.find_aliases(query))

    @answered_from_store
    @activity.defn
    async def read_history(self, query: ReadQuery) -> HistoryView:
        after = int(query.after) if query.after.isdecimal() else 0
        lines = await self.inventory.read_history(query.path, query.limit, after)
        return HistoryView(lines=[_show_line_statuses(registry.kind_at(query.path), line) for line in lines])

    @answered_from_store
    @activity.defn
    async def read_locks(self, query: ReadQuery) -> LocksView:
        holds = await self.inventory.list_locks(query.path)
        return LocksView(locks=[LockView(**vars(hold)) for hold in holds])

    @answered_in_worker_process
    @activity.defn
    async def read_check(self, request: Request) -> DryRun:
        """Dry run: returns what policy, examination and begin would answer now. Changes nothing."""
        admission = await self.dry_runs.check_request(request)
        if not admission.grant:
            return admission
        shown, grant = registry.kind_at(request.path).display_status, admission.grant
        words = {"came_from": shown(grant.came_from), "then": shown(grant.then)}
        return admission.model_copy(update={"grant": grant.model_copy(update=words)})

    @answered_in_worker_process
    @activity.defn
    async def read_quotas(self, query: QuotaQuery) -> QuotasView:
        """Returns what tenants use of their quotas: those in which the reader may see something."""
        page = await self.inventory.read_quotas(query)
        visible = [row for row in page.tenants if self.authorizer.readable_paths(row.used.tenant)]
        return page.model_copy(update={"tenants": visible})

    @activity.defn
    @refusals_as_errors
    async def read_access(self, query: AccessQuery) -> AccessView:
        """Tells the sender who it is and what it may do."""
        at = activity.info().scheduled_time if activity.in_activity() else None
        return await asyncio.to_thread(self.authorizer.describe_access, query, at)

    @answered_from_store
    @activity.defn
    async def read_store(self, query: ReadQuery) -> StoreView:
        """Returns the store's identity and schema version."""
        return await self.describe_store()


def _show_view_statuses(view: ObjectView, simulated: bool) -> ObjectView:
    kind = registry.find_kind(view.kind)
    words: dict[str, object] = {
        "previous_status": kind.display_status(view.previous_status),
        "simulated": simulated,
    }
    if view.target_action != NONE:  # at rest the target is `None` in another sense
        words["target_status"] = kind.display_status(view.target_status)
    return view.model_copy(update=words)


def _show_line_statuses(kind: registry.Kind, line: HistoryLine) -> HistoryLine:
    return line.model_copy(update={"source": kind.display_status(line.source), "to": kind.display_status(line.to)})
