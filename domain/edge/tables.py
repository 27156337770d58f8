"""The state tables of the edge: cloudlet, ClusterInst, AppInst and policy.

The source document's `NotPresent` is an object that does not exist; `Deleted` is the CRM's other word for it. Rows of
the Controller that end in an error are ours: the CRM did not answer in time.
"""

from __future__ import annotations

from enum import StrEnum

from domain.statetable import NONE, SAME, Actor, Row, StateTable


class EdgeStatus(StrEnum):
    """The statuses of cloudlets, clusters, apps and policies."""

    OFFLINE = "Offline"
    INIT = "Init"
    INIT_OK = "InitOk"
    READY = "Ready"
    CREATE_REQUESTED = "CreateRequested"
    CREATING = "Creating"
    CREATE_ERROR = "CreateError"
    UPDATE_REQUESTED = "UpdateRequested"
    UPDATING = "Updating"
    UPDATE_ERROR = "UpdateError"
    DELETE_PREPARE = "DeletePrepare"
    DELETE_REQUESTED = "DeleteRequested"
    DELETING = "Deleting"
    DELETE_ERROR = "DeleteError"
    MAINTENANCE_START = "MaintenanceStart"
    UNDER_MAINTENANCE = "UnderMaintenance"
    NORMAL_OPERATION_INIT = "NormalOperationInit"
    ACTIVE = "Active"
    INACTIVE = "Inactive"


class CrmActor(StrEnum):
    """The actors besides the user and the controller: the CRM, and its two versions during an upgrade."""

    CRM = "CRM"
    V1 = "CRMv1"
    V2 = "CRMv2"


S = EdgeStatus
CRM, V1, V2, CONTROLLER = CrmActor.CRM, CrmActor.V1, CrmActor.V2, Actor.CONTROLLER

NOT_PRESENT = "NotPresent"
GONE_STATES = (NOT_PRESENT, "Deleted")  # the CRM's words for an object that does not exist


def _instance_table(kind: str, label: str) -> StateTable:
    # fmt: off
    return StateTable(kind, label, (
        #   action      from                while                then     else
        Row("create",   NONE,               S.CREATE_REQUESTED,  S.READY, S.CREATE_ERROR),
        Row("update",   S.READY,            S.UPDATE_REQUESTED,  S.READY, S.READY),
        Row("delete",   S.READY,            S.DELETE_PREPARE,    NONE,    SAME),
        Row("recreate", S.READY,            S.CREATE_REQUESTED,  S.READY, S.CREATE_ERROR),  # missing on its cloudlet
        Row("delete",   S.CREATE_ERROR,     S.DELETE_PREPARE,    NONE,    SAME),  # cut off before its undo
        Row("discard",  NONE,               S.DELETE_REQUESTED,  NONE,    NONE),  # an orphan on its cloudlet

        #   what        from                                     to                actor
        Row("response", S.CREATE_REQUESTED, None,                S.CREATING,       actor=CRM),
        Row("response", S.CREATE_REQUESTED, None,                S.READY,          actor=CRM),  # Creating was missed
        Row("error",    S.CREATE_REQUESTED, None,                S.CREATE_ERROR,   actor=CRM),
        Row("response", S.CREATING,         None,                S.READY,          actor=CRM),
        Row("error",    S.CREATING,         None,                S.CREATE_ERROR,   actor=CRM),
        Row("undo",     S.CREATE_ERROR,     None,                NONE,             actor=CONTROLLER),

        Row("response", S.UPDATE_REQUESTED, None,                S.UPDATING,       actor=CRM),
        Row("response", S.UPDATE_REQUESTED, None,                S.READY,          actor=CRM),  # Updating was missed
        Row("error",    S.UPDATE_REQUESTED, None,                S.UPDATE_ERROR,   actor=CRM),
        Row("response", S.UPDATING,         None,                S.READY,          actor=CRM),
        Row("error",    S.UPDATING,         None,                S.UPDATE_ERROR,   actor=CRM),
        Row("undo",     S.UPDATE_ERROR,     None,                S.READY,          actor=CONTROLLER),

        Row("prepared", S.DELETE_PREPARE,   None,                S.DELETE_REQUESTED, actor=CONTROLLER),
        Row("response", S.DELETE_REQUESTED, None,                S.DELETING,       actor=CRM),
        Row("response", S.DELETE_REQUESTED, None,                NONE,             actor=CRM),  # Deleting was missed
        Row("error",    S.DELETE_REQUESTED, None,                S.DELETE_ERROR,   actor=CRM),
        Row("response", S.DELETING,         None,                NONE,             actor=CRM),
        Row("error",    S.DELETING,         None,                S.DELETE_ERROR,   actor=CRM),
        Row("undo",     S.DELETE_ERROR,     None,                S.READY,          actor=CONTROLLER),

        *(Row("silence", source,            None,                ERROR_STATUS_OF[source], actor=CONTROLLER)
          for source in ERROR_STATUS_OF),
    ), passing_statuses=(S.CREATING, S.UPDATING, S.UPDATE_ERROR, S.DELETE_REQUESTED, S.DELETING, S.DELETE_ERROR))
    # fmt: on


# The error status of an instance when the CRM reports an error, or is silent for too long.
ERROR_STATUS_OF: dict[str, EdgeStatus] = {
    S.CREATE_REQUESTED: S.CREATE_ERROR,
    S.CREATING: S.CREATE_ERROR,
    S.UPDATE_REQUESTED: S.UPDATE_ERROR,
    S.UPDATING: S.UPDATE_ERROR,
    S.DELETE_REQUESTED: S.DELETE_ERROR,
    S.DELETING: S.DELETE_ERROR,
}

CREATE_STATUSES = (S.CREATE_REQUESTED, S.CREATING)
UPDATE_STATUSES = (S.UPDATE_REQUESTED, S.UPDATING)
DELETE_STATUSES = (S.DELETE_REQUESTED, S.DELETING)

CLUSTER = _instance_table("cluster", "ClusterInst")
APP = _instance_table("app", "AppInst")

_CONNECTED = (S.READY, S.INIT, S.INIT_OK)
_UPGRADING = (S.UPDATE_REQUESTED, S.UPDATING, S.INIT_OK)
_AT_REST = (S.READY, S.OFFLINE, S.INIT_OK, S.UPDATE_ERROR, S.UNDER_MAINTENANCE)

# fmt: off
CLOUDLET = StateTable("cloudlet", "Cloudlet", (
    #   action               from                 while                    then                 else
    Row("create",            NONE,                S.INIT,                  S.READY,             S.OFFLINE),
    Row("create",            S.OFFLINE,           S.INIT,                  S.READY,             S.OFFLINE),
    Row("create",            S.INIT_OK,           S.INIT,                  S.READY,             S.OFFLINE),  # once more
    Row("upgrade",           S.READY,             S.UPDATE_REQUESTED,      S.READY,             S.UPDATE_ERROR),
    Row("repair",            S.UPDATE_ERROR,      S.INIT,                  S.READY,             S.UPDATE_ERROR),
    Row("maintenance-start", S.READY,             S.MAINTENANCE_START,     S.UNDER_MAINTENANCE, S.READY),
    Row("maintenance-end",   S.UNDER_MAINTENANCE, S.NORMAL_OPERATION_INIT, S.READY,             S.UNDER_MAINTENANCE),
    *(Row("rekey",           source,              S.UPDATE_REQUESTED,      SAME,                SAME)  # its CRM's token
      for source in _AT_REST),
    *(Row("delete",          source,              S.DELETE_REQUESTED,      NONE,                SAME)
      for source in _AT_REST),

    #   what         from                           to               actor
    Row("startup",   S.OFFLINE,              None,  S.INIT,          actor=CRM),        # started manually
    Row("startup",   S.READY,                None,  S.INIT,          actor=CRM),        # with a new notify-id
    Row("startup",   S.INIT,                 None,  SAME,            actor=CRM),
    Row("startup",   S.INIT_OK,              None,  S.INIT,          actor=CRM),
    Row("startup",   S.UNDER_MAINTENANCE,    None,  SAME,            actor=CRM),
    Row("ack",       S.INIT,                 None,  S.INIT_OK,       actor=CONTROLLER),
    Row("gathered",  S.INIT_OK,              None,  S.READY,         actor=CRM),        # triggers send of all data
    *(Row("lost",    source,                 None,  S.OFFLINE,       actor=CONTROLLER)  # unless it is back already
      for source in _CONNECTED),

    Row("upgrading", S.UPDATE_REQUESTED,     None,  S.UPDATING,      actor=V1),
    Row("ack",       S.UPDATE_REQUESTED,     None,  S.INIT_OK,       actor=CONTROLLER),
    Row("error",     S.UPDATE_REQUESTED,     None,  S.UPDATE_ERROR,  actor=V1),
    Row("ack",       S.UPDATING,             None,  S.INIT_OK,       actor=CONTROLLER),
    Row("handover",  S.UPDATING,             None,  S.READY,         actor=V2),
    Row("error",     S.UPDATING,             None,  S.UPDATE_ERROR,  actor=V1),
    Row("handover",  S.INIT_OK,              None,  S.READY,         actor=V2),
    Row("error",     S.INIT_OK,              None,  S.UPDATE_ERROR,  actor=V1),
    Row("resend",    S.UPDATE_ERROR,         None,  SAME,            actor=V1),         # it serves on; the state stays
    *(Row("silence", source,                 None,  S.UPDATE_ERROR,  actor=CONTROLLER)
      for source in _UPGRADING),
    Row("cut off",   S.READY,                None,  S.UPDATE_ERROR,  actor=CONTROLLER),  # and CRMv2 is there
), passing_statuses=(S.UPDATING,))  # not InitOk: a CRM that connects on its own may stay there while it gathers

POLICY = StateTable("policy", "Policy", (
    #   action    from         while         then       else
    Row("create", NONE,        S.CREATING,   S.ACTIVE,  S.INACTIVE),
    Row("create", S.INACTIVE,  S.CREATING,   S.ACTIVE,  S.INACTIVE),
    Row("update", S.ACTIVE,    S.UPDATING,   S.ACTIVE,  SAME),
    Row("delete", S.ACTIVE,    S.DELETING,   NONE,      SAME),
    Row("delete", S.INACTIVE,  S.DELETING,   NONE,      SAME),
))
# fmt: on


def why_changes_refused(status: str, connected: bool) -> str:
    """Returns why a cloudlet accepts no changes of instances now; empty if it does."""
    if status == S.UPDATE_ERROR:
        return "its upgrade failed (UpdateError)"
    if status in (S.UPDATE_REQUESTED, S.UPDATING):
        return f"it is being upgraded ({status})"
    if status in (S.MAINTENANCE_START, S.UNDER_MAINTENANCE, S.NORMAL_OPERATION_INIT):
        return f"it is in maintenance ({status})"
    if status == S.OFFLINE:
        return "it is Offline: no CRM is connected"
    if status != S.READY:
        return f"it is not Ready yet ({status})"
    return "" if connected else "its CRM is not connected"
