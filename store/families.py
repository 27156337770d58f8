"""The families that ride along in the inventory's transactions: a line for each."""

from __future__ import annotations

from store import machines, systems
from store.edge import admission as edge
from store.leases import riding as leases
from store.mci import riding as mci
from store.riders import Rider

FAMILIES: dict[str, Rider] = {
    "mci": mci.RIDER,
    "vm": mci.VM_RIDER,
    "orphan": mci.ORPHAN_RIDER,
    **edge.RIDERS,
    **machines.RIDERS,
    **leases.RIDERS,
    **systems.RIDERS,
}
