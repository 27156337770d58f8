"""The edge family: cloudlets, cluster and app instances, and policies, and their actions.

A user decides what should exist on a cloudlet; the CRM that runs there does the work and reports what exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from domain.edge import messages
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
    find_cloudlet_remedy,
)
from domain.edge.tables import APP, CLOUDLET, CLUSTER, NOT_PRESENT, POLICY
from domain.kinds import Kind, ObjectSignal, Verb, orphan_verb
from domain.wire import SIMULATED


def has_simulated_crm(_spec: Mapping[str, Any], _placement: str, info: Mapping[str, Any]) -> bool:
    """Tells whether the CRM that connected last says that it simulates. A CRM that says nothing counts as real."""
    return bool((info.get("crm") or {}).get("backend") == SIMULATED)


_DISCARD = orphan_verb("Let its CRM delete an instance that no record knows.", workflow=messages.CHANGE_INSTANCE)

_ANSWERS = (
    ObjectSignal(
        messages.CRM_RESPONSE,
        messages.CrmResponse,
        "A CRM's answer: state, errors, notify_id, progress.",
        companion=(CLOUDLET.kind, messages.LINK_ROLE),
    ),
)
_DEMAND = (
    ObjectSignal(
        messages.DEMAND_SIGNAL,
        DemandSignal,
        "What was measured: clients near a cloudlet, or the load of a cluster.",
        reaches_action=False,
        companion=(POLICY.kind, messages.LOOP_ROLE),
        sender_field="requested_by",
    ),
)

# fmt: off
KINDS: tuple[Kind, ...] = (
    Kind(CLOUDLET, ("org", "cloudlet"), (
        Verb("create",            messages.BRING_UP_CLOUDLET, "Create a cloudlet, and wait for its CRM.", CloudletSpec),
        Verb("upgrade",           messages.UPGRADE_CLOUDLET,  "Replace its CRM by another version.", UpgradeSpec),
        Verb("repair",            messages.BRING_UP_CLOUDLET, "Bring its CRM up again after a failed upgrade."),
        Verb("maintenance-start", messages.MAINTAIN_CLOUDLET, "Begin maintenance, after a failover if requested.",
             MaintenanceSpec),
        Verb("maintenance-end",   messages.MAINTAIN_CLOUDLET, "End maintenance."),
        Verb("rekey",             messages.REKEY_CLOUDLET,    "Replace or remove its CRM's public key.", KeySpec),
        Verb("delete",            messages.DELETE_CLOUDLET,   "Shut down the CRM and delete the cloudlet."),
    ), "Edge sites, each with a CRM that does the work there.", absent_word=NOT_PRESENT, signals=_ANSWERS,
       is_simulated=has_simulated_crm, remedy=find_cloudlet_remedy),
    Kind(CLUSTER, ("org", "cloudlet", "cluster"), (
        Verb("create",            messages.CHANGE_INSTANCE,   "Create a cluster on a cloudlet.", ClusterSpec),
        Verb("update",            messages.CHANGE_INSTANCE,   "Change the given fields of a cluster.", ClusterSpec,
             programs=("policy",), on_behalf=True),
        Verb("delete",            messages.CHANGE_INSTANCE,   "Delete a cluster.", DeleteClusterSpec),
        Verb("recreate",          messages.CHANGE_INSTANCE,   "Create again what its cloudlet has lost.", OverrideSpec),
        _DISCARD,
    ), "Cluster instances on cloudlets.", absent_word=NOT_PRESENT, signals=_ANSWERS, as_simulated_as=CLOUDLET.kind),
    Kind(APP, ("org", "cloudlet", "cluster", "app"), (
        Verb("create",            messages.CHANGE_INSTANCE,   "Create an app in a cluster.", AppSpec,
             programs=("cloudlet", "policy"), on_behalf=True),
        Verb("update",            messages.CHANGE_INSTANCE,   "Change the given fields of an app.", AppSpec),
        Verb("delete",            messages.CHANGE_INSTANCE,   "Delete an app.", OverrideSpec,
             programs=("policy",), on_behalf=True),
        Verb("recreate",          messages.CHANGE_INSTANCE,   "Create again what its cloudlet has lost.", OverrideSpec),
        _DISCARD,
    ), "App instances in clusters.", absent_word=NOT_PRESENT, signals=_ANSWERS, as_simulated_as=CLOUDLET.kind),
    Kind(POLICY, ("org", "policy"), (
        Verb("create",            messages.KEEP_POLICY,       "Create a policy that places an app, or sizes a cluster.",
             PolicySpec, leads_to=list_later_actions),
        Verb("update",            messages.KEEP_POLICY,       "Change a policy; its measurements stay.", PolicySpec,
             remakes=True, leads_to=list_later_actions),
        Verb("delete",            messages.KEEP_POLICY,       "Delete a policy; its instances stay."),
    ), "Policies that follow demand.", signals=_DEMAND),
)
# fmt: on
