"""The edge family: cloudlets, cluster and app instances, and policies, and their actions.

A user decides what should exist on a cloudlet; the CRM that runs there does the work and reports what exists.
"""

from __future__ import annotations

from domain.edge import messages as wire
from domain.edge.policies import DemandSignal, list_later_actions
from domain.edge.specs import (
    AppSpec,
    CloudletSpec,
    ClusterSpec,
    DeleteClusterSpec,
    KeySpec,
    MaintenanceSpec,
    OverrideSpec,
    PolicySpec,
    UpgradeSpec,
)
from domain.edge.tables import APP, CLOUDLET, CLUSTER, NOT_PRESENT, POLICY
from domain.kinds import Kind, ObjectSignal, Verb, orphan_verb

_DISCARD = orphan_verb("Let its CRM delete an instance that no record knows.", workflow=wire.CHANGE_INSTANCE)

_ANSWERS = (
    ObjectSignal(
        wire.CRM_RESPONSE,
        wire.CrmResponse,
        "A CRM's answer: state, errors, notify_id, progress.",
        companion=(CLOUDLET.kind, wire.LINK_ROLE),
    ),
)
_DEMAND = (
    ObjectSignal(
        wire.DEMAND_SIGNAL,
        DemandSignal,
        "What was measured: clients near a cloudlet, or the load of a cluster.",
        reaches_action=False,
        companion=(POLICY.kind, wire.LOOP_ROLE),
        sender_field="requested_by",
    ),
)

# fmt: off
KINDS: tuple[Kind, ...] = (
    Kind(CLOUDLET, ("org", "cloudlet"), (
        Verb("create",            wire.BRING_UP_CLOUDLET, "Create a cloudlet, and wait for its CRM.", CloudletSpec),
        Verb("upgrade",           wire.UPGRADE_CLOUDLET,  "Replace its CRM by one of another version.", UpgradeSpec),
        Verb("repair",            wire.BRING_UP_CLOUDLET, "Bring its CRM up again after a failed upgrade."),
        Verb("maintenance-start", wire.MAINTAIN_CLOUDLET, "Begin maintenance, after a failover if requested.",
             MaintenanceSpec),
        Verb("maintenance-end",   wire.MAINTAIN_CLOUDLET, "End maintenance."),
        Verb("rekey",             wire.REKEY_CLOUDLET,    "Replace or remove its CRM's public key.", KeySpec),
        Verb("delete",            wire.DELETE_CLOUDLET,   "Shut down the CRM and delete the cloudlet."),
    ), "Edge sites, each with a CRM that does the work there.", absent_word=NOT_PRESENT, signals=_ANSWERS),
    Kind(CLUSTER, ("org", "cloudlet", "cluster"), (
        Verb("create",            wire.CHANGE_INSTANCE,   "Create a cluster on a cloudlet.", ClusterSpec),
        Verb("update",            wire.CHANGE_INSTANCE,   "Change the given fields of a cluster.", ClusterSpec,
             programs=("policy",), on_behalf=True),
        Verb("delete",            wire.CHANGE_INSTANCE,   "Delete a cluster.", DeleteClusterSpec),
        Verb("recreate",          wire.CHANGE_INSTANCE,   "Create again what its cloudlet has lost.", OverrideSpec),
        _DISCARD,
    ), "Cluster instances on cloudlets.", absent_word=NOT_PRESENT, signals=_ANSWERS),
    Kind(APP, ("org", "cloudlet", "cluster", "app"), (
        Verb("create",            wire.CHANGE_INSTANCE,   "Create an app in a cluster.", AppSpec,
             programs=("cloudlet", "policy"), on_behalf=True),
        Verb("update",            wire.CHANGE_INSTANCE,   "Change the given fields of an app.", AppSpec),
        Verb("delete",            wire.CHANGE_INSTANCE,   "Delete an app.", OverrideSpec,
             programs=("policy",), on_behalf=True),
        Verb("recreate",          wire.CHANGE_INSTANCE,   "Create again what its cloudlet has lost.", OverrideSpec),
        _DISCARD,
    ), "App instances in clusters.", absent_word=NOT_PRESENT, signals=_ANSWERS),
    Kind(POLICY, ("org", "policy"), (
        Verb("create",            wire.KEEP_POLICY,       "Create a policy that places an app, or sizes a cluster.",
             PolicySpec, leads_to=list_later_actions),
        Verb("update",            wire.KEEP_POLICY,       "Change a policy; its measurements stay.", PolicySpec,
             remakes=True, leads_to=list_later_actions),
        Verb("delete",            wire.KEEP_POLICY,       "Delete a policy; its instances stay."),
    ), "Policies that follow demand.", signals=_DEMAND),
)
# fmt: on
