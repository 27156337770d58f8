"""What each family has recorded: a line for each."""

from __future__ import annotations

from tests.records import edge, mci, systems

FAMILIES = {
    "mci": mci.record,
    "edge": edge.record,
    "systems": systems.record,
}
