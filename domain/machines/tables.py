"""The six state tables of the machine family, as the source document prints them, with the rows that it lacks.

Rows of the actor Group are never requested of the object itself: an action on its parent takes it along. A row without
*else* leads back, after a failure, to the status that the object came from.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from domain.errors import Category, Refused
from domain.statetable import NONE, SAME, Actor, Row, StateTable


class MachineStatus(StrEnum):
    """The statuses of accounts, cloudspaces, machines, disks, images and nodes."""

    VIRTUAL = "VIRTUAL"
    DEPLOYING = "DEPLOYING"
    RUNNING = "RUNNING"
    PAUSING = "PAUSING"
    PAUSED = "PAUSED"
    RESUMING = "RESUMING"
    STARTING = "STARTING"
    STOPPING = "STOPPING"
    HALTED = "HALTED"
    REBOOTING = "REBOOTING"
    RESETTING = "RESETTING"
    ADDING_DISK = "ADDING_DISK"
    ATTACHING_DISK = "ATTACHING_DISK"
    DETACHING_DISK = "DETACHING_DISK"
    TAKING_SNAPSHOT = "TAKING_SNAPSHOT"
    ROLLING_BACK = "ROLLING_BACK"
    DELETING_SNAPSHOT = "DELETING_SNAPSHOT"
    DELETING = "DELETING"
    DELETED = "DELETED"
    RESTORING = "RESTORING"
    DESTROYING = "DESTROYING"
    DESTROYED = "DESTROYED"
    DEPLOYED = "DEPLOYED"
    DISABLING = "DISABLING"
    DISABLED = "DISABLED"
    ENABLING = "ENABLING"
    CONFIRMED = "CONFIRMED"
    MODELED = "MODELED"
    CREATING = "CREATING"
    CREATED = "CREATED"
    ASSIGNING = "ASSIGNING"
    ASSIGNED = "ASSIGNED"
    ATTACHING = "ATTACHING"
    DETACHING = "DETACHING"
    TOBEDELETED = "TOBEDELETED"
    ENABLED = "ENABLED"
    PUTTING_IN_MAINTENANCE = "PUTTING_IN_MAINTENANCE"
    MAINTENANCE = "MAINTENANCE"
    DECOMMISSIONING = "DECOMMISSIONING"
    DECOMMISSIONED = "DECOMMISSIONED"


def row(action: str, source: str, during: str | None, then: str, otherwise: str = SAME, **more: Any) -> Row:
    """Returns a row whose failure leads back to where the object came from, unless `otherwise` names a status."""
    return Row(action, source, during, then, otherwise, **more)


S = MachineStatus
GROUP = Actor.GROUP
_DEPLOYED_MACHINE = (S.RUNNING, S.PAUSED, S.HALTED)
_DISK_ACTIONS = {
    "add-disk": S.ADDING_DISK,
    "attach-disk": S.ATTACHING_DISK,
    "detach-disk": S.DETACHING_DISK,
}
_SNAPSHOT_ACTIONS = {  # not in the document: its platform had them
    "snapshot": S.TAKING_SNAPSHOT,
    "rollback": S.ROLLING_BACK,
    "delete-snapshot": S.DELETING_SNAPSHOT,
}

# fmt: off
# Removes at the hypervisor what has no record, or a record that is gone for good.
_DISCARD = row("discard", NONE, S.DESTROYING, NONE, NONE)

# Requested of a destroyed object: a success that does nothing.
_NOTHING_LEFT = tuple(row(action, S.DESTROYED, None, S.DESTROYED) for action in ("delete", "destroy"))


def _rows_of_bare_records(status: MachineStatus) -> tuple[Row, ...]:
    """Returns the rows that delete and destroy a record without a real object; the recycle bin is skipped."""
    gone = tuple(row(action, status, during, S.DESTROYED)
                 for action, during in (("delete", S.DELETING), ("destroy", S.DESTROYING)))
    return gone + _NOTHING_LEFT


MACHINE = StateTable("machine", "machine", (
    #   action       from           while             then
    row("create",    NONE,          S.DEPLOYING,      S.RUNNING,    S.VIRTUAL),  # the record stays, to deploy it again
    row("deploy",    S.VIRTUAL,     S.DEPLOYING,      S.RUNNING),
    row("start",     S.HALTED,      S.STARTING,       S.RUNNING),                # not in the document: needed
    row("pause",     S.RUNNING,     S.PAUSING,        S.PAUSED),
    row("resume",    S.PAUSED,      S.RESUMING,       S.RUNNING),
    row("stop",      S.RUNNING,     S.STOPPING,       S.HALTED),
    row("stop",      S.PAUSED,      S.STOPPING,       S.HALTED),
    row("reboot",    S.RUNNING,     S.REBOOTING,      S.RUNNING),
    row("reboot",    S.PAUSED,      S.REBOOTING,      S.RUNNING),
    row("reset",     S.RUNNING,     S.RESETTING,      S.RUNNING),
    *(row(action,    source,        during,           SAME)
      for action, during in (_DISK_ACTIONS | _SNAPSHOT_ACTIONS).items() for source in _DEPLOYED_MACHINE),
    *(row("delete",  source,        S.DELETING,       S.DELETED) for source in _DEPLOYED_MACHINE),
    *(row("destroy", source,        S.DESTROYING,     S.DESTROYED) for source in (*_DEPLOYED_MACHINE, S.DELETED)),
    row("restore",   S.DELETED,     S.RESTORING,      S.HALTED),                 # not in the document: needed
    *_rows_of_bare_records(S.VIRTUAL),
    *(row("migrate", source,        None,             SAME,         hidden=True) for source in _DEPLOYED_MACHINE),
    _DISCARD,
), vacant_statuses=(S.DESTROYED,))

CLOUDSPACE = StateTable("cloudspace", "cloudspace", (
    #   action       from           while             then
    row("create",    NONE,          S.DEPLOYING,      S.DEPLOYED,   S.VIRTUAL),
    row("deploy",    S.VIRTUAL,     S.DEPLOYING,      S.DEPLOYED),
    row("disable",   S.DEPLOYED,    S.DISABLING,      S.DISABLED),
    row("enable",    S.DISABLED,    S.ENABLING,       S.DEPLOYED),
    row("pause",     S.DEPLOYED,    S.PAUSING,        S.PAUSED),                 # the virtual firewall is stopped
    row("resume",    S.PAUSED,      S.RESUMING,       S.DEPLOYED),
    row("reset",     S.DEPLOYED,    S.RESETTING,      S.DEPLOYED),
    row("reset",     S.PAUSED,      S.RESETTING,      S.DEPLOYED),               # the document's note on PAUSED
    row("delete",    S.DEPLOYED,    S.DELETING,       S.DELETED),
    row("delete",    S.DISABLED,    S.DELETING,       S.DELETED),
    row("delete",    S.PAUSED,      S.DELETING,       S.DELETED,    actor=GROUP),
    row("restore",   S.DELETED,     S.RESTORING,      S.DEPLOYED),
    row("destroy",   S.DELETED,     S.DESTROYING,     S.DESTROYED),
    *(row("destroy", source,        S.DESTROYING,     S.DESTROYED,  actor=GROUP)
      for source in (S.DEPLOYED, S.DISABLED, S.PAUSED)),
    *_rows_of_bare_records(S.VIRTUAL),
    _DISCARD,
), vacant_statuses=(S.DESTROYED,))

ACCOUNT = StateTable("account", "account", (
    #   action       from           while             then
    row("create",    NONE,          S.ENABLING,       S.CONFIRMED,  NONE),
    row("disable",   S.CONFIRMED,   S.DISABLING,      S.DISABLED),
    row("enable",    S.DISABLED,    S.ENABLING,       S.CONFIRMED),
    row("delete",    S.CONFIRMED,   S.DELETING,       S.DELETED),
    row("delete",    S.DISABLED,    S.DELETING,       S.DELETED),
    row("restore",   S.DELETED,     S.RESTORING,      S.CONFIRMED),
    row("destroy",   S.CONFIRMED,   S.DESTROYING,     S.DESTROYED),
    row("destroy",   S.DISABLED,    S.DESTROYING,     S.DESTROYED),
    row("destroy",   S.DELETED,     S.DESTROYING,     S.DESTROYED),
    *_NOTHING_LEFT,
), vacant_statuses=(S.DESTROYED,))

DISK = StateTable("disk", "disk", (
    #   action       from           while             then
    row("create",    NONE,          S.CREATING,       S.CREATED,    S.MODELED),
    row("deploy",    S.MODELED,     S.CREATING,       S.CREATED),
    row("assign",    S.MODELED,     S.ASSIGNING,      S.ASSIGNED),
    row("assign",    NONE,          S.ASSIGNING,      S.ASSIGNED,   NONE,  actor=GROUP),  # added by its machine
    row("attach",    S.CREATED,     S.ATTACHING,      S.ASSIGNED),
    row("detach",    S.ASSIGNED,    S.DETACHING,      S.CREATED),
    row("delete",    S.CREATED,     S.DELETING,       S.DELETED),
    row("delete",    S.ASSIGNED,    S.DELETING,       S.TOBEDELETED),
    row("restore",   S.DELETED,     S.RESTORING,      S.CREATED),
    row("restore",   S.TOBEDELETED, S.RESTORING,      S.ASSIGNED),               # with its machine, or if that lives
    row("destroy",   S.CREATED,     S.DESTROYING,     S.DESTROYED),
    row("destroy",   S.ASSIGNED,    S.DESTROYING,     S.DESTROYED),
    row("destroy",   S.DELETED,     S.DESTROYING,     S.DESTROYED),
    row("destroy",   S.TOBEDELETED, S.DESTROYING,     S.DESTROYED),
    *_rows_of_bare_records(S.MODELED),
    _DISCARD,
), vacant_statuses=(S.DESTROYED,))

IMAGE = StateTable("image", "image", (
    #   action       from           while             then
    row("create",    NONE,          S.CREATING,       S.CREATED,    S.VIRTUAL),
    row("deploy",    S.VIRTUAL,     S.CREATING,       S.CREATED),
    row("disable",   S.CREATED,     S.DISABLING,      S.DISABLED),
    row("enable",    S.DISABLED,    S.ENABLING,       S.CREATED),                # DISABLING in the document: a slip
    row("delete",    S.CREATED,     S.DELETING,       S.DELETED),
    row("delete",    S.DISABLED,    S.DELETING,       S.DELETED),
    row("restore",   S.DELETED,     S.RESTORING,      S.CREATED),
    row("destroy",   S.CREATED,     S.DESTROYING,     S.DESTROYED),
    row("destroy",   S.DISABLED,    S.DESTROYING,     S.DESTROYED),
    row("destroy",   S.DELETED,     S.DESTROYING,     S.DESTROYED),
    *_rows_of_bare_records(S.VIRTUAL),
    _DISCARD,
), vacant_statuses=(S.DESTROYED,))

NODE = StateTable("node", "node", (
    #   action          from           while                     then
    row("create",       NONE,          S.ENABLING,               S.ENABLED,        NONE),
    row("maintain",     S.ENABLED,     S.PUTTING_IN_MAINTENANCE, S.MAINTENANCE),
    row("enable",       S.MAINTENANCE, S.ENABLING,               S.ENABLED),
    row("decommission", S.ENABLED,     S.DECOMMISSIONING,        S.DECOMMISSIONED),
    row("decommission", S.MAINTENANCE, S.DECOMMISSIONING,        S.DECOMMISSIONED),
    row("discard",      NONE,          S.DECOMMISSIONING,        NONE,             NONE),  # an orphan
), vacant_statuses=(S.DECOMMISSIONED,))
# fmt: on

TABLES = {table.kind: table for table in (MACHINE, CLOUDSPACE, ACCOUNT, DISK, IMAGE, NODE)}
TRANSITION_STATES = tuple(dict.fromkeys(word for table in TABLES.values() for word in table.transitional_statuses))
BIN_STATUSES = (S.DELETED, S.TOBEDELETED)
GONE_STATUSES = (S.DESTROYED, S.DECOMMISSIONED)
MEMORY_STATUSES = (  # of a machine that takes memory of its node
    *(S.RUNNING, S.PAUSING, S.PAUSED, S.RESUMING, S.STARTING, S.DEPLOYING, S.REBOOTING, S.RESETTING),
)


def validate_transition(object_type: str, init_state: str, desired_state: str) -> bool:
    """Tells whether one row that a user can request leads there; chains of rows and creations do not count."""
    if object_type not in TABLES:
        raise Refused(Category.INVALID, f"unknown object type {object_type[:40]!r}", f"types are: {', '.join(TABLES)}")
    return any(
        row.source == init_state and row.success_status(init_state) == desired_state
        for row in TABLES[object_type].rows
        if row.actor == Actor.USER and row.during and row.source != NONE
    )
