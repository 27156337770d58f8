"""The meaning of a CRM's messages: in any order, any number of times, from any connection, the state table decides."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import permutations, product
from typing import Any

import pytest

from domain.edge.faults import CrmFault
from domain.edge.interpretation import (
    CrmInterpreter,
    MessageEffect,
    ReconnectDecision,
    compare_instances,
    decide_after_reconnect,
)
from domain.edge.messages import (
    MAX_ERROR_LENGTH,
    CrmConnect,
    CrmProgress,
    CrmResponse,
    ReportedInstance,
    instance_spec_digest,
    parse_message,
)
from domain.edge.tables import CLUSTER
from domain.statetable import NONE
from tests.cases import every_case
from tests.test_edge.test_tables import INSTANCE

pytestmark = pytest.mark.stores("postgres")

NOW = 7  # the current notify-id

# What a CRM says in the course of each action, well and badly.
SCRIPTS = {
    ("CreateRequested", "well"): ("Creating", "Creating", "Ready"),
    ("CreateRequested", "badly"): ("Creating", "Creating", "CreateError"),
    ("UpdateRequested", "well"): ("Updating", "Updating", "Ready"),
    ("UpdateRequested", "badly"): ("Updating", "Updating", "UpdateError"),
    ("DeleteRequested", "well"): ("Deleting", "Deleting", "NotPresent"),
    ("DeleteRequested", "badly"): ("Deleting", "Deleting", "DeleteError"),
}
ENDS = {"Ready", "None", "CreateError", "UpdateError", "DeleteError"}


def says(state: str, notify_id: int = NOW, **more: Any) -> CrmResponse:
    return CrmResponse(state=state, notify_id=notify_id, **more)


def follow(status: str, messages: list[CrmResponse]) -> str:
    """Where an action ends that hears these messages one after the other, until one of them ends it."""
    listener = CrmInterpreter(CLUSTER, status, NOW)
    for message in messages:
        heard = listener.interpret_message(message)
        if heard.effect in (MessageEffect.ENDS, MessageEffect.ERROR):
            return heard.to
        if heard.effect in (MessageEffect.MOVES, MessageEffect.PROGRESS):
            listener = replace(listener, status=heard.to, progress=message.progress or listener.progress)
    return listener.status


def by_the_table(status: str, states: list[str]) -> str:
    """The same, walked over the document's own triples and nothing else."""
    for state in states:
        to = "None" if state in ("NotPresent", "Deleted") else state
        if (status, "CRM", to) in INSTANCE:
            status = to
        if status in ENDS:
            return status
    return status


@every_case(("start", "how"), SCRIPTS)
def test_every_order_of_a_crms_messages_ends_where_the_table_says(start: str, how: str) -> None:
    script = SCRIPTS[start, how]
    for order in permutations(script):
        end = follow(start, [says(state) for state in order])
        assert end == by_the_table(start, list(order))
        assert end == {"NotPresent": "None"}.get(
            script[-1], script[-1]
        )  # whatever came before it, the last word counts


@every_case(("start", "how"), SCRIPTS)
def test_shuffled_doubled_late_and_foreign_messages_end_where_the_table_says(start: str, how: str) -> None:
    words = sorted({word for script in SCRIPTS.values() for word in script} | {"Deleted", "Nonsense"})
    own = list(SCRIPTS[start, how])
    for seed in range(1_000):
        dice = random.Random(seed)
        mixed = [(state, NOW) for state in own + dice.choices(own, k=dice.randint(0, 4))]
        mixed += [(state, NOW - 1) for state in dice.choices(words, k=dice.randint(0, 4))]
        dice.shuffle(mixed)
        messages = mixed + [(state, NOW) for state in dice.choices(words, k=dice.randint(0, 3))]
        ours = [state for state, notify_id in messages if notify_id == NOW]
        end = follow(start, [says(state, notify_id) for state, notify_id in messages])
        assert end == by_the_table(start, ours), f"seed {seed}"


@every_case(("status", "to"), list(product([*map(str, CLUSTER.statuses), NONE], repeat=2)))
def test_a_message_moves_an_instance_exactly_by_a_row_of_the_crm(status: str, to: str) -> None:
    heard = CrmInterpreter(CLUSTER, status, NOW).interpret_message(says("NotPresent" if to == NONE else to))
    if (status, "CRM", to) in INSTANCE:
        assert heard.effect in (MessageEffect.MOVES, MessageEffect.ENDS, MessageEffect.ERROR)
        assert heard.to == to
    else:
        assert heard.effect is MessageEffect.IGNORED
        assert heard.why


@pytest.mark.parametrize("notify_id", [NOW - 1, NOW + 1, 0, -5])
def test_a_message_of_another_connection_is_ignored(notify_id: int) -> None:
    heard = CrmInterpreter(CLUSTER, "Creating", NOW).interpret_message(says("Ready", notify_id))
    assert heard.effect is MessageEffect.IGNORED
    assert f"notify-id {notify_id} is not the current one, {NOW}" in heard.why


def test_progress_is_news_once_and_never_goes_back() -> None:
    listener = CrmInterpreter(CLUSTER, "Creating", NOW)
    first, second = (CrmProgress(task=n, of=3, step="x") for n in (1, 2))
    assert listener.interpret_message(says("Creating", progress=first)).effect is MessageEffect.PROGRESS
    knowing = replace(listener, progress=second)
    assert knowing.interpret_message(says("Creating", progress=second)).effect is MessageEffect.IGNORED
    assert knowing.interpret_message(says("Creating", progress=first)).effect is MessageEffect.IGNORED
    assert listener.interpret_message(says("Creating")).effect is MessageEffect.IGNORED


@pytest.mark.parametrize("word", ["Deleted", "NotPresent"])
def test_deleted_and_notpresent_are_both_the_last_word_on_a_delete(word: str) -> None:
    for status in ("DeleteRequested", "Deleting"):
        assert CrmInterpreter(CLUSTER, status, NOW).interpret_message(says(word)).effect is MessageEffect.ENDS


@every_case(
    "raw",
    [
        None,
        "Ready",
        17,
        [],
        {},
        {"state": "Ready"},
        {"notify_id": 7},
        {"state": "", "notify_id": 7},
        {"state": "x" * 101, "notify_id": 7},
        {"state": "Ready", "notify_id": "soon"},
        {"state": "Ready", "notify_id": 7, "path": "../../etc"},
        {"state": "Ready", "notify_id": 7, "errors": {"a": 1}},
        {"state": "Ready", "notify_id": 7, "progress": {"task": -1}},
        {"state": ["Ready"], "notify_id": 7},
    ],
)
def test_what_is_no_answer_is_not_understood_and_says_why(raw: object) -> None:
    found = parse_message(CrmResponse, raw)
    assert isinstance(found, str)
    assert found.startswith("not understood: ")
    assert len(found) <= 500


def test_an_answer_with_a_megabyte_of_errors_is_cut_to_what_is_kept() -> None:
    said = says("CreateError", errors=["x" * 1_000_000] * 30)
    assert len(said.errors) == 20
    assert len(said.joined_errors()) <= MAX_ERROR_LENGTH


def test_a_runtime_that_is_too_large_is_not_kept() -> None:
    assert says("Ready", runtime={"a": "b"}).storable_runtime() == {"a": "b"}
    assert says("Ready", runtime={"a": "x" * 5_000}).storable_runtime() is None


def test_fields_that_a_newer_crm_sends_are_left_out() -> None:
    assert isinstance(parse_message(CrmResponse, {"state": "Ready", "notify_id": 7, "mood": "fine"}), CrmResponse)
    assert isinstance(parse_message(CrmConnect, {"notify_id": 1, "colour": "red"}), CrmConnect)


SPEC = instance_spec_digest({"nodes": 2})
OTHER = instance_spec_digest({"nodes": 3})


@every_case(
    ("status", "there", "found"),
    [
        ("CreateRequested", ("Ready", SPEC), ReconnectDecision.USE_REPORT),
        ("Creating", ("Ready", SPEC), ReconnectDecision.USE_REPORT),
        ("CreateRequested", None, ReconnectDecision.RESEND),
        ("Creating", None, ReconnectDecision.RESEND),
        ("CreateRequested", ("Creating", ""), ReconnectDecision.USE_REPORT),
        ("Creating", ("CreateError", ""), ReconnectDecision.USE_REPORT),
        ("UpdateRequested", ("Ready", SPEC), ReconnectDecision.USE_REPORT),
        ("Updating", ("Ready", SPEC), ReconnectDecision.USE_REPORT),
        ("UpdateRequested", ("Ready", OTHER), ReconnectDecision.RESEND),
        ("Updating", ("Ready", OTHER), ReconnectDecision.RESEND),
        ("Updating", ("Updating", ""), ReconnectDecision.USE_REPORT),
        ("Updating", None, ReconnectDecision.LOST),
        ("DeleteRequested", None, ReconnectDecision.USE_REPORT),
        ("Deleting", None, ReconnectDecision.USE_REPORT),
        ("DeleteRequested", ("Ready", SPEC), ReconnectDecision.RESEND),
        ("Deleting", ("Ready", SPEC), ReconnectDecision.RESEND),
        ("Deleting", ("Deleting", ""), ReconnectDecision.USE_REPORT),
        ("DeletePrepare", ("Ready", SPEC), ReconnectDecision.WAIT),
        ("CreateError", None, ReconnectDecision.WAIT),
    ],
)
def test_after_a_reconnect_each_state_is_resolved(
    status: str, there: tuple[str, str] | None, found: ReconnectDecision
) -> None:
    reported = ReportedInstance(state=there[0], digest=there[1]) if there else None
    assert decide_after_reconnect(status, reported, SPEC) is found


def test_lost_strange_and_found_instances_are_told_apart() -> None:
    ready = ReportedInstance(state="Ready")
    found = compare_instances(
        known={"a": ("Ready", False), "b": ("Ready", True), "c": ("Creating", False), "d": ("Ready", False)},
        busy=frozenset({"c", "e"}),
        there={"b": ready, "d": ready, "e": ready, "f": ready, "g": ReportedInstance(state="NotPresent")},
    )
    assert (found.missing, found.found_again, found.orphans) == (["a"], ["b"], ["f"])


def test_what_is_null_was_not_said() -> None:
    said = parse_message(CrmResponse, {"state": "Ready", "notify_id": 7, "errors": None, "progress": None})
    assert isinstance(said, CrmResponse)
    assert said.model_dump() == says("Ready").model_dump()
    assert isinstance(parse_message(CrmConnect, {"notify_id": 1, "instances": None}), CrmConnect)
    assert isinstance(parse_message(CrmResponse, {"state": None, "notify_id": 7}), str)


def test_a_digest_does_not_depend_on_the_order_of_a_spec() -> None:
    assert instance_spec_digest({"a": 1, "b": [1, 2]}) == instance_spec_digest({"b": [1, 2], "a": 1})
    assert instance_spec_digest({"a": 1}) != instance_spec_digest({"a": 2})


def test_a_fault_rule_is_about_one_version_of_a_crm_or_about_all() -> None:
    told = [
        (version, verb, CrmFault(kind="fail", verb="create", version=version).matches(verb, "org:a:cloudlet:b", "v2"))
        for version in ("*", "v1", "v2")
        for verb in ("create", "delete")
    ]
    assert [(version, verb) for version, verb, matches in told if matches] == [("*", "create"), ("v2", "create")]
