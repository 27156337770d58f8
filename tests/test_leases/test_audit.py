"""The audit of all leases reads both sides in pages: however much there is, little of it is in memory at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa

from activities.leases.audit import PAGE_SIZE, LeaseAudit
from providers.leases.hosts import SimulatedHosts
from providers.simulated.tables import metadata as simulated
from store.engine import Database
from store.leases import SqlLeaseViews
from store.migrate import migrate_schema

ROWS = 3 * PAGE_SIZE
NUMBERS = f"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {ROWS}) "
SINCE, UNTIL = "'2025-12-31 12:00:00.000000'", "'2036-12-31 12:00:00.000000'"
LEASE, HOST = "'project:p:lease:l' || i", "'pool:p:host:h' || i"
RESERVATION = f"{LEASE} || ':reservation:r1'"
SPEC = '{"name": "l", "pool": "p", "start": "2025-12-31T12:00:00Z", "end": "2036-12-31T12:00:00Z"}'
OBJECT = "INSERT INTO objects SELECT {}, '{}', {}, '', '{}', 'None', 'None', 'None', '{}', '{{}}', '', 1, {}, {}, NULL"
FILL = (
    OBJECT.format(LEASE, "lease", "'project:p'", "ACTIVE", SPEC, SINCE, SINCE),
    OBJECT.format(RESERVATION, "reservation", LEASE, "active", '{"resource_type": "physical:host"}', SINCE, SINCE),
    "INSERT INTO lease_allocations (host, ends, starts, reservation, lease, units, whole, vcpus, memory_mb, disk_gb, "
    f"phase) SELECT {HOST}, {UNTIL}, {SINCE}, {RESERVATION}, {LEASE}, 1, 1, 0, 0, 0, 'held'",
    f"INSERT INTO sim_host_tenants SELECT {HOST}, 't' || i, {RESERVATION}, 1, 1",
)
SPOIL = (
    "DELETE FROM sim_host_tenants WHERE host = 'pool:p:host:h7'",
    "INSERT INTO sim_host_tenants VALUES ('pool:p:host:y', 't', 'project:p:lease:l8:reservation:r1', 1, 1)",
    "UPDATE lease_allocations SET host = 'pool:p:host:h10', starts = '2025-12-30 12:00:00.000000' "
    "WHERE host = 'pool:p:host:h9'",
    "UPDATE sim_host_tenants SET host = 'pool:p:host:h10' WHERE host = 'pool:p:host:h9'",
)


class Counted:
    """A source whose answers are counted: the most rows of one answer."""

    def __init__(self, source: Any) -> None:
        self._source, self.most = source, 0

    def __getattr__(self, name: str) -> Any:
        async def ask(*args: Any) -> Any:
            answer = await getattr(self._source, name)(*args)
            self.most = max(self.most, len(answer))
            return answer

        return ask


async def test_leases_and_their_hosts_are_audited_page_by_page(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'store.db'}")
    migrate_schema(database)

    def fill(connection: sa.Connection) -> None:
        simulated.create_all(connection)
        for statement in FILL:
            connection.exec_driver_sql(f"{NUMBERS}{statement} FROM n")
        for statement in SPOIL:
            connection.exec_driver_sql(statement)

    database.run_transaction_blocking(fill)
    leases, hosts = Counted(SqlLeaseViews(database)), Counted(SimulatedHosts(database))
    findings, size = await LeaseAudit(leases, hosts).find_violations("")
    assert sorted(f"{finding.path} {finding.what}" for finding in findings if finding.invariant == "I3") == [
        "pool:p:host:h10 is booked twice: project:p:lease:l9 and project:p:lease:l10",
        "project:p:lease:l7:reservation:r1 should hold pool:p:host:h7, and does not",
        "project:p:lease:l8:reservation:r1 holds pool:p:host:y, and should not",
    ]
    assert size == ROWS
    assert (leases.most, hosts.most) == (PAGE_SIZE, PAGE_SIZE)
    database.close()
