"""The status of MCIs and VMs as data, with our keys; the gateway has the source system's format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from domain import registry
from domain.mci.status import status_count_info
from domain.model import ObjectView
from domain.paths import name_of
from domain.wire import split_placement, split_region_and_provider


def mci_document(view: ObjectView, vms: Sequence[ObjectView]) -> dict[str, Any]:
    """Returns an MCI with how many VMs have each status, and its VMs."""
    return {
        "path": view.path,
        "name": name_of(view.path),
        "status": view.status,
        "counts": {key.removeprefix("count").lower(): count for key, count in status_count_info(view.counts).items()},
        "target_action": registry.find_kind(view.kind).format_target_action(view.target_action),
        "target_status": view.target_status,
        "error": view.error,
        "vms": [vm_document(vm) for vm in vms],
    }


def vm_document(view: ObjectView, _members: Sequence[ObjectView] = ()) -> dict[str, Any]:
    """Returns a VM: where it is, and what its cloud calls it."""
    csp, told = split_placement(view.placement)
    region, provider = split_region_and_provider(told)
    return {
        "path": view.path,
        "name": name_of(view.path),
        "sub_group": view.spec.get("subGroup", ""),
        "status": view.status,
        "target_action": registry.find_kind(view.kind).format_target_action(view.target_action),
        "target_status": view.target_status,
        "csp": csp,
        "region": region,
        "provider": provider,
        "cloud_id": view.info.get("cloud_id") or None,
        "address": view.info.get("address") or None,
        "error": view.error,
        **{word: view.info[word] for word in ("failure", "stale") if word in view.info},
    }
