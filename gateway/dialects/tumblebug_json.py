"""MCIs and VMs as Tumblebug shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from domain import registry
from domain.mci.status import status_count_info
from domain.model import ObjectView
from domain.paths import name_of
from domain.wire import split_placement, split_region_and_provider
from gateway.dialects.regions import Region, find_region

SSH_PORT = "22"
USER_NAME = "cb-user"


def namespace_json(name: str) -> dict[str, Any]:
    """A namespace. It needs no creation: it is a word in its objects' paths."""
    return {"resourceType": "ns", "id": name, "uid": f"ns:{name}", "name": name, "description": ""}


def connection_json(region: Region) -> dict[str, Any]:
    """A region of a cloud as a connection."""
    return {
        "configName": region.connection,
        "providerName": region.csp,
        "driverName": f"{region.csp}-driver",
        "credentialName": region.csp,
        "credentialHolder": "admin",
        "regionZoneInfoName": region.connection,
        "regionZoneInfo": {"assignedRegion": region.name, "assignedZone": ""},
        "regionDetail": {
            "regionId": region.name,
            "regionName": region.name,
            "description": region.display,
            "location": location_json(region),
            "zones": [],
        },
        "regionRepresentative": True,
        "verified": True,
    }


def location_json(region: Region) -> dict[str, Any]:
    """Where a region is. Clients that draw a map hide a VM without numbers."""
    return {"display": region.display, "latitude": region.latitude, "longitude": region.longitude}


def mci_json(view: ObjectView, vms: Sequence[ObjectView], new: Sequence[str] = ()) -> dict[str, Any]:
    """Tumblebug's MciInfo."""
    return {
        "resourceType": "mci",
        **mci_status_json(view, vms),
        "uid": f"{view.path}@{view.info.get('generation', view.epoch)}",
        "installMonAgent": "no",
        "label": view.spec.get("label", {}),
        "systemLabel": "",
        "systemMessage": [view.error] if view.error else [],
        "description": view.spec.get("description", ""),
        "placementAlgo": "",
        "vm": [vm_json(vm) for vm in vms],
        "newVmList": list(new),
    }


def mci_status_json(view: ObjectView, vms: Sequence[ObjectView]) -> dict[str, Any]:
    """Tumblebug's MciStatusInfo."""
    name = name_of(view.path)
    running = [name_of(vm.path) for vm in vms if vm.status == "Running"]
    return {
        "id": name,
        "name": name,
        "status": view.status,
        "statusCount": status_count_info(view.counts),
        "targetStatus": view.target_status,
        "targetAction": registry.find_kind("mci").format_target_action(view.target_action),
        "masterVmId": running[0] if running else "",
        "vm": [vm_status_json(vm) for vm in vms],
    }


def vm_ids_json(view: ObjectView) -> dict[str, Any]:
    """Tumblebug's IdNameInDetailInfo."""
    name = name_of(view.path)
    return {"idInTb": name, "idInSp": name, "idInCsp": view.info.get("cloud_id", ""), "nameInCsp": name}


def vm_status_json(view: ObjectView) -> dict[str, Any]:
    """Tumblebug's VmStatusInfo."""
    return {
        **_common_vm_json(view),
        "monAgentStatus": "notInstalled",
        "networkAgentStatus": "notInstalled",
        "publicIp": view.info.get("address", ""),
        "privateIp": "",
    }


def vm_json(view: ObjectView) -> dict[str, Any]:
    """Tumblebug's VmInfo."""
    region = region_of_vm(view)
    return {
        **_common_vm_json(view),
        "resourceType": "vm",
        "subGroupId": view.spec.get("subGroup", ""),
        "region": {"Region": region.name, "Zone": ""},
        "publicIP": view.info.get("address", ""),
        "privateIP": "",
        "connectionName": region.connection,
        "connectionConfig": connection_json(region),
        "specId": f"{region.csp}+{region.name}+{view.spec.get('specId', '')}",
        "imageId": view.spec.get("imageId", ""),
        "cspResourceName": name_of(view.path),
        "vNetId": "",
        "subnetId": "",
        "securityGroupIds": [],
        "sshKeyId": "",
        "label": view.spec.get("label", {}),
        "commandStatus": [],
    }


def _common_vm_json(view: ObjectView) -> dict[str, Any]:
    return {
        "id": name_of(view.path),
        "uid": f"{view.path}@{view.info.get('generation', view.epoch)}",
        "name": name_of(view.path),
        "cspResourceId": view.info.get("cloud_id", ""),
        "status": view.status,
        "targetStatus": view.target_status,
        "targetAction": registry.find_kind("vm").format_target_action(view.target_action),
        "systemMessage": view.error,
        "sshPort": SSH_PORT,
        "createdTime": f"{view.created_at:%Y-%m-%d %H:%M:%S}",
        "location": location_json(region_of_vm(view)),
    }


def access_json(view: ObjectView, vms: Sequence[ObjectView]) -> dict[str, Any]:
    """How to reach the VMs, by subgroup."""
    groups = sorted({str(vm.spec.get("subGroup", "")) for vm in vms})
    return {
        "mciId": name_of(view.path),
        "mciSubGroupAccessInfo": [
            {
                "subGroupId": group,
                "mciVmAccessInfo": [_vm_access_json(vm) for vm in vms if vm.spec["subGroup"] == group],
            }
            for group in groups
        ],
    }


def _vm_access_json(vm: ObjectView) -> dict[str, Any]:
    return {
        "vmId": name_of(vm.path),
        "publicIP": vm.info.get("address", ""),
        "privateIP": "",
        "sshPort": SSH_PORT,
        "vmUserName": USER_NAME,
        "connectionConfig": connection_json(region_of_vm(vm)),
    }


def region_of_vm(vm: ObjectView) -> Region:
    """The region that a VM is in."""
    csp, region = split_placement(vm.placement)
    return find_region(csp, split_region_and_provider(region)[0])
