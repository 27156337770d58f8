"""The state tables of MCI, VM and orphan, and which order a cloud gets for each action."""

from __future__ import annotations

from enum import StrEnum

from domain.statetable import NONE, SAME, Actor, Row, StateTable
from domain.vmstate import VmState


class VmStatus(StrEnum):
    """The statuses of a VM."""

    CREATING = "Creating"
    RUNNING = "Running"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    RESUMING = "Resuming"
    REBOOTING = "Rebooting"
    TERMINATING = "Terminating"
    TERMINATED = "Terminated"
    FAILED = "Failed"
    UNDEFINED = "Undefined"


class MciPhase(StrEnum):
    """The additional statuses of an MCI, before it has VMs."""

    PREPARING = "Preparing"
    PREPARED = "Prepared"


class OrphanStatus(StrEnum):
    """The statuses of an orphan, which is stored only while it is acted on."""

    REMOVING = "Removing"
    ADOPTING = "Adopting"


S, P = VmStatus, MciPhase

# The statuses a cloud may report for a VM whose action did not end as ordered.
_UNSETTLED = (S.CREATING, S.SUSPENDING, S.RESUMING, S.REBOOTING, S.TERMINATING)
_OBSERVED = (S.RUNNING, S.SUSPENDED, S.TERMINATED, S.UNDEFINED)

# Statuses that may change without an action of ours. Terminated never does.
_DRIFTING = (S.RUNNING, S.SUSPENDED, S.FAILED, S.UNDEFINED)

# The VMs whose records an action removes, after the cloud has confirmed that they are gone.
_STATUSES_TO_REMOVE = {
    "refine": (S.FAILED, S.UNDEFINED),
    "delete": (S.RUNNING, S.SUSPENDED, S.TERMINATED, S.FAILED, S.UNDEFINED),
    "scale-in": (S.RUNNING, S.SUSPENDED, S.TERMINATED, S.FAILED, S.UNDEFINED),
}

# fmt: off
VM = StateTable("vm", "VM", (
    #   action       from          while           then          else
    Row("create",    NONE,         S.CREATING,     S.RUNNING,    S.FAILED),
    Row("scale-out", NONE,         S.CREATING,     S.RUNNING,    S.FAILED, actor=Actor.GROUP),
    Row("suspend",   S.RUNNING,    S.SUSPENDING,   S.SUSPENDED,  S.FAILED),
    Row("resume",    S.SUSPENDED,  S.RESUMING,     S.RUNNING,    S.FAILED),
    Row("reboot",    S.RUNNING,    S.REBOOTING,    S.RUNNING,    S.FAILED),
    Row("terminate", S.RUNNING,    S.TERMINATING,  S.TERMINATED, S.FAILED),
    Row("terminate", S.SUSPENDED,  S.TERMINATING,  S.TERMINATED, S.FAILED),
    Row("terminate", S.TERMINATED, None,           SAME),                                  # asked twice: nothing to do
    Row("terminate", S.FAILED,     S.TERMINATING,  S.TERMINATED, S.FAILED, force=True),
    Row("terminate", S.UNDEFINED,  S.TERMINATING,  S.TERMINATED, S.FAILED, force=True),
    *(Row(remove,    source,       S.TERMINATING,  NONE,         S.FAILED, actor=Actor.GROUP, target=S.TERMINATED)
      for remove, sources in _STATUSES_TO_REMOVE.items() for source in sources),
    *(Row("refine",  source,       None,           SAME,                   actor=Actor.GROUP)  # nothing to refine
      for source in (S.RUNNING, S.SUSPENDED, S.TERMINATED)),
    *(Row("observe", source,       None,           seen,         actor=Actor.CLOUD)        # the cloud knows better
      for source in (*_UNSETTLED, *_DRIFTING) for seen in _OBSERVED if seen != source),
))

MCI = StateTable("mci", "MCI", (
    #   action       from          while           then          else
    Row("create",    NONE,         P.PREPARING,    S.RUNNING,    S.FAILED),
    Row("prepare",   P.PREPARING,  None,           P.PREPARED,   actor=Actor.CONTROLLER),
    Row("provision", P.PREPARED,   None,           S.CREATING,   actor=Actor.CONTROLLER),  # here VMs are created
    Row("withdraw",  P.PREPARED,   None,           NONE,         actor=Actor.CONTROLLER),  # requested while holding
    Row("rollback",  S.CREATING,   None,           NONE,         actor=Actor.CONTROLLER),
    # Running here means: the status shown is computed from the VMs. `target` is their TargetStatus.
    Row("suspend",   S.RUNNING,    S.SUSPENDING,   SAME,         SAME,     target=S.SUSPENDED),
    Row("resume",    S.RUNNING,    S.RESUMING,     SAME,         SAME,     target=S.RUNNING),
    Row("reboot",    S.RUNNING,    S.REBOOTING,    SAME,         SAME,     target=S.RUNNING),
    Row("terminate", S.RUNNING,    S.TERMINATING,  SAME,         SAME,     target=S.TERMINATED),
    Row("terminate", S.FAILED,     S.TERMINATING,  SAME,         SAME,     target=S.TERMINATED, force=True),
    Row("refine",    S.RUNNING,    S.TERMINATING,  S.RUNNING,    SAME),
    Row("refine",    S.FAILED,     S.TERMINATING,  S.RUNNING,    SAME),   # with no VM left that is: Empty
    Row("scale-out", S.RUNNING,    S.CREATING,     SAME,         SAME),
    Row("scale-in",  S.RUNNING,    S.TERMINATING,  SAME,         SAME),
    Row("delete",    S.RUNNING,    S.TERMINATING,  NONE,         SAME,     target=S.TERMINATED),
    Row("delete",    S.FAILED,     S.TERMINATING,  NONE,         SAME,     target=S.TERMINATED),
), passing_statuses=(P.PREPARED, S.CREATING))

# A VM in a cloud without a record. It is stored only while it is acted on, below the path that it carries.
ORPHAN = StateTable("orphan", "Orphan", (
    #   action       from          while           then          else
    Row("remove",    NONE,         OrphanStatus.REMOVING, NONE,         NONE),
    Row("adopt",     NONE,         OrphanStatus.ADOPTING, NONE,         NONE),   # the VM's record goes by its own rows
))

# On a tie the earlier status is shown.
STATUS_TIE_ORDER = (
    S.FAILED, S.SUSPENDED, S.RUNNING, S.TERMINATED, S.CREATING,
    S.SUSPENDING, S.RESUMING, S.REBOOTING, S.TERMINATING, S.UNDEFINED,
)

# The order for an action, where its name differs, and the status that the VM should have then. A record is removed
# only with its VM.
CLOUD_VERB_OF_ACTION = {"scale-out": "create"} | dict.fromkeys(_STATUSES_TO_REMOVE, "terminate")
REMOVING_ACTIONS = tuple(_STATUSES_TO_REMOVE)
WANTED_STATUS = {row.action: S.TERMINATED if row.then == NONE else VmStatus(row.then) for row in VM.rows if row.during}

STATUS_OF_CLOUD_STATE: dict[VmState, VmStatus] = {
    VmState.RUNNING:    S.RUNNING,
    VmState.STOPPED:    S.SUSPENDED,
    VmState.TERMINATED: S.TERMINATED,
}
# fmt: on

# A survey asks the cloud about these; a record that rests in another status is trusted.
SURVEYED_STATUSES = (S.RUNNING, S.UNDEFINED, *_UNSETTLED)
# A record in one of these has no VM: it can adopt an orphan.
ADOPTABLE_STATUSES = (S.FAILED, S.UNDEFINED)
# A reconciliation asks about every VM that may still exist.
RECONCILED_STATUSES = (*SURVEYED_STATUSES, S.SUSPENDED, S.FAILED)
