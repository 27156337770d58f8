"""Group commit: waiting calls are carried out together in one transaction, by a task that ends when none waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

from domain.ports import TransactionRunner

T = TypeVar("T")
BatchJob = TypeVar("BatchJob")
BatchResult = TypeVar("BatchResult")


class JobBatcher(Generic[BatchJob, BatchResult]):
    """Collects jobs and passes all waiting ones to `carry_out`, which answers them in order."""

    def __init__(self, carry_out: Callable[[list[BatchJob]], Awaitable[Sequence[BatchResult]]]) -> None:
        self._carry_out = carry_out
        self._waiting: list[tuple[Sequence[BatchJob], asyncio.Future[Sequence[BatchResult]]]] = []
        self._flusher: asyncio.Task[None] | None = None

    def submit_jobs(self, jobs: Sequence[BatchJob]) -> asyncio.Future[Sequence[BatchResult]]:
        """Returns a future with the results of these jobs."""
        future: asyncio.Future[Sequence[BatchResult]] = asyncio.get_running_loop().create_future()
        self._waiting.append((jobs, future))
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush_jobs())
        return future

    async def close(self) -> None:
        """Waits until every submitted job is answered."""
        if self._flusher and not self._flusher.done():
            await asyncio.wait([self._flusher])

    async def _flush_jobs(self) -> None:
        while self._waiting:
            # A caller that was cancelled in the queue never made its call.
            calls = [(jobs, future) for jobs, future in self._waiting if not future.done()]
            self._waiting = []
            try:
                outcomes = await self._carry_out([job for jobs, _ in calls for job in jobs])
            except Exception as error:
                for _, future in calls:
                    if not future.done():
                        future.set_exception(error)
                continue
            except BaseException:  # the loop is ending: cancel all waiting callers
                for _, future in calls + self._waiting:
                    future.cancel()
                raise
            start = 0
            for jobs, future in calls:
                if not future.done():
                    future.set_result(outcomes[start : start + len(jobs)])
                start += len(jobs)


class GroupCommit:
    """Runs all work that arrives during one transaction together in the next; none waits longer for others."""

    def __init__(self, database: TransactionRunner) -> None:
        self._batch: JobBatcher[Callable[[sa.Connection], Any], Any] = JobBatcher(
            lambda works: database.run_transaction(lambda connection: [work(connection) for work in works])
        )

    async def run_transaction(self, work: Callable[[sa.Connection], T]) -> T:
        # Shielded: a write whose caller is cancelled is carried out all the same, as what it tells of has happened.
        found: Sequence[T] = await asyncio.shield(self._batch.submit_jobs([work]))
        return found[0]
