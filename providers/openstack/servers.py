"""A Nova server, its marks, and the action of each verb."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from domain.errors import Rejected
from domain.paths import name_of
from domain.ports import VmFacts, VmOrder, VmState
from providers.openstack.errors import means_full
from providers.options import MAX_LABEL

OWNER_KEY = "ratchet:owner"  # installation and region
PATH_KEY = "ratchet:path"  # object
TOKEN_KEY = "ratchet:token"  # order that created it  # noqa: S105 - the name of a key
MAX_LABELS = 40  # Nova allows 128 entries of metadata, including ours

# fmt: off
VM_STATE_OF: dict[str, VmState] = {
    "BUILD":             VmState.PENDING,
    "ACTIVE":            VmState.RUNNING,
    "REBOOT":            VmState.PENDING,
    "HARD_REBOOT":       VmState.PENDING,
    "SHUTOFF":           VmState.STOPPED,
    "SUSPENDED":         VmState.STOPPED,      # by somebody else, as are the next three
    "PAUSED":            VmState.STOPPED,
    "SHELVED":           VmState.STOPPED,
    "SHELVED_OFFLOADED": VmState.STOPPED,
    "SOFT_DELETED":      VmState.TERMINATED,
    "DELETED":           VmState.TERMINATED,
}
# A task shows in the status too late, or not at all.
_VM_STATE_DURING: dict[str, VmState] = {
    "powering-off":  VmState.STOPPING,
    "powering-on":   VmState.PENDING,
    "deleting":      VmState.TERMINATING,
    "soft-deleting": VmState.TERMINATING,
}
_RESUME_OF: dict[str, str] = {
    "SUSPENDED":         "resume",
    "PAUSED":            "unpause",
    "SHELVED":           "unshelve",
    "SHELVED_OFFLOADED": "unshelve",
}
# fmt: on
_MARK = re.compile(r"token=([0-9a-f]{16}) epoch=([0-9]+)")


@dataclass(frozen=True, slots=True)
class Server:
    """The fields of a Nova server that we use."""

    cloud_id: str
    state: VmState
    address: str
    path: str  # by its metadata; of a deleted one by its name, as Nova forgets metadata
    token: str  # by its metadata
    token_hash: str  # by its description, which outlives the server
    epoch: int  # by its description: the last action that ordered something of it
    reason: str  # its fault
    status: str
    created: datetime | None

    @property
    def is_broken(self) -> bool:
        return self.status == "ERROR" and self.state is VmState.UNKNOWN

    @property
    def lacked_capacity(self) -> bool:
        return means_full(self.reason)

    @property
    def age_key(self) -> tuple[str, str]:
        """Sorts the oldest first: of two servers for one token everybody keeps the same one."""
        return (self.created.isoformat() if self.created else "", self.cloud_id)

    def to_vm_facts(self, path: str = "") -> VmFacts:
        return VmFacts(path or self.path, self.cloud_id, self.state, self.address, self.token, self.created)

    def made_by(self, token: str) -> bool:
        return bool(token) and (self.token == token or self.token_hash == hash_of(token))


def action_body(verb: str, server: Server) -> dict[str, Any]:
    """Returns the action that carries out suspend, resume or reboot."""
    match verb:
        case "suspend":
            return {"os-stop": None}
        case "resume":
            return {_RESUME_OF.get(server.status, "os-start"): None}
        case _:
            return {"reboot": {"type": "SOFT"}}


def parse_server(described: Mapping[str, Any], paths: Iterable[str] = (), place: str = "") -> Server:
    """Converts a server of Nova. `paths` are those that a deleted one may have had."""
    metadata = described.get("metadata") or {}
    name, status = str(described["name"]), str(described["status"])
    mark = _MARK.search(str(described.get("description") or ""))
    task = str(described.get("OS-EXT-STS:task_state") or "")
    settled = VM_STATE_OF.get(status, VmState.UNKNOWN)
    ended = settled is VmState.TERMINATED
    return Server(
        cloud_id=str(described["id"]),
        state=settled if ended else _VM_STATE_DURING.get(task, settled),
        address="" if ended else _first_address(described.get("addresses") or {}),
        path=metadata.get(PATH_KEY) or next((path for path in paths if name.endswith(path_hash(place, path))), ""),
        token=metadata.get(TOKEN_KEY, ""),
        token_hash=mark[1] if mark else "",
        epoch=int(mark[2]) if mark else 0,
        reason=str((described.get("fault") or {}).get("message", "")).strip(),
        status=status,
        created=datetime.fromisoformat(described["created"]) if described.get("created") else None,
    )


def creation_marks(place: str, order: VmOrder) -> dict[str, Any]:
    """Returns the name, description and metadata of a new server, with its user's labels."""
    if max(len(order.path), len(order.token)) > MAX_LABEL:
        raise Rejected(f"the path is too long for metadata of Nova, which takes {MAX_LABEL} characters: {order.path}")
    labels = {str(key): str(value) for key, value in (order.spec.get("label") or {}).items()}
    allowed = {
        key: value
        for key, value in sorted(labels.items())
        if re.fullmatch(r"[a-zA-Z0-9\-_:. ]{1,255}", key) and not key.startswith("ratchet:") and len(value) <= MAX_LABEL
    }
    marks = {OWNER_KEY: place, PATH_KEY: order.path, TOKEN_KEY: order.token}
    return {
        "name": f"{name_of(order.path)}-{path_hash(place, order.path)}",
        "description": description_of(order.token, order.epoch),
        "metadata": dict(list(allowed.items())[:MAX_LABELS]) | marks,
    }


def description_of(token: str, epoch: int, token_hash: str = "") -> str:
    """Returns a server's description, which says who ordered; it is written before each order."""
    return f"ratchet token={token_hash or hash_of(token)} epoch={epoch}"


def place_hash(place: str) -> str:
    """Returns the part of a name by which all servers of an installation and region are found."""
    return f"r{sha256(place.encode()).hexdigest()[:8]}"


def path_hash(place: str, path: str) -> str:
    """Returns the end of a server's name, by which the servers of a path are found, deleted ones too."""
    return f"{place_hash(place)}{hash_of(path)}"


def hash_of(text: str) -> str:
    """Returns a short hash, fit for a name."""
    return sha256(text.encode()).hexdigest()[:16]


def _first_address(addresses: Mapping[str, Any]) -> str:
    """Returns a floating address if there is one, else the first fixed one."""
    known = [each for network in addresses.values() for each in network]
    known.sort(key=lambda each: each.get("OS-EXT-IPS:type") != "floating")
    return str(known[0]["addr"]) if known else ""
