"""Objects as OpenvCloud's cloudapi shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from domain.machines.sizes import MachineSize, find_size
from domain.model import ObjectView
from domain.paths import name_of, parent_of, root_of

GIB = 1024  # MiB: the API counts memory in those
LOCATION = {"gid": 1, "locationCode": "ratchet", "name": "ratchet"}
PRIVATE_NETWORK = "192.168.103.0/24"  # what clients propose; machines' own addresses are the hypervisor's
IMAGE_MEMORY = 512  # MiB: the least that an image needs


@dataclass(frozen=True)
class G8Ids:
    """The numbers of objects, by path; 0 for one without a number."""

    numbers: Mapping[str, str]

    def __getitem__(self, path: str | None) -> int:
        return int(self.numbers.get(path or "", 0))

    @staticmethod
    def paths_named_by(view: ObjectView) -> Iterator[str]:
        """Yields the objects whose numbers are shown beside an object's own."""
        if above := parent_of(view.path):
            yield from (root_of(view.path), above)
        if image := view.spec.get("image"):
            yield f"image:{image}"
        if machine := view.info.get("machine"):
            yield str(machine)


def _machine_json(view: ObjectView, ids: G8Ids) -> dict[str, Any]:
    spec, address = view.spec, view.info.get("address")
    vcpus, memory = int(spec.get("vcpus", 1)), int(spec.get("memory", 1))
    size = find_size(vcpus, memory)
    nics = [{"type": "bridge", "ipAddress": address, "status": "", "networkId": ids[parent_of(view.path)]}]
    return {
        **_common_json(view, ids),
        "nics": nics if address else [],
        "interfaces": nics if address else [],
        "accounts": [],
        "cloudspaceid": ids[parent_of(view.path)],
        "imageid": ids[f"image:{spec.get('image', '')}"],
        "sizeid": size.number if size else 0,
        "vcpus": vcpus,
        "memory": memory * GIB,
        "disks": [],
        "storage": 0,
    }


def _cloudspace_json(view: ObjectView, ids: G8Ids) -> dict[str, Any]:
    return {
        **_common_json(view, ids),
        "accountId": ids[root_of(view.path)],
        "externalnetworkip": view.info.get("address") or "",
        "privatenetwork": PRIVATE_NETWORK,
        "location": LOCATION["locationCode"],
        "gid": LOCATION["gid"],
    }


def _disk_json(view: ObjectView, ids: G8Ids) -> dict[str, Any]:
    machine = view.info.get("machine")
    return {
        **_common_json(view, ids),
        "type": "D",
        "sizeMax": int(view.spec.get("size", 0)),
        "accountId": ids[root_of(view.path)],
        "gid": LOCATION["gid"],
        **({"machineId": ids[machine]} if machine else {}),
    }


def _image_json(view: ObjectView, ids: G8Ids) -> dict[str, Any]:
    return {
        **_common_json(view, ids),
        "type": "Linux",
        "bootDiskSize": int(view.spec.get("size", 0)),
        "memory": IMAGE_MEMORY,
    }


def _common_json(view: ObjectView, ids: G8Ids) -> dict[str, Any]:
    return {
        "id": ids[view.path],
        "name": name_of(view.path),
        "status": view.status,
        "description": view.spec.get("description", ""),
        "creationTime": int(view.created_at.timestamp()),
        "updateTime": int(view.changed_at.timestamp()),
    }


SHAPE_OF_KIND: dict[str, Callable[[ObjectView, G8Ids], dict[str, Any]]] = {
    "machine": _machine_json,
    "cloudspace": _cloudspace_json,
    "disk": _disk_json,
    "image": _image_json,
}


def account_json(view: ObjectView, number: int) -> dict[str, Any]:
    """An account: its number is what a driver is opened with."""
    return {"id": number, "name": name_of(view.path), "status": view.status}


def size_json(size: MachineSize) -> dict[str, Any]:
    """A size of the catalogue."""
    return {
        "id": size.number,
        "name": size.name,
        "vcpus": size.vcpus,
        "memory": size.memory * GIB,
        "disks": list(size.disks),
    }
