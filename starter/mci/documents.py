"""MCIs and VMs in the source system's JSON format: its field names, its order, its word `None`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from domain import registry
from domain.mci import status_count_info
from domain.model import ObjectView
from domain.paths import name_of
from domain.wire import split_placement, split_region


def mci_document(view: ObjectView, vms: Sequence[ObjectView]) -> dict[str, Any]:
    """Returns an MCI like the source system's `?option=status`."""
    name = name_of(view.path)
    return {
        "id": name,
        "name": name,
        "status": view.status,
        "statusCount": status_count_info(view.counts),
        "targetStatus": view.target_status,
        "targetAction": registry.find_kind(view.kind).target_action_word(view.target_action),
        "vm": [vm_document(vm) for vm in vms],
    }


def vm_document(view: ObjectView, _members: Sequence[ObjectView] = ()) -> dict[str, Any]:
    """Returns a VM like an element of the source system's `vm` list."""
    csp, told = split_placement(view.placement)
    region, provider = split_region(told)
    name = name_of(view.path)
    return {
        "id": name,
        "name": name,
        "subGroupId": view.spec.get("subGroup", ""),
        "status": view.status,
        "targetStatus": view.target_status,
        "targetAction": registry.find_kind(view.kind).target_action_word(view.target_action),
        "csp": csp,
        "region": region,
        "provider": provider,
        "cspResourceId": view.info.get("cloud_id", ""),
        "publicIp": view.info.get("address", ""),
        "systemMessage": view.error,
        **{word: view.info[word] for word in ("failure", "stale") if word in view.info},
    }
