"""The list of families that a worker serves."""

from __future__ import annotations

from collections.abc import Sequence

from domain import registry
from store.hooks import HooksByKind
from workers.edge import EdgeFamily
from workers.family import Family
from workers.leases import LeaseFamily
from workers.machines import MachineFamily
from workers.mci import MciFamily
from workers.systems import SystemFamily
from workflows.heal import Heal
from workflows.orphans import RemoveOrphan
from workflows.waitqueue import DrainQueue

FAMILIES: tuple[type[Family], ...] = (
    MciFamily,
    EdgeFamily,
    MachineFamily,
    LeaseFamily,
    SystemFamily,
)


def list_workflows(families: Sequence[type[Family]]) -> list[type]:
    """Lists the kernel's workflows and those of these families."""
    return [
        *(Heal, DrainQueue, RemoveOrphan),
        *(workflow for family in families for workflow in (*family.workflows, *family.companion_workflows)),
    ]


def merge_hooks(families: Sequence[type[Family]]) -> HooksByKind:
    """Returns the hooks of these families by kind, for the store."""
    return {kind: hooks for family in families for kind, hooks in family.hooks().items()}


WORKFLOWS = list_workflows(FAMILIES)
registry.load_families()
