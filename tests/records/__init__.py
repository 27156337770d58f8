"""What each family has recorded: a line for each."""

from __future__ import annotations

from tests.records import leases, mci

FAMILIES = {
    "mci": mci.record,
    "leases": leases.record,
}
