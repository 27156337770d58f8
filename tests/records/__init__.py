"""What each family has recorded: a line for each."""

from __future__ import annotations

from tests.records import mci, systems

FAMILIES = {
    "mci": mci.record,
    "systems": systems.record,
}
