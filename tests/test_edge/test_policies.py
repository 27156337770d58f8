"""Decisions about demand are pure functions: every rule is tested by itself."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from domain.edge.policies import (
    DemandMeasurement,
    DemandStreak,
    PolicyFacts,
    PolicySite,
    PolicyState,
    apply_demand_signal,
    count_nodes_for_load,
    plan_provisioning,
    plan_scaling,
    skip_failed_site,
    update_streaks,
)
from domain.edge.specs import AutoProvision, AutoScale, PolicySpec
from tests.cases import every_case


def policy(*cloudlets: str, **more: object) -> AutoProvision:
    sites = [{"cloudlet": name, "cluster": "c1"} for name in cloudlets]
    return AutoProvision.model_validate({"app": "shop", "cloudlets": sites, **more})


def world(**apps: str | None) -> PolicyFacts:
    """Each cloudlet with the status of the app there; "" is none, None is a cloudlet that takes no changes."""
    return PolicyFacts(
        places=[
            PolicySite(cloudlet=name, cluster="c1", usable=app is not None, app=app or "") for name, app in apps.items()
        ]
    )


def streaks(**found: tuple[int, int]) -> PolicyState:
    return PolicyState(streaks={name: DemandStreak(high=high, low=low) for name, (high, low) in found.items()})


def names(places: tuple[PolicySite, ...]) -> list[str]:
    return [place.cloudlet for place in places]


def test_an_app_is_deployed_only_after_enough_intervals_of_enough_clients() -> None:
    rule = policy("a", deploy_client_count=10, deploy_interval_count=3)
    memory = PolicyState()
    deployed = []
    for _ in range(4):
        memory = update_streaks(rule, memory.model_copy(update={"clients": {"a": 10}}))
        deployed.append(names(plan_provisioning(rule, memory, world(a="")).deploy))
    assert deployed == [[], [], ["a"], ["a"]]


def test_one_interval_of_too_few_clients_starts_the_count_again() -> None:
    rule = policy("a", deploy_client_count=10, deploy_interval_count=2)
    memory = update_streaks(rule, PolicyState(clients={"a": 10}))
    memory = update_streaks(rule, memory.model_copy(update={"clients": {"a": 9}}))
    memory = update_streaks(rule, memory.model_copy(update={"clients": {"a": 10}}))
    assert plan_provisioning(rule, memory, world(a="")).deploy == ()


def test_an_app_that_nobody_asks_for_is_taken_away_but_never_below_the_minimum() -> None:
    rule = policy("a", "b", "c", min_active=1, deploy_client_count=5, undeploy_client_count=1)
    memory = update_streaks(rule, PolicyState(clients={"a": 0, "c": 1}))
    found = plan_provisioning(rule, memory, world(a="Ready", b="Ready", c="Ready"))
    assert sorted(names(found.undeploy)) == ["a", "b"]
    alone = plan_provisioning(rule, memory, world(a="Ready", b="", c=""))
    assert (alone.undeploy, alone.deploy) == ((), ())


def test_max_is_enforced_before_min_and_takes_the_last_of_the_order_away() -> None:
    rule = policy("a", "b", "c", "d", min_active=2, max=2)
    found = plan_provisioning(rule, PolicyState(), world(a="Ready", b="Ready", c="Ready", d=""))
    assert names(found.undeploy) == ["c"]
    assert found.deploy == ()


def test_the_minimum_is_filled_in_the_order_of_the_policy_where_it_is_possible() -> None:
    rule = policy("a", "b", "c", min_active=2, deploy_client_count=5)
    assert names(plan_provisioning(rule, PolicyState(), world(a=None, b="", c="")).deploy) == ["b", "c"]


def test_demand_beyond_the_maximum_is_not_served() -> None:
    rule = policy("a", "b", "c", max=2)
    memory = streaks(a=(1, 0), b=(1, 0), c=(1, 0))
    assert names(plan_provisioning(rule, memory, world(a="", b="", c="")).deploy) == ["a", "b"]
    assert names(plan_provisioning(rule, memory, world(a="Creating", b="", c="")).deploy) == ["b"]


def test_a_site_that_failed_is_skipped_for_the_rest_of_its_interval_and_the_whole_next_one() -> None:
    rule = policy("a", "b", min_active=1)
    memory = skip_failed_site(PolicyState(), "a")
    chosen = []
    for _ in range(3):
        chosen += names(plan_provisioning(rule, memory, world(a="", b="")).deploy)
        memory = update_streaks(rule, memory)
    assert chosen == ["b", "b", "a"]


def test_a_count_that_is_not_reported_again_expires_with_its_interval() -> None:
    rule = policy("a", deploy_client_count=5, deploy_interval_count=2)
    memory = update_streaks(rule, update_streaks(rule, PolicyState(clients={"a": 9})))
    assert memory.streaks["a"].high == 0
    assert plan_provisioning(rule, memory, world(a="")).deploy == ()


def test_a_count_of_zero_never_takes_an_app_away() -> None:
    rule = policy("a", deploy_client_count=5)
    memory = update_streaks(rule, update_streaks(rule, PolicyState()))
    assert plan_provisioning(rule, memory, world(a="Ready")).undeploy == ()


def test_an_instance_on_a_cloudlet_that_cannot_be_used_is_not_active() -> None:
    rule = policy("a", "b", min_active=1, max=1)
    offline = PolicySite(cloudlet="a", cluster="c1", app="Ready", reached=False)
    found = plan_provisioning(rule, PolicyState(), PolicyFacts(places=[offline, *world(b="").places]))
    assert (names(found.deploy), found.undeploy) == (["b"], ())
    back = plan_provisioning(rule, PolicyState(), world(a="Ready", b="Ready"))
    assert names(back.undeploy) == ["b"]


def test_instances_on_cloudlets_that_left_the_policy_are_removed() -> None:
    found = plan_provisioning(policy("a"), PolicyState(), world(a="Ready", gone="Ready"))
    assert names(found.undeploy) == ["gone"]


def test_what_is_under_way_is_left_alone() -> None:
    rule = policy("a", "b", max=1)
    found = plan_provisioning(rule, streaks(a=(9, 0), b=(9, 0)), world(a="Deleting", b="Creating", gone="Deleting"))
    assert (found.undeploy, found.deploy) == ((), ())


@given(
    apps=st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from(["", "Ready", "Creating"]), max_size=8),
    high=st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 3)),
    low=st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 3)),
    most=st.integers(0, 6),
    least=st.integers(0, 6),
)
@settings(max_examples=settings().max_examples * 3 // 2, deadline=None)
def test_whatever_the_demand_the_limits_hold(
    apps: dict[str, str], high: dict[str, int], low: dict[str, int], most: int, least: int
) -> None:
    least = min(least, most) if most else least
    rule = policy(*"abcdefgh", max=most, min_active=least, deploy_client_count=2)
    memory = streaks(**{name: (high.get(name, 0), low.get(name, 0)) for name in "abcdefgh"})
    found = plan_provisioning(rule, memory, world(**{name: apps.get(name, "") for name in "abcdefgh"}))
    there = {name for name, status in apps.items() if status}
    after = (there - set(names(found.undeploy))) | set(names(found.deploy))
    assert not set(names(found.undeploy)) & set(names(found.deploy))
    if most and sum(1 for status in apps.values() if status == "Creating") <= most:
        assert len(after) <= max(most, sum(1 for status in apps.values() if status == "Creating"))
    assert len(after) >= min(least, 8)
    assert set(names(found.deploy)) & there == set()


def rule_for(**more: object) -> AutoScale:
    return AutoScale.model_validate({"cloudlet": "a", "cluster": "c1", "max_nodes": 10, "target_cpu": 50, **more})


@every_case(
    ("nodes", "cpu", "wanted"),
    [
        (2, 50, 2),
        (2, 55, 2),  # inside the band
        (2, 45, 2),
        (2, 56, 3),
        (2, 44, 2),
        (4, 44, 4),
        (4, 25, 2),
        (4, 100, 8),
        (8, 100, 10),  # never more than the most
        (4, 0, 1),  # never less than the least
        (10, 55.0, 10),
    ],
)
def test_nodes_follow_the_load_but_not_inside_the_band(nodes: int, cpu: float, wanted: int) -> None:
    assert count_nodes_for_load(rule_for(), nodes, DemandMeasurement(cpu=cpu)) == wanted


def test_the_target_that_calls_for_the_most_nodes_counts_and_unmeasured_ones_do_not() -> None:
    rule = rule_for(target_mem=80, target_connections=100)
    assert count_nodes_for_load(rule, 2, DemandMeasurement(cpu=50, mem=160, connections=10)) == 4
    assert count_nodes_for_load(rule, 2, DemandMeasurement(cpu=50)) == 2
    assert count_nodes_for_load(rule, 2, DemandMeasurement()) == 2


def test_a_peak_shorter_than_the_window_changes_nothing() -> None:
    rule, memory = rule_for(stabilization_window=300), PolicyState()
    wanted = []
    for second, cpu in [(0, 50), (60, 100), (120, 50), (400, 50)]:
        memory = memory.model_copy(update={"load": DemandMeasurement(cpu=cpu)})
        nodes, memory = plan_scaling(rule, 2, memory, float(second))
        wanted.append(nodes)
    assert wanted == [2, 2, 2, 2]


def test_a_load_that_lasts_longer_than_the_window_changes_the_nodes() -> None:
    rule, memory = rule_for(stabilization_window=300), PolicyState(load=DemandMeasurement(cpu=100))
    wanted = []
    for second in (0, 150, 299, 301, 310):
        nodes, memory = plan_scaling(rule, 2, memory, float(second))
        wanted.append(nodes)
    assert wanted == [2, 2, 2, 4, 4]


def test_a_dip_takes_the_highest_advice_of_the_window() -> None:
    rule, memory = rule_for(stabilization_window=100), PolicyState()
    for second, cpu in [(0, 50), (110, 25), (150, 40), (215, 25)]:
        memory = memory.model_copy(update={"load": DemandMeasurement(cpu=cpu)})
        nodes, memory = plan_scaling(rule, 4, memory, float(second))
    assert nodes == 4  # 40 % of 50 % for four nodes still asks for four, and was advised 65 s ago
    nodes, _ = plan_scaling(rule, 4, memory, 260.0)
    assert nodes == 2


def test_without_a_window_a_change_is_made_at_once() -> None:
    assert plan_scaling(rule_for(stabilization_window=0), 2, PolicyState(load=DemandMeasurement(cpu=100)), 0.0)[0] == 4


def test_demand_that_says_nothing_or_is_about_somewhere_else_is_ignored_with_the_reason() -> None:
    assert apply_demand_signal(PolicyState(), DemandMeasurement(), ["a"])[1]
    assert (
        "not in the policy" in apply_demand_signal(PolicyState(), DemandMeasurement(cloudlet="x", clients=3), ["a"])[1]
    )
    memory, why = apply_demand_signal(PolicyState(), DemandMeasurement(cloudlet="a", clients=3), ["a"])
    assert (memory.clients, why) == ({"a": 3}, "")
    memory, why = apply_demand_signal(PolicyState(load=DemandMeasurement(cpu=10)), DemandMeasurement(mem=20), [])
    assert (memory.load.cpu, memory.load.mem, why) == (10, 20, "")


@every_case(
    "spec",
    [
        {},
        {"auto_provision": {"app": "shop", "cloudlets": []}, "auto_scale": {}},
        {"auto_scale": {"cloudlet": "a", "cluster": "c", "max_nodes": 11, "target_cpu": 50}},
        {"auto_scale": {"cloudlet": "a", "cluster": "c", "max_nodes": 2, "min_nodes": 3, "target_cpu": 50}},
        {"auto_scale": {"cloudlet": "a", "cluster": "c", "max_nodes": 2}},
        {"auto_scale": {"cloudlet": "../a", "cluster": "c", "max_nodes": 2, "target_cpu": 50}},
        {"auto_provision": {"app": "sh op", "cloudlets": []}},
        {"auto_provision": {"app": "shop", "cloudlets": [], "min_active": 3, "max": 2}},
        {"auto_provision": {"app": "shop", "cloudlets": [{"cloudlet": "a", "cluster": "c"}], "min_active": 2}},
        {"auto_provision": {"app": "shop", "cloudlets": [{"cloudlet": "a", "cluster": "c"}] * 2}},
        {"auto_provision": {"app": "shop", "cloudlets": [], "deploy_client_count": 3, "undeploy_client_count": 3}},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(spec: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        PolicySpec.model_validate(spec)
