"""Work beside a block: it runs while the block lasts, and ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def run_in_background(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs each of these as a task until the block ends. Errors are the works' own: none reaches the block."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
