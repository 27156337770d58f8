"""What each family has recorded: a line for each."""

from __future__ import annotations

from tests.records import kernel, machines, mci

FAMILIES = {
    "kernel": kernel.record,
    "mci": mci.record,
    "machines": machines.record,
}
