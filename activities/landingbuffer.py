"""Writes landings in batches: one transaction for all that arrive within 0.1 s, instead of one per VM."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

from domain.model import AT_WRITE_TIME, Chunk, TargetCounts, TargetLanding
from domain.ports import Inventory

GATHER_SECONDS = 0.1  # how long a landing waits for others
MAX_WAITING = 500


class LandingBuffer:
    """Collects the landings of one chunk; on exit it writes the rest, whatever the reason for the exit."""

    def __init__(self, inventory: Inventory, chunk: Chunk) -> None:
        self._inventory = inventory
        self._chunk = chunk
        self._waiting: list[TargetLanding] = []
        self._some = asyncio.Event()
        self._closing = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self.tally = TargetCounts()

    def add_landing(self, landing: TargetLanding) -> None:
        self._waiting.append(landing)
        self._some.set()

    async def __aenter__(self) -> Self:
        self._writer = asyncio.create_task(self._write_loop())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        assert self._writer
        self._closing.set()
        self._some.set()
        await asyncio.wait([self._writer])
        unwritten = self._writer.exception()
        if unwritten and not error:
            raise unwritten

    async def _write_loop(self) -> None:
        """Writes the collected landings every GATHER_SECONDS until the buffer is closed."""
        while self._waiting or not self._closing.is_set():
            await self._some.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(GATHER_SECONDS):
                    await self._closing.wait()
            await self._write_waiting()

    async def _write_waiting(self) -> None:
        self._some.clear()
        while group := self._waiting[:MAX_WAITING]:
            await self._inventory.land_targets(self._chunk, group, AT_WRITE_TIME)
            del self._waiting[: len(group)]
            bad = sum(1 for landing in group if landing.error)
            self.tally = TargetCounts(done=self.tally.done + len(group) - bad, failed=self.tally.failed + bad)
