"""Writes of a supervisor's ledger are committed together; none is lost because its writer is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, cast

import pytest
import sqlalchemy as sa

from providers.batch import GroupCommit

T = TypeVar("T")


class SlowDatabase:
    """A database whose transactions last until they are let go."""

    def __init__(self) -> None:
        self.begun, self.released = asyncio.Event(), asyncio.Event()

    async def run_transaction(self, work: Callable[[sa.Connection], T]) -> T:
        self.begun.set()
        await self.released.wait()
        return work(cast(Any, None))


async def test_a_write_whose_writer_is_stopped_while_it_waits_is_carried_out() -> None:
    database, written = SlowDatabase(), list[str]()
    ledger = GroupCommit(database)

    def write(what: str) -> asyncio.Task[None]:
        return asyncio.create_task(ledger.run_transaction(lambda _: written.append(what)))

    first = write("first")
    await database.begun.wait()
    second, third = write("pid and port"), write("third")
    await asyncio.sleep(0)  # both wait for the first transaction now
    second.cancel()
    database.released.set()
    await asyncio.gather(first, third)
    with pytest.raises(asyncio.CancelledError):
        await second
    assert written == ["first", "pid and port", "third"]
