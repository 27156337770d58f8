"""Regions, specs and images of the simulated clouds; only the regions differ between clouds."""

from __future__ import annotations

import re
from collections.abc import Sequence

from domain.errors import suggest_word

# fmt: off
REGIONS: dict[str, tuple[str, ...]] = {
    "aws":       ("us-east-1", "us-west-2", "eu-central-1", "eu-west-1", "ap-northeast-2", "ap-southeast-1"),
    "azure":     ("eastus", "westus2", "germanywestcentral", "westeurope", "koreacentral", "southeastasia"),
    "gcp":       ("us-central1", "us-west1", "europe-west3", "europe-west1", "asia-northeast3", "asia-southeast1"),
    "ncp":       ("kr", "jp", "sg"),
    "alibaba":   ("eu-central-1", "us-east-1", "ap-northeast-2", "cn-beijing"),
    "tencent":   ("eu-frankfurt", "na-siliconvalley", "ap-seoul"),
    "nhn":       ("kr1", "kr2", "jp1"),
    "openstack": ("regionone",),
    "other":     ("here",),
}
# fmt: on
SPECS = ("small", "medium", "large", "xlarge", "gpu")
IMAGES = ("ubuntu-22.04", "ubuntu-24.04", "debian-12", "rocky-9")

_NUMBERED_REGION = re.compile(r"r[0-9]{1,4}")  # every simulated cloud also has r0, r1, ...


def list_missing_offers(csp: str, region: str, specs: Sequence[str], images: Sequence[str]) -> list[str]:
    """Returns a message for each region, spec or image that is not offered, with what is."""
    known_regions = REGIONS.get(csp, (region,))  # a cloud of the connections file has the region that it names
    if region not in known_regions and not _NUMBERED_REGION.fullmatch(region):
        there = f"{', '.join(known_regions)} and r0, r1, ...{_suggest_name(region, known_regions)}"
        return [f"{csp} has no region {region!r}; it has {there}"]
    asked = [("spec", name, SPECS) for name in specs] + [("image", name, IMAGES) for name in images]
    return [
        f"{csp}/{region} has no {word} {name[:80]!r}; it has {', '.join(known)}{_suggest_name(name, known)}"
        for word, name, known in asked
        if name not in known
    ]


def _suggest_name(name: str, known: Sequence[str]) -> str:
    suggestion = suggest_word(name, known)
    return f" ({suggestion.rstrip()})" if suggestion else ""
