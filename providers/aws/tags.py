"""The tags by which everything of ours is found in EC2 again, whatever became of our records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from domain.errors import Rejected
from providers.aws.connection import MAX_LABEL

OWNER = "ratchet:owner"  # which installation
PATH = "ratchet:path"  # which object
TOKEN = "ratchet:token"  # which order made it  # noqa: S105 - the name of a tag
EPOCH = "ratchet:epoch"  # the number of the last action that ordered something of it
SHARED = "ratchet:shared"  # vnet, securityGroup or sshKey

MOST_LABELS = 40  # EC2 takes 50 tags, ours included

Tags = dict[str, str]


def of_vm(owner: str, path: str, token: str, labels: Mapping[str, Any]) -> Tags:
    """A VM's tags. Its user's labels are there too, unless they pretend to be ours or AWS's."""
    if len(path) > MAX_LABEL:
        raise Rejected(f"the path is too long for a tag of EC2, which takes {MAX_LABEL} characters: {path}")
    allowed = {key: str(value) for key, value in labels.items() if not key.lower().startswith(("aws:", "ratchet:"))}
    kept = dict(sorted(allowed.items())[:MOST_LABELS])
    return {"Name": path.rpartition(":")[2]} | kept | {OWNER: owner, PATH: path, TOKEN: token}


def of_epoch(epoch: int) -> Tags:
    """Which action orders something of a VM. It is written before the order."""
    return {EPOCH: str(epoch)}


def of_shared(owner: str, what: str, token: str) -> Tags:
    """The tags of something that VMs share: in place of a path they say what it is."""
    return {"Name": f"{owner}-{what}", OWNER: owner, SHARED: what, TOKEN: token}


def specification(tags: Tags, *resources: str) -> list[dict[str, Any]]:
    """For a call that makes something: it is tagged in the same moment."""
    return [{"ResourceType": resource, "Tags": pairs(tags)} for resource in resources]


def pairs(tags: Tags) -> list[dict[str, str]]:
    """As EC2 takes them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def read(thing: Mapping[str, Any]) -> Tags:
    """The tags of something that EC2 describes."""
    return {tag["Key"]: tag["Value"] for tag in thing.get("Tags", ())}


def where(wanted: Mapping[str, str | Sequence[str]]) -> list[dict[str, Any]]:
    """Filters: all of them must fit. A name with a colon in it is a tag's."""
    return [
        {"Name": f"tag:{name}" if ":" in name else name, "Values": [value] if isinstance(value, str) else list(value)}
        for name, value in wanted.items()
    ]


def literally(text: str) -> str:
    """As a filter's value that means itself."""
    return "".join(f"\\{char}" if char in "\\*?" else char for char in text)
