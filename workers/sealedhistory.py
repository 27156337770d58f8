"""Checks and exports the sealed history, for `starter audit`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

from store import seals
from store.engine import Database
from store.seals import SealChainReport, SealedLine, canonical_line_text, check_chain, iterate_seals, read_sealed_lines
from workers.settings import WorkerSettings


def verify_history(settings: WorkerSettings, anchor: str = "") -> SealChainReport:
    """Checks every seal and every sealed line of the store. `anchor`: a head that must still be in the chain."""
    with closing(Database(settings.store_database_url())) as database:
        return database.run_in_snapshot_blocking(lambda connection: check_chain(connection, anchor))


def may_rewrite_history(settings: WorkerSettings) -> bool:
    """Tells whether the database's user of these settings could change lines that are written."""
    with closing(Database(settings.store_database_url())) as database:
        return database.run_in_snapshot_blocking(seals.may_rewrite_history)


def export_history(settings: WorkerSettings, after: int = 0) -> Iterator[str]:
    """Yields the seals as JSON, each with its lines, as docs/audit.md describes them."""
    with closing(Database(settings.store_database_url())) as database, database.open_snapshot() as connection:
        for seal in iterate_seals(connection, after):
            there = read_sealed_lines(connection, seal)
            lines = [
                {"digest": line.digest} | ({"text": canonical_line_text(there[line.seq])} if line.seq in there else {})
                for line in (SealedLine(*values) for values in seal.lines)
            ]
            yield json.dumps({"number": seal.number, "previous": seal.previous, "hash": seal.hash, "lines": lines})
