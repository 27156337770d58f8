"""Pure rules of systems: the state of a tree, rolling updates, replacing subtrees."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.services.definition import Node
from domain.services.rollout import (
    CRASHES_TO_FAIL,
    LONGEST_BACKOFF,
    RunningInstance,
    ServiceFacts,
    instance_revision,
    plan_instance_changes,
    restart_delay,
)
from domain.statetable import NONE, Actor
from domain.systems.ports import SystemWork
from domain.systems.rules import (
    StoredPart,
    is_only_rescaled,
    landed_status,
    observation_move,
    observed_status,
    removal_failed_move,
    replacement_moves,
    reversal_moves,
    rollout_order,
    subtree_definition,
)
from domain.systems.tables import BACKEND, DEPLOY, PART, SYSTEM, TEARDOWN, DeployStage, PartState, derive_status
from tests.cases import every_case

S = PartState
SHOP = "system:shop"
RUN: dict[str, Any] = {"command": ["run"]}


# The state of a system.


def by_the_document(states: set[str]) -> str:
    """The source document's pseudocode, word for word; what it does not name is said beside it."""
    if states & {"degraded", "failed"}:  # failed: a service that never got up
        return "degraded"
    if states & {"updating", "pending", "deleting"}:  # its new definition was not observed yet
        return "updating"
    if "scaling" in states:
        return "scaling"
    return "stable"


@every_case("mask", range(2 ** len(PartState)))
def test_a_system_is_what_its_services_are_in_the_order_of_the_document(mask: int) -> None:
    states = {state for bit, state in enumerate(PartState) if mask >> bit & 1}
    for phase in (S.STABLE, S.UPDATING):
        expected = by_the_document(set(states)) if states else phase
        assert derive_status(phase, dict.fromkeys(states, 2)) == expected
        assert derive_status(
            phase, dict.fromkeys(states, 2) | {"scaling": 0} if "scaling" not in states else {"scaling": 1}
        )


@pytest.mark.parametrize("phase", [S.PENDING, S.FAILED, S.DELETING])
def test_a_system_that_is_coming_or_going_speaks_for_itself(phase: str) -> None:
    assert derive_status(phase, {"stable": 3, "degraded": 1}) == phase


# The tables.


def test_the_states_are_spelled_as_in_the_document() -> None:
    assert {*PartState} == {"pending", "failed", "deleting", "stable", "updating", "scaling", "degraded"}
    assert [*DeployStage] == ["pending", "accepted", "in progress", "succeeded", "failed"]


@pytest.mark.parametrize("table", [DEPLOY, TEARDOWN])
def test_deploys_and_teardowns_go_one_way(table: Any) -> None:
    ways = {(row.source, row.then) for row in table.rows if row.during is None and row.then != NONE}
    assert ways == {
        ("pending", "accepted"),
        ("accepted", "in progress"),
        ("in progress", "succeeded"),
        ("pending", "failed"),
        ("accepted", "failed"),
        ("in progress", "failed"),
    }
    for source, to, actor in product(DeployStage, DeployStage, Actor):
        legal = (source, to) in ways and actor == Actor.CONTROLLER
        assert (table.judge_step(source, to, actor).row is not None) == legal


def test_a_backend_only_says_whether_a_service_at_rest_is_well() -> None:
    ways = {(row.source, row.then) for row in PART.rows if row.actor == BACKEND and row.then != NONE}
    well, ill, miscounted = ("stable", "degraded", "scaling")
    others = {("failed", well)}  # what never got up is not ill, and not miscounted
    assert ways == {(a, b) for a, b in product((well, ill, miscounted), repeat=2) if a != b} | others


def test_a_service_rests_in_scaling_by_what_is_seen_and_never_by_what_is_ordered() -> None:
    assert PART.transitional_resting_statuses == ("scaling",)
    assert {row.action for row in PART.rows if row.rests} == {"observe", "rollback"}
    assert {row.action for row in PART.rows if row.then == "scaling" and not row.rests} == {"rescale"}
    assert "scaling" in PART.stable_statuses
    assert PART.always_transitional_statuses == ("pending", "updating", "deleting")
    at_rest = {"stable", "degraded", "failed", "scaling"}
    assert {row.source for row in PART.rows if row.action == "deploy"} == at_rest | {NONE}
    assert {row.source for row in PART.rows if row.action == "remove"} == at_rest
    for action, status in product(("deploy", "remove"), at_rest):
        assert PART.recovery_status(action, status) == status


def test_a_system_can_be_deleted_from_wherever_it_can_rest() -> None:
    assert {row.source for row in SYSTEM.rows if row.action == "delete"} == set(SYSTEM.stable_statuses)
    assert {row.source for row in SYSTEM.rows if row.action in ("deploy", "teardown")} == {"stable"}


# What a service is.


def facts(**more: Any) -> ServiceFacts:
    known: dict[str, Any] = {"path": "p", "generation": 4, "wanted": 2, "alive": 2, "healthy": 2, "current": 2}
    return ServiceFacts(**known | more)


@every_case(
    ("seen", "settled"),
    [
        (facts(), True),
        (facts(wanted=0, alive=0, healthy=0, current=0), True),
        (facts(generation=3), False),
        (facts(alive=3), False),  # an old one is still there
        (facts(current=1), False),
        (facts(healthy=2, current=0), False),  # well, but of the old definition
        (facts(alive=1, healthy=1, current=1), False),
    ],
)
def test_a_service_has_settled_when_all_of_the_new_and_none_of_the_old_is_up(seen: ServiceFacts, settled: bool) -> None:
    assert seen.is_rolled_out(4) is settled


MISCOUNTED = [facts(alive=n, healthy=n, current=n) for n in (0, 1, 3)]  # too few, or too many, and none failed
ILL = [
    facts(healthy=1, current=1),  # one is not well
    facts(alive=1, healthy=1, current=1, crashes=1),  # one failed
    facts(alive=3, healthy=2, current=2),  # too many, and one is not well
    facts(current=1),  # one has the old definition
    facts(current=0),  # nobody can reach them
    facts(alive=0, healthy=0, current=0, generation=-1),  # not looked at yet
]


@every_case("status", PartState)
def test_what_is_observed_changes_a_service_at_rest_only(status: PartState) -> None:
    at_rest = status in (S.STABLE, S.DEGRADED, S.SCALING)
    well = S.STABLE if at_rest or status == S.FAILED else status
    ill, miscounted = (S.DEGRADED, S.SCALING) if at_rest else (status, status)
    seen = [(facts(), well), *((facts, ill) for facts in ILL), *((facts, miscounted) for facts in MISCOUNTED)]
    for each, to in seen:
        assert observed_status(status, each) == to, each
        assert to == status or PART.judge_step(status, to, BACKEND).row


def test_a_service_that_is_not_well_or_not_gone_says_why() -> None:
    seen = facts(healthy=1, current=1, message="gone")
    assert [observation_move("p", to, seen).error for to in (S.STABLE, S.DEGRADED)] == ["", "1 of 2 healthy: gone"]
    assert removal_failed_move("p", [seen]).error == "2 instances left: gone"
    assert removal_failed_move("other", [seen]).error == ""


def test_a_deploy_that_ends_leaves_a_service_as_it_is() -> None:
    assert landed_status(S.UPDATING, facts(), 4) == S.STABLE
    assert landed_status(S.UPDATING, facts(), 5) == S.DEGRADED
    assert landed_status(S.SCALING, None, 4) == S.DEGRADED
    assert landed_status(S.UPDATING, None, 4) == S.FAILED  # it was never started
    assert landed_status(S.PENDING, facts(current=0), 4) == S.FAILED


def test_an_instance_that_crashes_often_makes_its_service_fail_and_is_given_ever_more_time() -> None:
    assert [facts(crashes=n).is_failing() for n in (0, CRASHES_TO_FAIL - 1, CRASHES_TO_FAIL)] == [False, False, True]
    assert [facts(crashes=CRASHES_TO_FAIL).is_failing(generation) for generation in (4, 5)] == [True, False]
    waits = [restart_delay(n) for n in range(100)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (0.1, LONGEST_BACKOFF)


# Rolling updates and scaling.


def test_two_definitions_that_differ_in_number_only_make_the_same_instances() -> None:
    base = Node.model_validate({**RUN, "instances": 1})
    assert instance_revision(base) == instance_revision(
        Node.model_validate({**RUN, "instances": 5, "maxSurge": 3, "name": "x"})
    )
    assert instance_revision(base) != instance_revision(Node.model_validate({"command": ["run", "faster"]}))
    assert is_only_rescaled(RUN, {**RUN, "instances": 5})
    assert not is_only_rescaled(RUN, RUN)
    assert not is_only_rescaled(RUN, {"command": ["x"], "instances": 5})


running = st.lists(st.tuples(st.booleans(), st.booleans()), max_size=8)  # (of the new definition, healthy)


@settings(deadline=None, max_examples=3 * settings().max_examples)
@given(start=running, want=st.integers(0, 5), unavailable=st.integers(0, 5), surge=st.integers(0, 3), seed=st.randoms())
def test_a_roll_out_keeps_its_promises_and_always_ends(
    start: list[tuple[bool, bool]], want: int, unavailable: int, surge: int, seed: Any
) -> None:
    """Whatever there was, and in whatever order instances get well: bounds hold at every step, and it settles."""
    node = Node.model_validate({**RUN, "instances": want, "maxUnavailable": unavailable, "maxSurge": surge or 1})
    new = instance_revision(node)
    alive = {f"i{n}": RunningInstance(f"i{n}", new if fresh else "old", well) for n, (fresh, well) in enumerate(start)}
    most = max(len(alive), want + node.maxSurge)
    number = 100
    for _ in range(200):
        healthy = sum(instance.healthy for instance in alive.values())
        steps = plan_instance_changes(node, list(alive.values()))
        if not steps.start and not steps.stop and healthy == len(alive):
            break
        lost = sum(alive[token].healthy for token in steps.stop)
        surplus = healthy - lost >= min(healthy, max(want - unavailable, 0))
        assert surplus, "fewer healthy than promised"
        for token in steps.stop:
            del alive[token]
        for _ in range(steps.start):
            number += 1
            alive[f"i{number}"] = RunningInstance(f"i{number}", new, False)
        assert len(alive) <= most
        for token in sorted(alive):
            if seed.random() < 0.5:
                alive[token] = RunningInstance(token, alive[token].revision, True)
    assert len(alive) == want
    assert all(instance.revision == new for instance in alive.values())


def test_new_instances_that_never_get_well_take_nothing_from_the_old() -> None:
    node = Node.model_validate({**RUN, "instances": 2})
    old = [RunningInstance("a", "old", True), RunningInstance("b", "old", True)]
    assert plan_instance_changes(node, old).start == 1
    assert plan_instance_changes(
        node, [*old, RunningInstance("c", instance_revision(node), False)]
    ) == plan_instance_changes(node, [*old, RunningInstance("c", instance_revision(node), False)])
    assert plan_instance_changes(node, [*old, RunningInstance("c", instance_revision(node), False)]).stop == ()


# Replacing a subtree, and taking it back.


def moves(path: str, definition: dict[str, Any], there: dict[str, tuple[str, dict[str, Any]]]) -> list[tuple[str, str]]:
    kept = {at: StoredPart(at, status, spec) for at, (status, spec) in there.items()}
    return [
        (move.path, move.to) for move in replacement_moves(path, Node.model_validate(definition), kept, "simulated")
    ]


def test_what_is_alike_and_well_is_left_alone() -> None:
    there = {f"{SHOP}:a": ("stable", RUN), f"{SHOP}:b": ("degraded", RUN), f"{SHOP}:in": ("stable", {"parts": []})}
    same = {"parts": [{"name": "a", **RUN}, {"name": "b", **RUN}, {"name": "in", "parts": []}]}
    assert moves(SHOP, same, there) == [(f"{SHOP}:b", "updating")]


def test_new_changed_rescaled_and_removed_parts_each_get_their_moves() -> None:
    there = {f"{SHOP}:a": ("stable", RUN), f"{SHOP}:b": ("stable", RUN), f"{SHOP}:c": ("failed", RUN)}
    definition = {"parts": [
        {"name": "a", "command": ["x"]}, {"name": "b", **RUN, "instances": 2},
        {"name": "in", "parts": [{"name": "d", **RUN}]},
    ]}  # fmt: skip
    assert moves(SHOP, definition, there) == [
        (f"{SHOP}:a", "updating"),
        (f"{SHOP}:b", "updating"),
        (f"{SHOP}:b", "scaling"),
        (f"{SHOP}:in", "pending"),
        (f"{SHOP}:in", "stable"),
        (f"{SHOP}:in:d", "pending"),
        (f"{SHOP}:c", "deleting"),
    ]


def test_a_reversal_takes_every_move_back() -> None:
    parts: list[tuple[StoredPart, dict[str, Any]]] = [
        (StoredPart("new", "pending", RUN), {"spec": None}),
        (StoredPart("up", "stable", RUN), {"spec": None}),
        (StoredPart("changed", "updating", RUN), {"spec": {"command": ["before"]}}),
        (StoredPart("landed", "stable", RUN), {"spec": {"command": ["before"]}}),
        (StoredPart("scaled", "scaling", RUN), {"spec": {**RUN, "instances": 2}}),
        (StoredPart("seen", "scaling", RUN, under_way=False), {"spec": {**RUN, "instances": 2}}),
        (StoredPart("removed", "deleting", RUN, "failed"), {"spec": RUN}),
    ]
    taken_back = [(move.path, move.to, move.action) for move in reversal_moves(parts, "simulated")]
    assert taken_back == [
        ("new", "deleting", ""),
        ("up", "deleting", "remove"),
        ("changed", "updating", "deploy"),
        ("landed", "updating", "deploy"),
        ("scaled", "scaling", "deploy"),
        ("seen", "updating", "deploy"),
        ("removed", "failed", ""),
        ("removed", "updating", "deploy"),  # it may have been stopped by then
    ]


@every_case(("undo", "born", "path"), product((True, False), (True, False), (SHOP, f"{SHOP}:part:web")))
def test_an_undo_removes_the_new_part_and_no_other(undo: bool, born: bool, path: str) -> None:
    work = SystemWork(path=SHOP, epoch=1, backend="simulated", undo=undo, born=born)
    assert work.is_removed_by_undo(path) == ((undo, born, path) == (True, True, SHOP))


def test_services_come_up_after_those_they_wait_for() -> None:
    services = {
        f"{SHOP}:web": {**RUN, "after": ["back", "unknown"]},
        f"{SHOP}:back:api": {**RUN, "after": ["db"]},
        f"{SHOP}:back:db": RUN,
        f"{SHOP}:backup": RUN,
    }
    order = rollout_order(services)
    waves = []
    while order.is_active():
        waves.append(sorted(order.get_ready()))
        order.done(*waves[-1])
    assert waves == [[f"{SHOP}:back:db", f"{SHOP}:backup"], [f"{SHOP}:back:api"], [f"{SHOP}:web"]]


def test_a_definition_is_read_from_the_stored_specs_and_nothing_deployed_is_none() -> None:
    shop, web, api = "system:shop", "system:shop:web", "system:shop:web:api"
    service = {"command": ["serve"]}
    specs: dict[str, dict[str, Any]] = {shop: {"jobs": [{"name": "daily"}]}, web: {}, api: service}
    api_part = {"name": "api", **service}
    assert subtree_definition(api, specs) == service
    assert subtree_definition(web, specs) == {"parts": [api_part]}
    assert subtree_definition(shop, {shop: {}}) is None
    assert subtree_definition(shop, {shop: {"parts": []}}) == {"parts": []}
