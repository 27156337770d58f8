"""The six state tables, as in the source document; everything else is refused."""

from __future__ import annotations

from itertools import product

import pytest

from domain import registry
from domain.errors import Refused
from domain.machines import TABLES, TRANSITION_STATES, validate_transition
from domain.machines.orders import action_stages, hypervisor_verbs, related_status_after, related_status_during
from domain.machines.ports import ABSENT, EXPECTED_STATES, STATE_AFTER_VERB, state_expected_in_status, verbs_to_reach
from domain.statetable import NONE, SAME, Actor, Ruling
from tests.cases import every_case

# The source document's tables, without its stars. They are the oracle: nothing here is derived from our rows.
DOCUMENT = {
    "machine": """
        VIRTUAL|DEPLOYING|RUNNING
        RUNNING|PAUSING|PAUSED
        PAUSED|RESUMING|RUNNING
        RUNNING/PAUSED|STOPPING|HALTED
        RUNNING/PAUSED|DELETING|DELETED
        RUNNING/PAUSED|DESTROYING|DESTROYED
        HALTED|DELETING|DELETED
        HALTED|DESTROYING|DESTROYED
        RUNNING|REBOOTING|RUNNING
        PAUSED|REBOOTING|RUNNING
        RUNNING|RESETTING|RUNNING
        RUNNING|ADDING_DISK/ATTACHING_DISK/DETACHING_DISK|RUNNING
        PAUSED|ADDING_DISK/ATTACHING_DISK/DETACHING_DISK|PAUSED
        HALTED|ADDING_DISK/ATTACHING_DISK/DETACHING_DISK|HALTED
    """,
    "cloudspace": """
        VIRTUAL|DEPLOYING|DEPLOYED
        DEPLOYED|DISABLING|DISABLED
        DISABLED|ENABLING|DEPLOYED
        DEPLOYED/DISABLED|DELETING|DELETED
        DELETED|DESTROYING|DESTROYED
        DELETED|RESTORING|DEPLOYED
        DEPLOYED|PAUSING|PAUSED
        PAUSED|RESUMING|DEPLOYED
        DEPLOYED|RESETTING|DEPLOYED
    """,
    "account": """
        CONFIRMED|DISABLING|DISABLED
        DISABLED|ENABLING|CONFIRMED
        CONFIRMED/DISABLED|DESTROYING|DESTROYED
        CONFIRMED/DISABLED|DELETING|DELETED
    """,
    "disk": """
        MODELED|CREATING|CREATED
        MODELED|ASSIGNING|ASSIGNED
        CREATED|ATTACHING|ASSIGNED
        ASSIGNED|DETACHING|CREATED
        CREATED|DELETING|DELETED
        CREATED|DESTROYING|DESTROYED
        ASSIGNED|DELETING|TOBEDELETED
        ASSIGNED|DESTROYING|DESTROYED
    """,
    "image": """
        VIRTUAL|CREATING|CREATED
        CREATED|DISABLING|DISABLED
        CREATED/DISABLED|DELETING|DELETED
        CREATED/DISABLED|DESTROYING|DESTROYED
    """,
    "node": """
        ENABLED|PUTTING_IN_MAINTENANCE|MAINTENANCE
        MAINTENANCE|ENABLING|ENABLED
        ENABLED/MAINTENANCE|DECOMMISSIONING|DECOMMISSIONED
    """,
}
# What our rules add: rows that are missing there, the bin that works alike for all, a slip put right, a way to be
# rid of a record alone, as a failed create leaves it, and snapshots.
ADDED = {
    "machine": "HALTED|STARTING|RUNNING DELETED|RESTORING|HALTED DELETED|DESTROYING|DESTROYED "
    "VIRTUAL|DELETING/DESTROYING|DESTROYED "
    "RUNNING|TAKING_SNAPSHOT/ROLLING_BACK/DELETING_SNAPSHOT|RUNNING "
    "PAUSED|TAKING_SNAPSHOT/ROLLING_BACK/DELETING_SNAPSHOT|PAUSED "
    "HALTED|TAKING_SNAPSHOT/ROLLING_BACK/DELETING_SNAPSHOT|HALTED",
    "cloudspace": "PAUSED|RESETTING|DEPLOYED VIRTUAL|DELETING/DESTROYING|DESTROYED",
    "account": "DELETED|DESTROYING|DESTROYED DELETED|RESTORING|CONFIRMED",
    "disk": "DELETED|DESTROYING|DESTROYED TOBEDELETED|DESTROYING|DESTROYED DELETED|RESTORING|CREATED "
    "TOBEDELETED|RESTORING|ASSIGNED MODELED|DELETING/DESTROYING|DESTROYED",
    "image": "DISABLED|ENABLING|CREATED DELETED|DESTROYING|DESTROYED DELETED|RESTORING|CREATED "
    "VIRTUAL|DELETING/DESTROYING|DESTROYED",
}


def transitions(kind: str) -> set[tuple[str, str, str]]:
    """(initial, transition, desired), with every `A/B` cell as two rows."""
    lines = [line.strip() for line in DOCUMENT[kind].strip().splitlines()] + ADDED.get(kind, "").split()
    cells = [[cell.split("/") for cell in line.split("|")] for line in lines]
    return {row for line in cells for row in product(*line)}  # type: ignore[misc]


def ours(kind: str) -> set[tuple[str, str, str]]:
    rows = [row for row in TABLES[kind].rows if row.actor == Actor.USER and row.during and row.source != NONE]
    return {(row.source, str(row.during), row.success_status(row.source)) for row in rows}


KINDS = list(TABLES)


@every_case("kind", KINDS)
def test_the_table_is_the_documents_with_what_the_rules_add(kind: str) -> None:
    assert ours(kind) == transitions(kind)


@every_case("kind", KINDS)
def test_validate_transition_answers_for_every_pair_and_only_for_single_rows(kind: str) -> None:
    told = {(source, to) for source, _, to in transitions(kind)}
    for source, to in product(TABLES[kind].statuses, TABLES[kind].statuses):
        assert validate_transition(kind, source, to) is ((source, to) in told), (source, to)
    assert validate_transition(kind, "nonsense", TABLES[kind].statuses[0]) is False


def test_validate_transition_does_not_answer_for_a_chain() -> None:
    assert validate_transition("machine", "RUNNING", "HALTED")
    assert validate_transition("machine", "HALTED", "DELETED")
    assert not validate_transition("machine", "VIRTUAL", "HALTED")
    with pytest.raises(Refused, match="unknown object type 'mchine'"):
        validate_transition("mchine", "RUNNING", "HALTED")


@every_case("kind", KINDS)
def test_every_action_that_no_row_names_is_refused(kind: str) -> None:
    table = TABLES[kind]
    named = {(row.source, row.action) for row in table.rows if row.actor == Actor.USER}
    done = {("DESTROYED", "delete"), ("DESTROYED", "destroy")}
    for status, action in product((NONE, *table.statuses), table.user_actions):
        verdict = table.judge(status, action)
        assert (verdict.ruling is Ruling.GO) is ((status, action) in named - done), (status, action)
        assert (verdict.ruling is Ruling.ALREADY) is ((status, action) in named & done), (status, action)
        if verdict.ruling is Ruling.REFUSED:
            assert verdict.reason


@every_case("kind", KINDS)
def test_nothing_is_allowed_in_a_transition_state_and_nothing_leaves_a_final_one(kind: str) -> None:
    table = TABLES[kind]
    assert set(table.transitional_statuses) <= set(TRANSITION_STATES)
    assert set(table.transitional_statuses).isdisjoint(table.stable_statuses)
    for status in table.transitional_statuses:
        assert table.allowed_actions(status) == ()
    assert table.final_statuses == (("DECOMMISSIONED",) if kind == "node" else ("DESTROYED",))
    for action in table.user_actions:
        assert table.judge(table.final_statuses[0], action, force=True).ruling is not Ruling.GO


def test_the_transition_states_are_the_documents() -> None:
    told = {during for kind in KINDS for _, during, _ in transitions(kind)}
    assert set(TRANSITION_STATES) == told


@every_case("kind", KINDS)
def test_a_failure_leads_back_to_where_the_object_came_from(kind: str) -> None:
    for row in TABLES[kind].rows:
        if row.source != NONE:
            assert row.failure_status(row.source) == row.source
            assert TABLES[kind].recovery_status(row.action, row.source) == row.source


@every_case("kind", KINDS)
def test_a_row_that_ends_where_it_began_returns_to_the_exact_status(kind: str) -> None:
    same = [row for row in TABLES[kind].rows if row.then == SAME]
    assert {row.action for row in same} == (
        {"add-disk", "attach-disk", "detach-disk", "snapshot", "rollback", "delete-snapshot", "migrate"}
        if kind == "machine"
        else set()
    )
    assert all(row.success_status(row.source) == row.source for row in same)


def test_migration_is_the_only_hidden_action_and_shows_in_no_status() -> None:
    assert {kind: table.hidden_actions for kind, table in TABLES.items() if table.hidden_actions} == {
        "machine": ("migrate",)
    }
    for status in ("RUNNING", "PAUSED", "HALTED"):
        verdict = TABLES["machine"].judge(status, "migrate")
        assert verdict.ruling is Ruling.GO
        assert verdict.row
        assert verdict.row.during is None
    assert (
        registry.workflow_id_of("account:a:cloudspace:b:machine:c", "migrate")
        == "account:a:cloudspace:b:machine:c::migrate"
    )


# What the rows mean at the hypervisor.


def rows_with_orders() -> list[tuple[str, str, str, str]]:
    return [
        (kind, row.action, row.source, row.success_status(row.source))
        for kind, table in TABLES.items()
        for row in table.rows
        if kind != "account" and (row.during or row.hidden)
    ]


@every_case(("kind", "action", "source", "to"), rows_with_orders())
def test_the_orders_of_a_row_lead_the_hypervisor_where_the_row_leads_the_object(
    kind: str, action: str, source: str, to: str
) -> None:
    state = state_expected_in_status(kind, source)
    for verb in hypervisor_verbs(kind, action, source):
        state = STATE_AFTER_VERB[kind][verb][state]
    assert state == state_expected_in_status(kind, to)


def test_destroy_of_a_running_machine_is_stop_delete_destroy() -> None:
    assert (
        hypervisor_verbs("machine", "destroy", "RUNNING")
        == hypervisor_verbs("machine", "destroy", "PAUSED")
        == ("stop", "delete", "destroy")
    )
    assert [type(stage).__name__ for stage in action_stages("machine", "destroy", "RUNNING")] == [
        "OwnStage",
        "RelatedStage",
        "OwnStage",
    ]


@every_case(("kind", "action", "source", "to"), rows_with_orders())
def test_there_is_a_way_back_from_everywhere_but_the_end(kind: str, action: str, source: str, to: str) -> None:
    state, home = state_expected_in_status(kind, source), state_expected_in_status(kind, source)
    for verb in hypervisor_verbs(kind, action, source):
        state = STATE_AFTER_VERB[kind][verb][state]
        back = verbs_to_reach(kind, state, home)
        assert (back is None) is (state == ABSENT != home)
        found = state
        for step in back or ():
            found = STATE_AFTER_VERB[kind][step][found]
        assert found == home or back is None


def test_the_way_back_is_the_shortest_and_never_destroys_what_should_be_there() -> None:
    assert verbs_to_reach("machine", "binned", "running") == ("restore", "start")
    assert verbs_to_reach("machine", "running", ABSENT) == ("stop", "delete", "destroy")
    assert verbs_to_reach("machine", "running", "running") == ()
    assert verbs_to_reach("machine", ABSENT, "running") is None
    assert verbs_to_reach("disk", "detached", "attached") == ("attach",)


def test_every_stable_status_has_a_state_outside_or_is_absent_there() -> None:
    absent = {"VIRTUAL", "MODELED", "DESTROYED", "DECOMMISSIONED"}
    for kind, states in EXPECTED_STATES.items():
        assert set(TABLES[kind].stable_statuses) == {*states} | (absent & {*TABLES[kind].stable_statuses})


@every_case("kind", KINDS)
def test_those_who_go_along_do_so_by_rows_of_their_own(kind: str) -> None:
    for row in TABLES[kind].rows:
        if not row.during or row.actor == "Controller":
            continue
        if row.action == "delete" and row.then == "DESTROYED":  # a record alone: nothing to restore it from
            assert related_status_during(kind, row.action, row.source) == ""
            continue
        assert related_status_during(kind, row.action, row.source) == row.during
        assert related_status_after(kind, row.action, row.source) == row.success_status(row.source)
    assert related_status_during(kind, "explode", TABLES[kind].stable_statuses[0]) == ""
