"""What each family has recorded: a line for each."""

from __future__ import annotations

from tests.records import edge, kernel, leases, machines, mci, systems

FAMILIES = {
    "kernel": kernel.record,
    "mci": mci.record,
    "edge": edge.record,
    "machines": machines.record,
    "leases": leases.record,
    "systems": systems.record,
}
