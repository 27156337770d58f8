"""The edge family: cloudlets, cluster and app instances, and policies, and their actions.

A user decides what should exist on a cloudlet; the CRM that runs there does the work and reports what exists.
"""

from __future__ import annotations

from domain.edge import messages as wire
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
from domain.kinds import Kind, Verb

# fmt: off
KINDS: tuple[Kind, ...] = (
    Kind(CLOUDLET, ("org", "cloudlet"), (
        Verb("create",            wire.BRING_UP_CLOUDLET, "Make a cloudlet known, and wait for its CRM.", CloudletSpec),
        Verb("upgrade",           wire.UPGRADE_CLOUDLET,  "Hand over to a CRM of another version.", UpgradeSpec),
        Verb("repair",            wire.BRING_UP_CLOUDLET, "After a failed upgrade: bring up the CRM that is there."),
        Verb("maintenance-start", wire.MAINTAIN_CLOUDLET, "Begin maintenance; failing over first if asked.",
             MaintenanceSpec),
        Verb("maintenance-end",   wire.MAINTAIN_CLOUDLET, "Back to normal operation."),
        Verb("rekey",             wire.REKEY_CLOUDLET,    "Give its CRM another token, or none.", KeySpec),
        Verb("delete",            wire.DELETE_CLOUDLET,   "Shut down the CRM and forget the cloudlet."),
    ), "Edge sites, each with a CRM that does the work there.", absent=NOT_PRESENT),
    Kind(CLUSTER, ("org", "cloudlet", "cluster"), (
        Verb("create",            wire.CHANGE_INSTANCE,   "Create a cluster on a cloudlet.", ClusterSpec),
        Verb("update",            wire.CHANGE_INSTANCE,   "Change a cluster; what is not said stays.", ClusterSpec),
        Verb("delete",            wire.CHANGE_INSTANCE,   "Delete a cluster.", DeleteClusterSpec),
        Verb("recreate",          wire.CHANGE_INSTANCE,   "Create again what its cloudlet lost.", OverrideSpec),
    ), "Cluster instances on cloudlets.", absent=NOT_PRESENT),
    Kind(APP, ("org", "cloudlet", "cluster", "app"), (
        Verb("create",            wire.CHANGE_INSTANCE,   "Create an app in a cluster.", AppSpec,
             programs=("cloudlet",)),
        Verb("update",            wire.CHANGE_INSTANCE,   "Change an app; what is not said stays.", AppSpec),
        Verb("delete",            wire.CHANGE_INSTANCE,   "Delete an app.", OverrideSpec),
        Verb("recreate",          wire.CHANGE_INSTANCE,   "Create again what its cloudlet lost.", OverrideSpec),
    ), "App instances in clusters.", absent=NOT_PRESENT),
    Kind(POLICY, ("org", "policy"), (
        Verb("create",            wire.KEEP_POLICY,       "Let demand decide where an app runs, or a cluster's size.",
             PolicySpec),
        Verb("update",            wire.KEEP_POLICY,       "Change a policy; what it has seen stays.", PolicySpec),
        Verb("delete",            wire.KEEP_POLICY,       "End a policy; what it made stays."),
    ), "Policies that follow demand."),
)
# fmt: on
