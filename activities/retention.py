"""Retention: a sweep archives old actions and history lines as JSON lines, then removes them, in bounded batches."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from temporalio import activity
from temporalio.client import Client

from activities.runs import OPEN_RUNS, list_runs
from domain.errors import format_one_line
from domain.healing import PruneResult
from domain.ports import Inventory

MAX_BATCHES = 50  # per sweep


class RetentionArchive:
    """A folder with one JSON lines file per day. Readers drop duplicates by `epoch` (actions) and `seq` (history)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def append_rows(self, rows: Sequence[dict[str, Any]]) -> None:
        """Appends rows and syncs them to disk."""
        text = "".join(f"{json.dumps(row, default=datetime.isoformat)}\n" for row in rows)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = self._folder / f"{datetime.now(UTC):%Y-%m-%d}.jsonl"
        with open(os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # workers of one machine share the file
            size = file.seek(0, os.SEEK_END)
            torn = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"  # an interrupted write
            file.write((b"\n" if torn else b"") + text.encode())
            file.flush()
            os.fsync(file.fileno())
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)  # a new file's directory entry
        finally:
            os.close(folder)


class RetentionSweep:
    """Prunes old actions in a sweep; does nothing if `days` is 0."""

    def __init__(self, client: Client, inventory: Inventory, archive: RetentionArchive, days: float) -> None:
        self._client = client
        self._inventory = inventory
        self._archive = archive
        self._days = days

    async def prune_old_actions(self, at: datetime, dry_run: bool) -> PruneResult | None:
        """Prunes from where the last sweep stopped. If the archive cannot be written, nothing is removed."""
        if not self._days:
            return None
        last = await self._inventory.read_reports(1)
        done = last[0].pruned if last else None
        if dry_run:
            return PruneResult(after=done.after if done else 0)
        busy = {run.execution.workflow_id async for run in list_runs(self._client, OPEN_RUNS)}
        before, total = at - timedelta(days=self._days), PruneResult(after=done.after if done else 0)
        for _ in range(MAX_BATCHES):
            try:
                part = await self._inventory.prune_batch(before, total.after, busy, self._archive.append_rows)
            except OSError as error:
                activity.logger.error("the archive cannot be written, so nothing is pruned: %s", error)
                return total.model_copy(
                    update={"problem": format_one_line(f"the archive cannot be written: {error}", 300)}
                )
            total = PruneResult(actions=total.actions + part.actions, lines=total.lines + part.lines, after=part.after)
            if not part.after:
                break
        return total
