"""Limits on the work: concurrent calls to each cloud, and the sizes of what users send."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from domain.permits import PermitLimits

MAX_VMS_PER_MCI = 20_000
MAX_SUBGROUPS = 500
MAX_SPEC_BYTES = 256 * 1024  # a spec file larger than this is refused before it is parsed
MAX_PAYLOAD_BYTES = 2_000_000  # Temporal takes 2 MiB at a time; the rest is room for what encryption adds
VMS_PER_CHUNK = (
    500  # VMs in one provider activity: big enough for short histories, small enough to share between workers
)
HOLDERS_SHOWN = 20  # lock holders that the text of a refusal names
HOLDERS_LISTED = 500  # lock holders that a refusal carries as data: it must fit into a payload
TASK_TIMEOUT = timedelta(seconds=5)  # of a workflow task: how long a dead worker delays it
VALIDATE_TIMEOUT = timedelta(seconds=8)  # for a cloud to say what it offers: a user waits for the answer
SIGNALS_PER_TASK = 500  # signals that are read in one workflow task: the SDK gives a step two seconds
FAILURES_SHOWN = 20  # per-VM failures in an outcome; all of them are in the inventory


@dataclass(frozen=True, slots=True)
class CloudCaps:
    """How many regions, and VMs per region, a cloud may have in flight at once, over all actions."""

    regions: int
    vms: int  # per region


# fmt: off
CAPS_BY_CLOUD: dict[str, CloudCaps] = {
    #                  regions  VMs per region
    "aws":       CloudCaps(10,      30),
    "azure":     CloudCaps( 8,      25),
    "gcp":       CloudCaps(12,      35),
    "ncp":       CloudCaps( 3,      15),
    "alibaba":   CloudCaps( 6,      20),
    "tencent":   CloudCaps( 6,      20),
    "nhn":       CloudCaps( 5,      20),
    "openstack": CloudCaps( 5,      15),
    "other":     CloudCaps(10,      30),
}
# fmt: on


OTHER_CLOUDS = "other"
NO_CAP = 1_000_000


@dataclass(frozen=True)
class ConcurrencyCaps:
    """The caps of every cloud; one that is not listed has those of `other`. A connection may lower them."""

    caps_by_cloud: Mapping[str, CloudCaps] = field(default_factory=lambda: CAPS_BY_CLOUD)
    lower_caps: Mapping[tuple[str, str], CloudCaps] = field(default_factory=dict)  # cloud and region -> at most this

    def limits_of_cloud(self, csp: str) -> PermitLimits:
        """Returns the limits of one cloud: the lowest number of regions of its connections, and VMs per connection."""
        caps = self.caps_by_cloud.get(csp) or self.caps_by_cloud[OTHER_CLOUDS]
        here = {region: lower for (cloud, region), lower in self.lower_caps.items() if cloud == csp}
        regions = min([caps.regions, *(lower.regions for lower in here.values())])
        return PermitLimits(regions, lambda region: min(caps.vms, here[region].vms) if region in here else caps.vms)
