"""Runs the Temporal workers of a process together: if one of them stops polling by itself, the whole process ends.

The SDK tells its caller about a dead poll loop by cancelling the task that opened the worker. That task may have ended,
and a loop that merely returns tells nobody: the process would live on and take no work. A supervisor restarts a process
that has ended, and cannot see one that is deaf.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

from temporalio.worker import Worker

from domain.errors import RatchetError, format_one_line

STUCK_EXIT_CODE = 1
PollLoop = Callable[[], Coroutine[Any, Any, None]]
_log = logging.getLogger("ratchet.worker")


class PollingStopped(RatchetError):
    """A worker stopped polling its queue although nobody had told it to."""


class WorkerGroup:
    """The workers of a process, by queue. `failure` says why they ended, if they did so by themselves.

    `exit_after` is for a process that is nothing but a worker: the seconds after a failure at which it exits, even if
    something that hangs holds up the drain.
    """

    def __init__(self, workers: Mapping[str, Worker], exit_after: float | None = None) -> None:
        self._workers = workers
        self._exit_after = exit_after
        self._is_stopping = False
        self._owner: asyncio.Task[object] | None = None
        self.failure: RatchetError | None = None

    @asynccontextmanager
    async def run_workers(self) -> AsyncIterator[None]:
        """Polls until the block ends, then drains. Cancels the block and raises PollingStopped if a worker ends."""
        owner = self._owner = asyncio.current_task()
        assert owner, "workers run inside a task"
        running = {asyncio.create_task(self._run_worker(queue)): queue for queue in self._workers}
        watching = asyncio.create_task(self._watch_workers(running))
        try:
            try:
                yield
            finally:
                self._is_stopping = True
                watching.cancel()
                # Concurrently, as each may take long. A worker whose run has ended may never say that it is shut down.
                lasting = [self._workers[queue].shutdown() for task, queue in running.items() if not task.done()]
                await asyncio.gather(*lasting)
                await asyncio.gather(*running, return_exceptions=True)
        except asyncio.CancelledError:
            if self.failure is None:
                raise
            owner.uncancel()
            raise self.failure from self.failure.__cause__

    async def _run_worker(self, queue: str) -> None:
        worker = self._workers[queue]
        for half in (worker._activity_worker, worker._workflow_worker):
            if half:  # the SDK notices a poll loop that raises, and neither one that returns nor one that is cancelled
                half.run = self._fail_on_early_return(queue, half.run)  # type: ignore[method-assign]
        await worker.run()

    def _fail_on_early_return(self, queue: str, poll: PollLoop) -> PollLoop:
        async def poll_until_stopped() -> None:
            how = "ended by itself"
            try:
                await poll()
            except asyncio.CancelledError:
                if self._is_stopping:
                    raise
                how = "was cancelled"
            except Exception as error:
                # Told here: the SDK then ends the worker's other loop, and that end would be taken for the cause.
                if not self._is_stopping and self.failure is None:
                    self.failure = PollingStopped(f"polling of the queue {queue} failed: {format_one_line(error)}")
                    self.failure.__cause__ = error
                raise
            if not self._is_stopping and self.failure is None:
                self.failure = PollingStopped(f"polling of the queue {queue} {how}")
                raise self.failure

        return poll_until_stopped

    async def _watch_workers(self, running: Mapping[asyncio.Task[None], str]) -> None:
        """Ends the group with the first worker."""
        done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        ended = done.pop()
        if self.failure is None:
            error = None if ended.cancelled() else ended.exception()
            self.failure = PollingStopped(f"the worker of the queue {running[ended]} ended by itself: {error}")
            self.failure.__cause__ = error
        self.end_workers(self.failure)

    def end_workers(self, failure: RatchetError) -> None:
        """Ends the block of `run_workers`, which then drains and raises the failure."""
        assert self._owner, "the workers run"
        self.failure = self.failure or failure
        _log.critical("this worker takes no work any more and ends: %s", self.failure, exc_info=self.failure)
        if self._exit_after is not None:
            last_resort = threading.Timer(self._exit_after, os._exit, (STUCK_EXIT_CODE,))
            last_resort.daemon = True
            last_resort.start()
        self._owner.cancel()
