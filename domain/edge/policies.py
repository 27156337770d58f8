"""What a policy decides about demand. Pure decisions; normal actions carry them out.

Auto-provision deploys an app where enough clients asked for it in enough intervals, and removes it where too few did;
too many instances are removed before missing ones are made. Autoscale sets a cluster's nodes by its load: not for a
deviation under 10 %, and never further than the mildest recommendation of the stabilization window.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import ConfigDict, Field

from domain.edge.messages import ExternalMessage
from domain.edge.specs import AutoProvision, AutoScale, PolicySpec
from domain.edge.tables import S
from domain.model import FrozenModel, SignedMessage
from domain.paths import ancestor_paths, parent_of

TARGET_TOLERANCE = 0.10
SKIPPED_INTERVALS = 2  # after a failure: the rest of its interval, and the whole next one

LoadValue = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]


class DemandMeasurement(ExternalMessage):
    """A measurement: clients that asked for the app near a cloudlet, or the load on a cluster."""

    cloudlet: str = Field("", max_length=63)
    clients: int | None = Field(None, ge=0, le=1_000_000_000)
    cpu: LoadValue | None = None
    mem: LoadValue | None = None
    connections: LoadValue | None = None


class DemandSignal(DemandMeasurement, SignedMessage):
    """A measurement as it is sent to a policy: with its sender, who must be allowed to."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def cloudlet_of(path: str) -> str:
    """Returns the path of an object's cloudlet: the first two pairs of its path."""
    return [*ancestor_paths(path), path][1]


def build_app_path(policy: str, cloudlet: str, cluster: str, app: str) -> str:
    """Returns the path of an app that a policy places; in the organization of the policy."""
    return f"{build_cluster_path(policy, cloudlet, cluster)}:app:{app}"


def build_cluster_path(policy: str, cloudlet: str, cluster: str) -> str:
    """Returns the path of a cluster that a policy sizes, or places apps in."""
    return f"{parent_of(policy)}:cloudlet:{cloudlet}:cluster:{cluster}"


def list_later_actions(policy: str, spec: PolicySpec) -> Iterator[tuple[str, str]]:
    """Yields the actions, and on what, that a policy may request as demand rises and falls."""
    if spec.auto_provision:
        for site in spec.auto_provision.cloudlets:
            app = build_app_path(policy, site.cloudlet, site.cluster, spec.auto_provision.app)
            yield from (("create", app), ("delete", app))
    if spec.auto_scale:
        yield "update", build_cluster_path(policy, spec.auto_scale.cloudlet, spec.auto_scale.cluster)


class PolicySite(FrozenModel):
    """A cloudlet of the policy's organisation, and the app's instance there, as the inventory has them."""

    cloudlet: str
    cluster: str
    usable: bool = False  # the cloudlet takes changes and the cluster is Ready
    reached: bool = True  # the cloudlet takes changes: what runs there counts as active
    app: str = ""  # the status of the instance; empty if there is none


class PolicyFacts(FrozenModel):
    """The facts that a policy decides by: its sites with their instances, or its cluster's nodes."""

    places: list[PolicySite] = []
    nodes: int = 0
    cluster: str = ""  # the status of the cluster


class DemandStreak(FrozenModel):
    """For how many intervals in a row demand on a cloudlet has been high, or low."""

    high: int = 0
    low: int = 0


class PolicyState(FrozenModel):
    """What a policy remembers from one interval to the next."""

    clients: dict[str, int] = {}  # reported in this interval; forgotten at its end
    streaks: dict[str, DemandStreak] = {}
    failed: dict[str, int] = {}  # sites that failed, and how many intervals have ended since
    load: DemandMeasurement = DemandMeasurement()
    advice: list[tuple[float, int]] = []  # when, how many nodes


@dataclass(frozen=True)
class PolicyPlan:
    """A policy's decision: the sites where to undeploy its app, and then those where to deploy it."""

    undeploy: tuple[PolicySite, ...] = ()
    deploy: tuple[PolicySite, ...] = ()


def update_streaks(policy: AutoProvision, memory: PolicyState) -> PolicyState:
    """Returns the memory at the end of an interval: the streaks of every site are updated."""
    streaks = {}
    for site in policy.cloudlets:
        clients = memory.clients.get(site.cloudlet, 0)
        before = memory.streaks.get(site.cloudlet, DemandStreak())
        high = before.high + 1 if clients >= policy.deploy_client_count else 0
        low = before.low + 1 if clients < policy.undeploy_client_count else 0  # with a count of 0: never
        streaks[site.cloudlet] = DemandStreak(high=high, low=low)
    failed = {site: ends + 1 for site, ends in memory.failed.items() if ends + 1 < SKIPPED_INTERVALS}
    return memory.model_copy(update={"streaks": streaks, "failed": failed, "clients": {}})


def skip_failed_site(memory: PolicyState, site: str) -> PolicyState:
    """Returns the memory after a site failed: it is skipped for the rest of this interval and the whole next one."""
    return memory.model_copy(update={"failed": {**memory.failed, site: 0}})


def plan_provisioning(policy: AutoProvision, memory: PolicyState, facts: PolicyFacts) -> PolicyPlan:
    """Returns where to undeploy and deploy the app: first sites outside the policy, then max, then demand, then min."""
    sites = [site.cloudlet for site in policy.cloudlets]
    by_name = {place.cloudlet: place for place in facts.places}
    in_policy = [by_name[name] for name in sites if name in by_name]
    left = [place for place in facts.places if place.cloudlet not in sites and place.app == S.READY]
    active = [place for place in in_policy if place.app == S.READY and place.reached]
    coming = [
        place for place in in_policy if place.app not in ("", S.READY)
    ]  # still being deployed: they count already
    excess = _sites_to_undeploy(policy, memory, active, len(coming))
    staying = [place for place in active if place not in excess]
    room = policy.max - len(staying) - len(coming) if policy.max else len(in_policy)
    free = [place for place in in_policy if not place.app and place.usable and place.cloudlet not in memory.failed]
    wanted = [place for place in free if _streak_at_site(memory, place).high >= policy.deploy_interval_count]
    short = policy.min_active - len(staying) - len(coming) - len(wanted[: max(room, 0)])
    fill = [place for place in free if place not in wanted][: max(short, 0)]
    gone = tuple(place for place in (*left, *excess) if place.cloudlet not in memory.failed)
    return PolicyPlan(undeploy=gone, deploy=tuple((*wanted, *fill)[: max(room, 0)]))


def _sites_to_undeploy(
    policy: AutoProvision, memory: PolicyState, active: Sequence[PolicySite], coming: int
) -> list[PolicySite]:
    """Returns sites over max, last in the policy's order first; then sites without demand, but never below min."""
    over = list(active[max(policy.max - coming, 0) :]) if policy.max else []
    rest = [place for place in active if place not in over]
    idle = [place for place in reversed(rest) if _streak_at_site(memory, place).low >= policy.undeploy_interval_count]
    return over + idle[: max(len(rest) - policy.min_active, 0)]


def _streak_at_site(memory: PolicyState, place: PolicySite) -> DemandStreak:
    return memory.streaks.get(place.cloudlet, DemandStreak())


def count_nodes_for_load(policy: AutoScale, nodes: int, load: DemandMeasurement) -> int:
    """Returns how many nodes the load requires: the most that any target requires, within the policy's limits."""
    pairs = (
        (load.cpu, policy.target_cpu),
        (load.mem, policy.target_mem),
        (load.connections, policy.target_connections),
    )
    wanted = [_count_nodes_for_target(nodes, seen, target) for seen, target in pairs if seen is not None and target]
    return _clamp_nodes(policy, max(wanted, default=nodes))


def _count_nodes_for_target(nodes: int, seen: float, target: float) -> int:
    ratio = seen / target
    if abs(ratio - 1) <= TARGET_TOLERANCE + 1e-9:
        return nodes
    return math.ceil(round(nodes * ratio, 6))


def _clamp_nodes(policy: AutoScale, nodes: int) -> int:
    return max(policy.min_nodes, min(policy.max_nodes, nodes))


def plan_scaling(policy: AutoScale, nodes: int, memory: PolicyState, now: float) -> tuple[int, PolicyState]:
    """Returns how many nodes there should be now, and what to remember.

    Scales up only to the lowest recommendation within the window, and down only to the highest: a peak or dip shorter
    than the window changes nothing. A new policy remembers the nodes that it found.
    """
    recent = [(when, number) for when, number in memory.advice if when > now - policy.stabilization_window]
    before = recent or ([(now, nodes)] if not memory.advice and policy.stabilization_window else [])
    window = [*before, (now, count_nodes_for_load(policy, nodes, memory.load))]
    numbers = [number for _, number in window]
    steady = min(max(nodes, min(numbers)), max(numbers))
    return _clamp_nodes(policy, steady), memory.model_copy(update={"advice": window})


def apply_demand_signal(
    memory: PolicyState, demand: DemandMeasurement, sites: Mapping[str, object] | Sequence[str]
) -> tuple[PolicyState, str]:
    """Returns the memory after a demand signal, and the reason if the signal changes nothing."""
    if demand.clients is not None and demand.cloudlet:
        if demand.cloudlet not in sites:
            return memory, f"cloudlet {demand.cloudlet!r} is not in the policy"
        return memory.model_copy(update={"clients": {**memory.clients, demand.cloudlet: demand.clients}}), ""
    if any(load is not None for load in (demand.cpu, demand.mem, demand.connections)):
        seen = demand.model_dump(exclude_none=True, include={*DemandMeasurement.model_fields})
        return memory.model_copy(update={"load": memory.load.model_copy(update=seen)}), ""
    return memory, "it says neither clients of a cloudlet nor cpu, mem or connections"
