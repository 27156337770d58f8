"""The state tables and the relationship table, as in the source document; everything else is refused."""

from __future__ import annotations

from itertools import product

import pytest

from domain.leases.tables import (
    EVENT,
    HOST,
    LEASE,
    RELATIONS,
    RESERVATION,
    EventStatus,
    HostStatus,
    LeaseStatus,
    ReservationStatus,
    describe_contradiction,
)
from domain.statetable import NONE, Actor, Ruling, StateTable
from tests.cases import every_case

# What a user may ask for, typed again as the source document and our rules say it: from, while, then, else.
LEASE_ACTIONS: dict[tuple[str, str], tuple[str, str, str]] = {
    ("create", NONE): ("CREATING", "PENDING", "ERROR"),
    ("start", "PENDING"): ("STARTING", "ACTIVE", "ERROR"),
    ("update", "PENDING"): ("UPDATING", "PENDING", "PENDING"),
    ("update", "ACTIVE"): ("UPDATING", "ACTIVE", "ACTIVE"),
    ("update", "ERROR"): ("UPDATING", "ERROR", "ERROR"),
    ("update", "TERMINATED"): ("UPDATING", "TERMINATED", "TERMINATED"),  # of its name
    ("end", "ACTIVE"): ("TERMINATING", "TERMINATED", "ERROR"),
    ("end", "ERROR"): ("TERMINATING", "TERMINATED", "ERROR"),
    **{("delete", status): ("DELETING", NONE, "ERROR") for status in LeaseStatus},
}
HOST_ACTIONS = {
    ("add", NONE): ("ADDING", "UP", "DOWN"),
    ("fail", "UP"): ("FAILING", "DOWN", "DOWN"),
    ("recover", "DOWN"): ("RECOVERING", "UP", "DOWN"),
    ("update", "UP"): ("UPDATING", "UP", "UP"),
    ("update", "DOWN"): ("UPDATING", "DOWN", "DOWN"),
    ("remove", "UP"): ("REMOVING", NONE, "UP"),
    ("remove", "DOWN"): ("REMOVING", NONE, "DOWN"),
}
EVENT_ACTIONS = {("announce", "UNDONE"): ("IN_PROGRESS", "DONE", "ERROR")}
NOTHING_TO_DO = {("lease", "end", "TERMINATED"), ("host", "fail", "DOWN"), ("host", "recover", "UP")}

STEPS = {  # what our own workflows may do in one step
    "reservation": {
        (NONE, "pending"),
        ("pending", "active"),
        ("pending", "error"),
        ("pending", "deleted"),
        ("active", "deleted"),
        ("active", "error"),
        ("error", "deleted"),
        *((status, NONE) for status in ReservationStatus),
    },
    "event": {
        (NONE, "UNDONE"),
        ("UNDONE", "DONE"),
        ("ERROR", "DONE"),
        ("DONE", "UNDONE"),
        ("ERROR", "UNDONE"),
        *((status, NONE) for status in EventStatus),
    },
    "lease": {(status, "ERROR") for status in ("PENDING", "ACTIVE", "UPDATING", "TERMINATED")},
    "host": set(),
}
TABLES: dict[str, tuple[StateTable, tuple[str, ...], dict[tuple[str, str], tuple[str, str, str]]]] = {
    "lease": (LEASE, tuple(LeaseStatus), LEASE_ACTIONS),
    "reservation": (RESERVATION, tuple(ReservationStatus), {("discard", NONE): ("returning", NONE, NONE)}),  # an orphan
    "event": (EVENT, tuple(EventStatus), EVENT_ACTIONS),
    "host": (HOST, tuple(HostStatus), HOST_ACTIONS),
}
ASKED = [
    (kind, action, status)
    for kind, (table, statuses, _) in TABLES.items()
    for action, status in product(dict.fromkeys(row.action for row in table.rows), (NONE, *statuses))
]


@every_case(("kind", "action", "status"), ASKED)
def test_a_user_may_ask_for_what_a_row_says_and_for_nothing_else(kind: str, action: str, status: str) -> None:
    table, _, allowed = TABLES[kind]
    verdict = table.judge(status, action)
    if (kind, action, status) in NOTHING_TO_DO:
        assert verdict.ruling is Ruling.ALREADY
    elif (action, status) in allowed:
        assert verdict.ruling is Ruling.GO
        assert verdict.row
        row = verdict.row
        assert (row.during, row.success_status(status), row.failure_status(status)) == allowed[action, status]
    else:
        assert verdict.ruling is Ruling.REFUSED


@every_case("kind", TABLES)
@every_case("actor", [Actor.CONTROLLER, Actor.USER, Actor.CLOUD])
def test_steps_are_for_our_own_workflows_and_only_those_that_are_listed(kind: str, actor: Actor) -> None:
    table, statuses, _ = TABLES[kind]
    words = (NONE, *statuses)
    legal = {
        (source, to)
        for source, to in product(words, words)
        if source != to and table.judge_step(source, to, actor).ruling is Ruling.GO
    }
    assert legal == (STEPS[kind] if actor is Actor.CONTROLLER else set())


@pytest.mark.parametrize("action", ["start", "end"])
def test_the_events_of_a_lease_are_under_way_only_with_their_lease(action: str) -> None:
    entered = {status for status in EventStatus if EVENT.find_entry_row(action, status, EventStatus.IN_PROGRESS)}
    assert entered == ({"UNDONE"} if action == "start" else {"UNDONE", "ERROR"})
    landed = {
        to for to in EventStatus if EVENT.find_ending_row(action, EventStatus.IN_PROGRESS, EventStatus.UNDONE, to)
    }
    assert landed == {"DONE", "ERROR"}


def test_the_nine_statuses_are_stable_or_transitional_as_in_the_document() -> None:
    assert set(LEASE.stable_statuses) == {"PENDING", "ACTIVE", "TERMINATED", "ERROR"}
    assert set(LEASE.transitional_statuses) == {"CREATING", "STARTING", "UPDATING", "TERMINATING", "DELETING"}
    assert len(LeaseStatus) == 9
    assert LEASE.final_statuses == ("TERMINATED",)


# The document's table, copied: lease, reservations, start_lease, end_lease.
DOCUMENT = """
CREATING    | pending                    | UNDONE                 | UNDONE
PENDING     | pending                    | UNDONE                 | UNDONE
STARTING    | pending or active or error | IN_PROGRESS            | UNDONE
ACTIVE      | active                     | DONE                   | UNDONE
TERMINATING | active or deleted or error | DONE                   | IN_PROGRESS
TERMINATED  | deleted                    | DONE                   | DONE
DELETING    | any                        | any                    | any
UPDATING    | any                        | UNDONE or DONE or ERROR | UNDONE or DONE or ERROR
"""


def _words(cell: str, every: type[ReservationStatus] | type[EventStatus]) -> set[str]:
    return set(every) if cell.strip() == "any" else set(cell.strip().split(" or "))


EXPECTED = {
    lease.strip(): (_words(reservations, ReservationStatus), _words(start, EventStatus), _words(end, EventStatus))
    for lease, reservations, start, end in (line.split("|") for line in DOCUMENT.strip().splitlines())
}


def test_the_relationship_table_is_the_documents() -> None:
    assert {lease: tuple(map(set, row)) for lease, row in RELATIONS.items()} == EXPECTED


@every_case("lease", LeaseStatus)
def test_parts_go_with_a_lease_exactly_as_the_relationship_table_says(lease: str) -> None:
    for reservation, start, end in product(ReservationStatus, EventStatus, EventStatus):
        found = describe_contradiction(
            lease, [reservation], {"start_lease": start, "end_lease": end, "before_end_lease": "DONE"}
        )
        reservations, starts, ends = EXPECTED.get(lease, ({reservation}, {start}, {end}))  # ERROR asks for nothing
        assert bool(found) == (not (reservation in reservations and start in starts and end in ends)), found


def test_one_wrong_reservation_among_many_is_found_and_named() -> None:
    events = {"start_lease": "DONE", "before_end_lease": "UNDONE", "end_lease": "UNDONE"}
    assert describe_contradiction("ACTIVE", ["active", "active"], events) == ""
    found = describe_contradiction("ACTIVE", ["active", "error"], events)
    assert found == "a reservation is error; a lease under ACTIVE needs active"


def test_a_lease_without_its_events_is_wrong_and_one_is_not_updated_while_its_end_is_announced() -> None:
    assert describe_contradiction("PENDING", ["pending"], {}) == "start_lease is missing"
    events = {"start_lease": "DONE", "end_lease": "UNDONE", "before_end_lease": "IN_PROGRESS"}
    assert "IN_PROGRESS" in describe_contradiction("UPDATING", ["active"], events)
    assert describe_contradiction("ACTIVE", ["active"], events) == ""
