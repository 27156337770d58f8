"""The tables of MCI and VM, and what the clouds are told to do for each action."""

from __future__ import annotations

from enum import StrEnum

from domain.ports import VmState
from domain.statetable import NONE, SAME, Actor, Row, StateTable


class VmStatus(StrEnum):
    """What a VM can be."""

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
    """What an MCI can be besides, before there is any VM."""

    PREPARING = "Preparing"
    PREPARED = "Prepared"


class OrphanStatus(StrEnum):
    """What an orphan can be, while it is acted on."""

    REMOVING = "Removing"
    ADOPTING = "Adopting"


S, P = VmStatus, MciPhase

# What a cloud may find a VM to be when an action on it did not end as ordered.
_UNSETTLED = (S.CREATING, S.SUSPENDING, S.RESUMING, S.REBOOTING, S.TERMINATING)
_OBSERVED = (S.RUNNING, S.SUSPENDED, S.TERMINATED, S.UNDEFINED)

# What may change behind our back. What is terminated stays so.
_DRIFTING = (S.RUNNING, S.SUSPENDED, S.FAILED, S.UNDEFINED)

# Which VMs lose their records, after the cloud has confirmed that they are gone.
_REMOVED = {
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
      for remove, sources in _REMOVED.items() for source in sources),
    *(Row("refine",  source,       None,           SAME,                   actor=Actor.GROUP)  # nothing to refine
      for source in (S.RUNNING, S.SUSPENDED, S.TERMINATED)),
    *(Row("observe", source,       None,           seen,         actor=Actor.CLOUD)        # the cloud knows better
      for source in (*_UNSETTLED, *_DRIFTING) for seen in _OBSERVED if seen != source),
))

MCI = StateTable("mci", "MCI", (
    #   action       from          while           then          else
    Row("create",    NONE,         P.PREPARING,    S.RUNNING,    S.FAILED),
    Row("prepare",   P.PREPARING,  None,           P.PREPARED,   actor=Actor.CONTROLLER),
    Row("provision", P.PREPARED,   None,           S.CREATING,   actor=Actor.CONTROLLER),  # here VMs are born
    Row("withdraw",  P.PREPARED,   None,           NONE,         actor=Actor.CONTROLLER),  # told to, while holding
    Row("rollback",  S.CREATING,   None,           NONE,         actor=Actor.CONTROLLER),
    # Running here means: its VMs speak for it. What they are to be stands in `target`.
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
), passing=(P.PREPARED, S.CREATING))

# A VM outside that no record knows. It is kept only while it is acted on, below the path that it carries.
ORPHAN = StateTable("orphan", "Orphan", (
    #   action       from          while           then          else
    Row("remove",    NONE,         OrphanStatus.REMOVING, NONE,         NONE),
    Row("adopt",     NONE,         OrphanStatus.ADOPTING, NONE,         NONE),   # the VM's record goes by its own rows
))

# Ties go to the earlier one.
TIE_ORDER = (
    S.FAILED, S.SUSPENDED, S.RUNNING, S.TERMINATED, S.CREATING,
    S.SUSPENDING, S.RESUMING, S.REBOOTING, S.TERMINATING, S.UNDEFINED,
)

# What the cloud is told to do for an action, if its name is not that, and what the VM should be then. A record goes
# only with its VM.
ORDERS = {"scale-out": "create"} | dict.fromkeys(_REMOVED, "terminate")
REMOVING = tuple(_REMOVED)
WANTED = {row.action: S.TERMINATED if row.then == NONE else VmStatus(row.then) for row in VM.rows if row.during}

OBSERVED: dict[VmState, VmStatus] = {
    VmState.RUNNING:    S.RUNNING,
    VmState.STOPPED:    S.SUSPENDED,
    VmState.TERMINATED: S.TERMINATED,
}
# fmt: on

# A status read asks the cloud about these: what rests in another status is believed.
ASKED = (S.RUNNING, S.UNDEFINED, *_UNSETTLED)
# A record in one of these has lost its VM, or never had one: it can be given one that is found outside.
ADOPTING = (S.FAILED, S.UNDEFINED)
# A reconciliation asks about everything that may still exist.
RECONCILED = (*ASKED, S.SUSPENDED, S.FAILED)
