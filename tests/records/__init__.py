"""What each family has recorded: a line for each."""

from __future__ import annotations

from tests.records import edge, mci

FAMILIES = {
    "mci": mci.record,
    "edge": edge.record,
}
