"""A PostgreSQL server that a test may kill and start again."""

from __future__ import annotations

from pathlib import Path

from tests.postgres import kill_cluster, start_cluster


class Postgres:
    """A server of one's own, with its data in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.url = start_cluster(folder).get_uri()

    def crash(self) -> None:
        """Every connection is cut off, and nothing is written any more."""
        kill_cluster(self._folder)

    def start(self) -> None:
        start_cluster(self._folder)

    def close(self) -> None:
        kill_cluster(self._folder)
