"""Calls of a blocking SDK, in threads of one region's own, so that a hanging region blocks no other."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

import structlog

from domain.errors import Refused, Rejected

T = TypeVar("T")


class SdkClient(ABC):
    """An SDK's client, which connects with the first call, and threads for its calls.

    A thread cannot be cancelled, so a caller that is cancelled or times out waits until its call has ended, and no call
    is in flight afterwards. Socket timeouts bound that wait: `bound_seconds` is their sum.
    """

    def __init__(self, size: int, title: str, bound_seconds: float) -> None:
        self._threads = ThreadPoolExecutor(size, thread_name_prefix=title)
        self._title = title
        self._bound_seconds = bound_seconds
        self._making = threading.Lock()
        self._client: Any = None
        self._secrets: list[str] = []  # what no message may contain

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._client:
            self._client.close()

    @abstractmethod
    def _connect(self) -> Any:
        """Returns the SDK's client, and finds its secrets. Raises Refused if credentials are missing."""

    def _connected_client(self) -> Any:
        with self._making:
            if self._client is None:
                try:
                    self._client = self._connect()
                except Refused as refused:
                    raise Rejected(f"{refused.message}; {refused.hint}") from refused
            return self._client

    async def _run(self, function: Callable[..., T], *arguments: Any) -> T:
        call = self._threads.submit(function, *arguments)
        running = asyncio.wrap_future(call)
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            await self._await_or_withdraw(call, running)
            raise
        return running.result()

    async def _await_or_withdraw(self, call: Future[Any], running: asyncio.Future[Any]) -> None:
        """Withdraws a call that no thread has begun; waits for the end of any other, also when cancelled again."""
        if call.cancel():
            return
        clock = asyncio.get_running_loop().time
        # Twice, as the first call may sign in; a server that trickles bytes has no bound.
        deadline = clock() + 2 * self._bound_seconds
        while not running.done() and (left := deadline - clock()) > 0:
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running], timeout=left)
        if running.done():
            running.exception()  # marks it as retrieved
        else:
            structlog.get_logger("threads").warning("a call outlives its timeout", calls=self._title)
