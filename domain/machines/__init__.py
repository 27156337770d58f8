"""The machine family: accounts, cloudspaces, machines, disks, images and nodes, and their actions."""

from __future__ import annotations

from functools import partial

from domain.aliases import G8_NUMBER
from domain.kinds import InternalProgram, Kind, Verb, orphan_verb
from domain.machines import specs
from domain.machines.tables import (
    ACCOUNT,
    CLOUDSPACE,
    DISK,
    IMAGE,
    MACHINE,
    NODE,
    TABLES,
    TRANSITION_STATES,
    MachineStatus,
    validate_transition,
)
from domain.model import FrozenModel
from domain.simulated import is_always_simulated

__all__ = ["KINDS", "TABLES", "TRANSITION_STATES", "MachineStatus", "validate_transition"]

# Names that cross the wire.
OPERATE_OBJECT = "OperateObject"
WORK_ON_NODE = "WorkOnNode"
EMPTY_BIN = "EmptyBin"
BIN_ROLE = "bin"
HYPERVISOR_QUEUE = "hypervisor"

BUSY_HINT = "Cannot execute action at this time"  # the source document's wording

_ONLY_BY_BIN, _ONLY_BY_NODE = (InternalProgram.RECYCLE_BIN,), ("node",)


def _bin_verbs(
    delete: type[FrozenModel], destroy: type[FrozenModel], restore: str = "Restore it from the recycle bin."
) -> tuple[Verb, ...]:
    """Returns the verbs by which an object gets into the recycle bin and out of it; `restore` is the help of that."""
    return (
        Verb("delete", OPERATE_OBJECT, "Move it to the recycle bin, until its retention is over.", delete),
        Verb("restore", OPERATE_OBJECT, restore),
        Verb("destroy", OPERATE_OBJECT, "Destroy it for good.", destroy, programs=_ONLY_BY_BIN),
    )


_BIN_VERBS = _bin_verbs(specs.DeleteSpec, specs.DestroySpec)
_cascading_bin_verbs = partial(_bin_verbs, specs.CascadingDeleteSpec, specs.CascadingDestroySpec)
_DEPLOY_VERB = Verb("deploy", OPERATE_OBJECT, "Create the real object of a record.")
_ENABLE_VERBS = (
    Verb("disable", OPERATE_OBJECT, "Disable it, until it is enabled again."),
    Verb("enable", OPERATE_OBJECT, "Enable it again."),
)

_DISCARD_VERB = orphan_verb("Remove at the hypervisor what no record knows.", (InternalProgram.SELF_HEALING,))

_hypervisor_kind = partial(Kind, is_simulated=is_always_simulated, backend_role="hypervisor", busy_hint=BUSY_HINT)

KINDS: tuple[Kind, ...] = (
    Kind(
        table=ACCOUNT,
        scope=("account",),
        verbs=(
            Verb("create", OPERATE_OBJECT, "Create an account.", specs.NewAccountSpec),
            Verb("disable", OPERATE_OBJECT, "Stop its machines and pause its cloudspaces."),
            Verb("enable", OPERATE_OBJECT, "Resume its cloudspaces; machines stay stopped."),
            *_cascading_bin_verbs("Restore it from the recycle bin, without its contents."),
        ),
        busy_hint=BUSY_HINT,
        help="Accounts, which own cloudspaces and disks.",
        alias_forms=G8_NUMBER,
    ),
    _hypervisor_kind(
        table=CLOUDSPACE,
        scope=("account", "cloudspace"),
        verbs=(
            Verb(
                "create", OPERATE_OBJECT, "Create a cloudspace: a network with its firewall.", specs.NewCloudspaceSpec
            ),
            _DEPLOY_VERB,
            *_ENABLE_VERBS,
            Verb("pause", OPERATE_OBJECT, "Stop the virtual firewall."),
            Verb("resume", OPERATE_OBJECT, "Start the virtual firewall."),
            Verb("reset", OPERATE_OBJECT, "Restart the virtual firewall."),
            *_cascading_bin_verbs("Restore it from the recycle bin, with the machines and disks deleted with it."),
            _DISCARD_VERB,
        ),
        help="Cloudspaces, which contain machines.",
        alias_forms=G8_NUMBER,
    ),
    _hypervisor_kind(
        table=MACHINE,
        scope=("account", "cloudspace", "machine"),
        counts_as_vm=True,
        place_key="node",
        verbs=(
            Verb("create", OPERATE_OBJECT, "Create a machine and start it.", specs.NewMachineSpec),
            _DEPLOY_VERB,
            Verb("start", OPERATE_OBJECT, "Start a halted machine.", programs=_ONLY_BY_NODE, on_behalf=True),
            Verb("pause", OPERATE_OBJECT, "Pause it; its memory stays."),
            Verb("resume", OPERATE_OBJECT, "Resume a paused machine."),
            Verb("stop", OPERATE_OBJECT, "Shut it down.", programs=_ONLY_BY_NODE, on_behalf=True),
            Verb("reboot", OPERATE_OBJECT, "Shut it down and start it."),
            Verb("reset", OPERATE_OBJECT, "Switch it off and on."),
            Verb("add-disk", OPERATE_OBJECT, "Create a disk and attach it.", specs.AddDiskSpec),
            Verb("attach-disk", OPERATE_OBJECT, "Attach an existing disk.", specs.DiskNameSpec),
            Verb("detach-disk", OPERATE_OBJECT, "Detach a disk.", specs.DiskNameSpec),
            Verb(
                "snapshot",
                OPERATE_OBJECT,
                "Keep its disks and memory as they are now, under a name.",
                specs.SnapshotNameSpec,
            ),
            Verb("rollback", OPERATE_OBJECT, "Bring it back to a snapshot.", specs.SnapshotNameSpec),
            Verb("delete-snapshot", OPERATE_OBJECT, "Delete a snapshot.", specs.SnapshotNameSpec),
            Verb(
                "migrate",
                OPERATE_OBJECT,
                "Migrate it to another node, hidden.",
                specs.MigrateSpec,
                programs=_ONLY_BY_NODE,
                on_behalf=True,
            ),
            *_BIN_VERBS,
            _DISCARD_VERB,
        ),
        help="Virtual machines.",
        alias_forms=G8_NUMBER,
    ),
    _hypervisor_kind(
        table=DISK,
        scope=("account", "disk"),
        place_key="machine",
        verbs=(
            Verb("create", OPERATE_OBJECT, "Create a detached disk.", specs.NewDiskSpec),
            _DEPLOY_VERB,
            Verb(
                "assign",
                OPERATE_OBJECT,
                "Create the real object of a record, attached to a machine.",
                specs.MachineNameSpec,
            ),
            Verb("attach", OPERATE_OBJECT, "Attach it to a machine.", specs.MachineNameSpec),
            Verb("detach", OPERATE_OBJECT, "Detach it from its machine."),
            *_BIN_VERBS,
            _DISCARD_VERB,
        ),
        help="Disks.",
        alias_forms=G8_NUMBER,
    ),
    _hypervisor_kind(
        table=IMAGE,
        scope=("image",),
        serves_all=True,
        verbs=(
            Verb("create", OPERATE_OBJECT, "Create an image.", specs.NewImageSpec),
            _DEPLOY_VERB,
            *_ENABLE_VERBS,
            *_BIN_VERBS,
            _DISCARD_VERB,
        ),
        help="Images that machines start from.",
        alias_forms=G8_NUMBER,
    ),
    _hypervisor_kind(
        table=NODE,
        scope=("node",),
        serves_all=True,
        verbs=(
            Verb("create", OPERATE_OBJECT, "Create a node.", specs.NewNodeSpec),
            Verb(
                "maintain",
                WORK_ON_NODE,
                "Put it in maintenance; its machines are moved or stopped.",
                specs.MaintainSpec,
            ),
            Verb("enable", WORK_ON_NODE, "Enable it again, and start machines that were stopped for maintenance."),
            Verb("decommission", WORK_ON_NODE, "Decommission it; its machines move to other nodes."),
            _DISCARD_VERB,
        ),
        help="Nodes, on which machines run.",
    ),
)
