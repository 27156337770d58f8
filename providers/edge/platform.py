"""The platform of one cloudlet, and its CRM's memory: a SQLite file that survives crashes.

An instance exists or not, never by half. Apps are real if the CRM has a backend (`providers/edge/apps.py`), which runs
them as this file says; everything else is simulated.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from domain.edge.faults import CrmFault, CrmFaultKind
from domain.edge.messages import CrmRequest, instance_spec_digest

BACKEND_VALUE = "backend"  # the CRM's value that says what its apps run on
_SCHEMA = """
CREATE TABLE IF NOT EXISTS things (path TEXT PRIMARY KEY, spec TEXT NOT NULL, made INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS seen (path TEXT PRIMARY KEY, epoch INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS expected (path TEXT PRIMARY KEY, spec TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS faults (number INTEGER PRIMARY KEY, rule TEXT NOT NULL, left INTEGER);
CREATE TABLE IF NOT EXISTS ledger (number INTEGER PRIMARY KEY, verb TEXT, path TEXT, key TEXT);
"""


class CloudletPlatform:
    """The instances of a cloudlet, its CRM's memory, and its fault rules, in one file."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self.file = file
        self._db = sqlite3.connect(file, timeout=10, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(_SCHEMA)

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Commits what the block has done, or rolls it back: what fails must not leave a transaction open."""
        self._db.execute("BEGIN IMMEDIATE")  # if this fails, there is nothing of ours to roll back
        with self._db:
            yield

    # Instances.

    def list_instances(self) -> dict[str, dict[str, Any]]:
        rows = self._db.execute("SELECT path, spec FROM things ORDER BY path").fetchall()
        return {path: json.loads(spec or "{}") for path, spec in rows}

    def has_instance(self, path: str) -> bool:
        return self._db.execute("SELECT 1 FROM things WHERE path = ?", (path,)).fetchone() is not None

    def put_instance(self, path: str, spec: dict[str, Any], verb: str, key: str) -> None:
        """Creates or changes an instance in one transaction."""
        with self._transaction():
            self._db.execute(
                "INSERT INTO things VALUES (?, ?, 1) ON CONFLICT (path) DO UPDATE SET spec = excluded.spec",
                (path, json.dumps(spec)),
            )
            self._db.execute("INSERT INTO ledger (verb, path, key) VALUES (?, ?, ?)", (verb, path, key))

    def remove_instance(self, path: str, key: str = "") -> None:
        with self._transaction():
            self._db.execute(
                "DELETE FROM things WHERE path = ? OR (path > ? AND path < ?)", (path, f"{path}:", f"{path};")
            )
            self._db.execute("INSERT INTO ledger (verb, path, key) VALUES ('delete', ?, ?)", (path, key))

    def list_applied_verbs(self, path: str) -> list[str]:
        """Returns the verbs that were applied to an instance, in order."""
        rows = self._db.execute("SELECT verb FROM ledger WHERE path = ? ORDER BY number", (path,)).fetchall()
        return [verb for (verb,) in rows]

    def was_applied(self, request: CrmRequest) -> bool:
        """Tells whether this is a repeated request, of any attempt, as from a controller that died after sending."""
        query = (
            "SELECT spec, key FROM things JOIN ledger USING (path) WHERE path = ? ORDER BY ledger.number DESC LIMIT 1"
        )
        spec, last = self._db.execute(query, (request.path,)).fetchone() or ("", "")
        same = spec and instance_spec_digest(json.loads(spec)) == instance_spec_digest(request.spec)
        return bool(same) and (last or "").rpartition("/")[0] == request.request_key.rpartition("/")[0]

    # The CRM's memory.

    def record_epoch_unless_late(self, path: str, epoch: int) -> bool:
        """Records the epoch; returns False if a later action has given an order about the object."""
        if not epoch:
            return True
        self._db.execute(
            "INSERT INTO seen VALUES (?, ?) ON CONFLICT (path) DO UPDATE SET epoch = max(epoch, excluded.epoch)",
            (path, epoch),
        )
        (last,) = self._db.execute("SELECT epoch FROM seen WHERE path = ?", (path,)).fetchone()
        return epoch >= int(last)

    def set_expected_specs(self, specs: dict[str, dict[str, Any]]) -> None:
        """Stores the specs that the controller expects here. Instances without a spec get it back; none is created."""
        rows = [(path, json.dumps(spec)) for path, spec in specs.items()]
        with self._transaction():
            self._db.execute("DELETE FROM expected")
            self._db.executemany("INSERT INTO expected VALUES (?, ?)", rows)
            self._db.execute(
                "UPDATE things SET spec = (SELECT spec FROM expected WHERE expected.path = things.path) "
                "WHERE spec = '' AND path IN (SELECT path FROM expected)"
            )

    def read_expected_specs(self) -> dict[str, dict[str, Any]]:
        """Returns the specs that the controller expects here."""
        return {path: json.loads(spec) for path, spec in self._db.execute("SELECT path, spec FROM expected")}

    def read_crm_value(self, name: str, default: Any = None) -> Any:
        row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return json.loads(row[0]) if row else default

    def write_crm_value(self, name: str, value: Any) -> None:
        self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, json.dumps(value)))

    def list_crm_pids(self) -> list[int]:
        """Returns the pids of CRM processes that have served this cloudlet; some may be gone."""
        rows = self._db.execute("SELECT value FROM facts WHERE name LIKE 'pid-%' ORDER BY name").fetchall()
        return [pid for (value,) in rows if (pid := json.loads(value))]

    def next_notify_id(self, known: int) -> int:
        """Returns a notify-id higher than all before, here and at the controller."""
        fresh = max(int(self.read_crm_value("notify_id", 0)), known) + 1
        self.write_crm_value("notify_id", fresh)
        return fresh

    # Faults.

    def set_faults(self, faults: Iterable[CrmFault]) -> None:
        with self._transaction():
            self._db.execute("DELETE FROM faults")
            self._db.executemany(
                "INSERT INTO faults (rule, left) VALUES (?, ?)",
                [(fault.model_dump_json(), fault.times) for fault in faults],
            )

    def add_fault(self, fault: CrmFault) -> None:
        """Adds a fault rule before all others, so that it matches next."""
        self._db.execute(
            "INSERT INTO faults (number, rule, left) SELECT coalesce(min(number), 1) - 1, ?, ? FROM faults",
            (fault.model_dump_json(), fault.times),
        )

    def take_matching_fault(
        self, verb: str, path: str, version: str, kinds: Iterable[CrmFaultKind] = tuple(CrmFaultKind)
    ) -> CrmFault | None:
        """Returns the first matching fault rule. It is counted before it takes effect, so that a crash is one crash."""
        wanted = set(kinds)
        for number, rule, left in self._db.execute("SELECT number, rule, left FROM faults ORDER BY number").fetchall():
            fault = CrmFault.model_validate_json(rule)
            if left == 0 or fault.kind not in wanted or not fault.matches(verb, path, version):
                continue
            if left is not None:
                self._db.execute("UPDATE faults SET left = left - 1 WHERE number = ?", (number,))
            return fault
        return None
