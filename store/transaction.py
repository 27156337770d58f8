"""Declares the methods of stores: each runs a function of a connection as one transaction."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from store.engine import Database
from store.hooks import HooksByKind

T = TypeVar("T")
P = ParamSpec("P")


class SqlStore:
    """Base class of stores, whose methods are declared as transactions: `due = transaction(due)`."""

    def __init__(self, database: Database) -> None:
        self.database = database


def transaction(
    work: Callable[Concatenate[sa.Connection, P], T],
) -> Callable[Concatenate[SqlStore, P], Coroutine[Any, Any, T]]:
    """Makes a store method that runs `work` as one transaction, with the parameters of `work` after the connection."""

    @wraps(work)
    async def run(store: SqlStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store.database.run_transaction(lambda connection: work(connection, *args, **kwargs))

    return run


class HookedStore(SqlStore):
    """A store whose transactions call the families' hooks: `finish = hooked_transaction(finish)`."""

    def __init__(self, database: Database, hooks: HooksByKind) -> None:
        super().__init__(database)
        self.hooks = hooks


def hooked_transaction(
    work: Callable[Concatenate[sa.Connection, HooksByKind, P], T],
) -> Callable[Concatenate[HookedStore, P], Coroutine[Any, Any, T]]:
    """Makes a store method that runs `work` as one transaction, and gives it the store's hooks after the connection."""

    @wraps(work)
    async def run(store: HookedStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store.database.run_transaction(lambda connection: work(connection, store.hooks, *args, **kwargs))

    return run


def snapshot_read(
    work: Callable[Concatenate[sa.Connection, P], T],
) -> Callable[Concatenate[SqlStore, P], Coroutine[Any, Any, T]]:
    """Makes a store method like `transaction`, but for long reads: `work` only reads, and sees one snapshot."""

    @wraps(work)
    async def run(store: SqlStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store.database.run_in_snapshot(lambda connection: work(connection, *args, **kwargs))

    return run
