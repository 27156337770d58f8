"""What each family has recorded: a line for each."""

from __future__ import annotations

from tests.records import edge, kernel, machines, mci

FAMILIES = {
    "kernel": kernel.record,
    "mci": mci.record,
    "edge": edge.record,
    "machines": machines.record,
}
