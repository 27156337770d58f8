"""The machine family: accounts, cloudspaces, machines, disks, images and nodes, and their actions."""

from __future__ import annotations

from domain.kinds import Kind, Program, Verb, orphan_verb
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

__all__ = ["KINDS", "TABLES", "TRANSITION_STATES", "MachineStatus", "validate_transition"]

# Names that cross the wire.
OPERATE = "OperateObject"
NODE_WORK = "WorkOnNode"
BIN = "EmptyBin"
BIN_ROLE = "bin"
LOOK_AGAIN = "look_again"
QUEUE = "hypervisor"

BUSY = "Cannot execute action at this time"  # the source document's wording

_BY_BIN, _BY_NODE = (Program.RECYCLE_BIN,), ("node",)
_BIN = (
    Verb("delete", OPERATE, "Move it to the recycle bin, until its retention is over.", specs.Delete),
    Verb("restore", OPERATE, "Restore it from the recycle bin."),
    Verb("destroy", OPERATE, "Destroy it for good.", specs.Destroy, programs=_BY_BIN),
)
_BIN_WITH_CONTENTS = (
    Verb("delete", OPERATE, "Move it to the recycle bin, until its retention is over.", specs.DeleteAll),
    Verb("restore", OPERATE, "Restore it from the recycle bin, without its contents."),
    Verb("destroy", OPERATE, "Destroy it for good.", specs.DestroyAll, programs=_BY_BIN),
)
_DEPLOY = Verb("deploy", OPERATE, "Create the real object of a record.")
_ABLE = (
    Verb("disable", OPERATE, "Disable it, until it is enabled again."),
    Verb("enable", OPERATE, "Enable it again."),
)

_DISCARD = orphan_verb("Remove at the hypervisor what no record knows.", (Program.SELF_HEALING,))

KINDS: tuple[Kind, ...] = (
    Kind(
        table=ACCOUNT,
        scope=("account",),
        verbs=(
            Verb("create", OPERATE, "Create an account.", specs.NewAccount),
            Verb("disable", OPERATE, "Stop its machines and pause its cloudspaces."),
            Verb("enable", OPERATE, "Resume its cloudspaces; machines stay stopped."),
            *_BIN_WITH_CONTENTS,
        ),
        busy=BUSY,
        help="Accounts, which own cloudspaces and disks.",
    ),
    Kind(
        table=CLOUDSPACE,
        scope=("account", "cloudspace"),
        verbs=(
            Verb("create", OPERATE, "Create a cloudspace: a network with its firewall.", specs.NewCloudspace),
            _DEPLOY,
            *_ABLE,
            Verb("pause", OPERATE, "Stop the virtual firewall."),
            Verb("resume", OPERATE, "Start the virtual firewall."),
            Verb("reset", OPERATE, "Restart the virtual firewall."),
            _BIN_WITH_CONTENTS[0],
            Verb("restore", OPERATE, "Restore it from the recycle bin, with the machines and disks deleted with it."),
            _BIN_WITH_CONTENTS[-1],
            _DISCARD,
        ),
        busy=BUSY,
        help="Cloudspaces, which contain machines.",
    ),
    Kind(
        table=MACHINE,
        scope=("account", "cloudspace", "machine"),
        place="node",
        verbs=(
            Verb("create", OPERATE, "Create a machine and start it.", specs.NewMachine),
            _DEPLOY,
            Verb("start", OPERATE, "Start a halted machine.", programs=_BY_NODE),
            Verb("pause", OPERATE, "Pause it; its memory stays."),
            Verb("resume", OPERATE, "Resume a paused machine."),
            Verb("stop", OPERATE, "Shut it down.", programs=_BY_NODE),
            Verb("reboot", OPERATE, "Shut it down and start it."),
            Verb("reset", OPERATE, "Switch it off and on."),
            Verb("add-disk", OPERATE, "Create a disk and attach it.", specs.AddDisk),
            Verb("attach-disk", OPERATE, "Attach an existing disk.", specs.DiskChoice),
            Verb("detach-disk", OPERATE, "Detach a disk.", specs.DiskChoice),
            Verb("migrate", OPERATE, "Migrate it to another node, hidden.", specs.Migrate, programs=_BY_NODE),
            *_BIN,
            _DISCARD,
        ),
        busy=BUSY,
        help="Virtual machines.",
    ),
    Kind(
        table=DISK,
        scope=("account", "disk"),
        place="machine",
        verbs=(
            Verb("create", OPERATE, "Create a detached disk.", specs.NewDisk),
            _DEPLOY,
            Verb("assign", OPERATE, "Create the real object of a record, attached to a machine.", specs.MachineChoice),
            Verb("attach", OPERATE, "Attach it to a machine.", specs.MachineChoice),
            Verb("detach", OPERATE, "Detach it from its machine."),
            *_BIN,
            _DISCARD,
        ),
        busy=BUSY,
        help="Disks.",
    ),
    Kind(
        table=IMAGE,
        scope=("image",),
        verbs=(Verb("create", OPERATE, "Create an image.", specs.NewImage), _DEPLOY, *_ABLE, *_BIN, _DISCARD),
        busy=BUSY,
        help="Images that machines start from.",
    ),
    Kind(
        table=NODE,
        scope=("node",),
        verbs=(
            Verb("create", OPERATE, "Create a node.", specs.NewNode),
            Verb("maintain", NODE_WORK, "Put it in maintenance; its machines are moved or stopped.", specs.Maintain),
            Verb("enable", NODE_WORK, "Enable it again, and start machines that were stopped for maintenance."),
            Verb("decommission", NODE_WORK, "Decommission it; its machines move to other nodes."),
            _DISCARD,
        ),
        busy=BUSY,
        help="Nodes, on which machines run.",
    ),
)
