"""The interface between a family's recording functions and the recorder."""

from __future__ import annotations

from typing import Protocol


class HistoryRecorder(Protocol):
    async def keep(self, workflow: str, name: str, run: str | None = None) -> None:
        """The history of a run of this workflow ID (the latest), under a name that tells what became of it."""
        ...
