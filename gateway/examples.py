"""An example spec for each model that an action takes; a test checks each against its model."""

from __future__ import annotations

from typing import Any

from domain.kinds import Kind, Verb

_FRONT = {"name": "front", "subGroupSize": 2, "csp": "aws", "region": "eu-central-1"}
_PART = {
    "name": "web",
    "command": ["python3", "server.py"],
    "instances": 2,
    "port": 28080,
    "health": {"http": "/health"},
}

# fmt: off
SPEC_OF_MODEL: dict[str, dict[str, Any]] = {
    "MciSpec":              {"subGroups": [_FRONT]},
    "ScaleSpec":            {"subGroup": "front", "count": 1},
    "OrphanSpec":           {"place": "aws/eu-central-1"},
    "CloudletSpec":         {"version": "v1", "description": "the hall in Berlin"},
    "UpgradeSpec":          {"version": "v2"},
    "MaintenanceSpec":      {"failover": True},
    "KeySpec":              {"key": ""},
    "ClusterSpec":          {"nodes": 2},
    "DeleteClusterSpec":    {"cascade": True},
    "OverrideSpec":         {},
    "AppSpec":              {"image": "shop:1", "replicas": 2},
    "PolicySpec":           {"auto_scale": {"cloudlet": "berlin", "cluster": "c1", "min_nodes": 1, "max_nodes": 6,
                                            "target_cpu": 60}},
    "NewAccountSpec":       {"description": "the shop"},
    "CascadingDeleteSpec":  {"cascade": True},
    "CascadingDestroySpec": {"cascade": True},
    "NewCloudspaceSpec":    {"description": "its web servers"},
    "NewMachineSpec":       {"image": "ubuntu", "memory": 2},
    "AddDiskSpec":          {"disk": "data", "size": 10},
    "DiskNameSpec":         {"disk": "data"},
    "DeleteSpec":           {"retention_days": 7},
    "DestroySpec":          {},
    "NewDiskSpec":          {"size": 10},
    "MachineNameSpec":      {"machine": "dev/db"},
    "NewImageSpec":         {"size": 10},
    "NewNodeSpec":          {"memory": 64},
    "MaintainSpec":         {},
    "LeaseSpec":            {"start": "now", "end": "+2h", "pool": "main",
                             "reservations": [{"resource_type": "physical:host", "min": 1, "max": 1}]},
    "LeaseChange":          {"end": "+4h"},
    "EventFiring":          {},
    "HostSpec":             {"vcpus": 8, "memory_mb": 16384, "disk_gb": 100},
    "HostUpdateSpec":           {"properties": {"rack": "7"}},
    "SystemSpec":           {"backend": "process"},
    "DeploySpec":           {"definition": {"parts": [_PART]}},
    "TearDownSpec":         {},
}
# fmt: on


def example_body(kind: Kind, verb: Verb) -> dict[str, Any]:
    """An example body for an action of a kind."""
    spec = SPEC_OF_MODEL.get(verb.spec.__name__, {}) if verb.spec else {}
    return {**({"spec": spec} if spec else {}), "reason": f"{verb.action} of the {kind.name} as planned"}
