"""Seals the history while a worker of actions runs: one at a time over all workers, and nobody waits for it."""

from __future__ import annotations

import asyncio

import structlog

from domain.errors import RatchetError, format_one_line
from store.engine import Database
from store.seals import LINES_PER_SEAL, seal_lines

SEAL_SECONDS = 5.0  # between two looks for lines that no seal has


async def seal_history(database: Database) -> None:
    """Seals new lines of the history, for ever."""
    while True:
        await asyncio.sleep(SEAL_SECONDS)
        try:
            while await database.run_transaction(seal_lines) == LINES_PER_SEAL:
                pass
        except RatchetError as error:
            structlog.get_logger("audit").warning(
                "the history was not sealed; tried again soon", why=format_one_line(error)
            )
