"""Tags by which our resources in EC2 are found again, whatever became of our records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from domain.errors import Rejected
from domain.paths import name_of
from domain.ports import SharedResource
from providers.options import MAX_LABEL

OWNER_TAG = "ratchet:owner"  # installation
PATH_TAG = "ratchet:path"  # object
TOKEN_TAG = "ratchet:token"  # order that created it  # noqa: S105 - the name of a tag
EPOCH_TAG = "ratchet:epoch"  # of the last action that gave it an order; written before the order
TENANT_TAG = "ratchet:tenant"  # whose VMs share it
SHARED_TAG = "ratchet:shared"  # vnet, securityGroup or sshKey

MAX_LABELS = 40  # EC2 allows 50 tags, including ours

Tags = dict[str, str]


def vm_tags(owner: str, path: str, token: str, labels: Mapping[str, Any]) -> Tags:
    """Returns a VM's tags, including its user's labels, except those in our or AWS's namespace."""
    if len(path) > MAX_LABEL:
        raise Rejected(f"the path is too long for a tag of EC2, which takes {MAX_LABEL} characters: {path}")
    allowed = {key: str(value) for key, value in labels.items() if not key.lower().startswith(("aws:", "ratchet:"))}
    kept = dict(sorted(allowed.items())[:MAX_LABELS])
    return {"Name": path.rpartition(":")[2]} | kept | {OWNER_TAG: owner, PATH_TAG: path, TOKEN_TAG: token}


def shared_resource_tags(owner: str, resource: SharedResource) -> Tags:
    """Returns the tags of a shared resource, which name its tenant and its sort instead of a path."""
    return {
        "Name": f"{owner}-{name_of(resource.tenant)}-{resource.what}",
        OWNER_TAG: owner,
        TENANT_TAG: resource.tenant,
        SHARED_TAG: resource.what,
        TOKEN_TAG: resource.token,
    }


def shared_resource_name(owner: str, resource: SharedResource) -> str:
    """Returns the name of a security group or key: the tenant, to be read, and a hash, as EC2's names must differ."""
    told = resource.tenant.replace(":", "-")  # EC2 takes at most 255 characters
    return f"{owner[:100]}-{told[:100]}-{sha256(resource.token.encode()).hexdigest()[:16]}"


def tag_specifications(tags: Tags, *resources: str) -> list[dict[str, Any]]:
    """Returns the tag argument of a create call, so that the resource is tagged from the start."""
    return [{"ResourceType": resource, "Tags": tag_pairs(tags)} for resource in resources]


def tag_pairs(tags: Tags) -> list[dict[str, str]]:
    """Returns tags in EC2's form."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def parse_tags(thing: Mapping[str, Any]) -> Tags:
    """Returns the tags in an EC2 description."""
    return {tag["Key"]: tag["Value"] for tag in thing.get("Tags", ())}


def ec2_filters(wanted: Mapping[str, str | Sequence[str]]) -> list[dict[str, Any]]:
    """Returns EC2 filters that must all match. A name with a colon is a tag."""
    return [
        {"Name": f"tag:{name}" if ":" in name else name, "Values": [value] if isinstance(value, str) else list(value)}
        for name, value in wanted.items()
    ]


def escape_filter_value(text: str) -> str:
    """Escapes a filter value, so that it matches itself only."""
    return "".join(f"\\{char}" if char in "\\*?" else char for char in text)
