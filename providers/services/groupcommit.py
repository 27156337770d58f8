"""Combines many small transactions into a few larger ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import sqlalchemy as sa

from domain.ports import TransactionRunner

T = TypeVar("T")


class GroupCommit:
    """Runs all work that arrives during one transaction together in the next; none waits longer for others."""

    def __init__(self, database: TransactionRunner) -> None:
        self._database = database
        self._waiting: list[tuple[Callable[[sa.Connection], Any], asyncio.Future[Any]]] = []
        self._running: asyncio.Task[None] | None = None

    async def run_transaction(self, work: Callable[[sa.Connection], T]) -> T:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((work, answer))
        if self._running is None or self._running.done():
            self._running = asyncio.ensure_future(self._run_waiting())
        return await answer

    async def _run_waiting(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting, []
            try:
                results = await self._database.run_transaction(partial(_run_each, works=[work for work, _ in group]))
            except Exception as error:
                for _, answer in group:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for (_, answer), result in zip(group, results, strict=True):
                if not answer.done():
                    answer.set_result(result)


def _run_each(connection: sa.Connection, works: list[Callable[[sa.Connection], Any]]) -> list[Any]:
    return [work(connection) for work in works]
