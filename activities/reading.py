"""Reads, as standalone activities: a user needs one address and one credential, Temporal's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities import refusals
from domain import wire
from domain.errors import Refused, StoreUnavailable
from domain.locks import LocksView, LockView
from domain.model import (
    Admission,
    Claim,
    HistoryView,
    ObjectsView,
    ObjectView,
    Outcome,
    Query,
    Refusal,
    Request,
    StoreView,
    TreeView,
)
from domain.ports import Inventory

T = TypeVar("T")


class Reading:
    """What `starter get`, `list`, `history`, `locks`, `check` and `doctor` ask for."""

    def __init__(self, inventory: Inventory, describe_store: Callable[[], Awaitable[StoreView]]) -> None:
        self._inventory = inventory
        self._describe_store = describe_store

    @activity.defn(name=wire.READ_OBJECT)
    async def read_object(self, query: Query) -> ObjectView:
        return await answer(self._inventory.get(query.path))

    @activity.defn(name=wire.READ_TREE)
    async def read_tree(self, query: Query) -> TreeView:
        return await answer(self._inventory.tree(query.path, query.limit))

    @activity.defn(name=wire.READ_OUTCOME)
    async def read_outcome(self, query: Query) -> Outcome:
        return await answer(self._inventory.outcome(query.run))

    @activity.defn(name=wire.READ_OBJECTS)
    async def read_objects(self, query: Query) -> ObjectsView:
        found = await answer(self._inventory.list_objects(query.kind, query.path, query.after, query.limit))
        return ObjectsView(objects=found)

    @activity.defn(name=wire.READ_HISTORY)
    async def read_history(self, query: Query) -> HistoryView:
        return HistoryView(lines=await answer(self._inventory.history(query.path, query.limit)))

    @activity.defn(name=wire.READ_LOCKS)
    async def read_locks(self, query: Query) -> LocksView:
        holds = await answer(self._inventory.holds(query.path))
        return LocksView(locks=[LockView(**vars(hold)) for hold in holds])

    @activity.defn(name=wire.READ_CHECK)
    async def read_check(self, request: Request) -> Admission:
        """What begin would answer now. Nothing is changed."""
        claim = Claim(request=request, run=f"check-{activity.info().activity_id}", at=datetime.now(UTC))
        return await answer(self._inventory.check(claim))

    @activity.defn(name=wire.READ_STORE)
    async def read_store(self, query: Query) -> StoreView:
        """Which store this is, and the version of its schema."""
        return await answer(self._describe_store())


async def answer(work: Awaitable[T]) -> T:
    """Refused is an answer: it is not retried and does not look like an incident."""
    try:
        return await work
    except Refused as refused:
        raise refusals.refused(Refusal.of(refused)) from refused
    except StoreUnavailable as error:
        raise ApplicationError(str(error), type="StoreUnavailable") from error
