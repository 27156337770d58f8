"""The families that ride along in the inventory's transactions: a line for each."""

from __future__ import annotations

from store.edge import hooks as edge
from store.hooks import Hooks
from store.leases import hooks as leases
from store.machines import hooks as machines
from store.mci import hooks as mci
from store.systems import hooks as systems

FAMILIES: dict[str, Hooks] = {
    "mci": mci.MCI_HOOKS,
    "vm": mci.VM_HOOKS,
    "orphan": mci.ORPHAN_HOOKS,
    **edge.HOOKS,
    **machines.HOOKS,
    **leases.HOOKS,
    **systems.HOOKS,
}
