"""What a request may do, judged by the tables of its object and its members: no store is needed for it."""

from __future__ import annotations

from typing import NoReturn

import pytest

from domain import registry
from domain.errors import Category, Refused
from domain.judging import AdmissionPlan, ObjectFacts, plan_action
from domain.model import Request
from domain.statetable import NONE

WEB = "ns:default:mci:web"
MACHINE = "account:acme:cloudspace:dev:machine:db"


def plan(path: str, action: str, status: str, **members: int) -> AdmissionPlan:
    asked = registry.resolve_request(Request(path=path, action=action))
    return plan_action(asked, ObjectFacts(status, {}, lambda: members))


def refusal(path: str, action: str, status: str, **members: int) -> Refused:
    with pytest.raises(Refused) as caught:
        plan(path, action, status, **members)
    return caught.value


def never_counted() -> NoReturn:
    raise AssertionError("its members are locked for nothing")


def test_members_that_may_not_go_are_left_out_and_counted() -> None:
    found = plan(WEB, "suspend", "Running", Running=2, Suspended=1)
    assert found.row
    assert (found.row.action, found.came_from, found.skipped) == ("suspend", "Running", {"Suspended": 1})
    assert {status: row.during for status, row in found.members.items()} == {"Running": "Suspending"}


def test_a_group_none_of_whose_members_may_go_is_refused_by_their_table() -> None:
    refused = refusal(WEB, "suspend", "Running", Suspended=3)
    assert refused.category is Category.NOT_ALLOWED
    assert refused.message == "suspend is not allowed for VM under Suspended (3 of them)"
    assert refused.hint == "allowed now: resume, terminate"


def test_a_group_that_its_own_table_refuses_is_shown_as_readers_see_it() -> None:
    refused = refusal(WEB, "suspend", "Failed", Running=2, Suspended=1)
    assert refused.message == "suspend is not allowed for MCI under Partial-Running:2 (R:2/3)"
    assert refused.hint == f"{WEB} is Partial-Running:2 (R:2/3); allowed now: delete"


def test_a_group_without_members_has_nothing_to_suspend() -> None:
    assert refusal(WEB, "suspend", "Running").message == f"{WEB} has no VM to suspend"


@pytest.mark.parametrize(("path", "action", "status"), [(f"{WEB}:vm:a", "resume", "Suspended"), (WEB, "resume", NONE)])
def test_members_are_counted_only_for_a_group_that_is_there(path: str, action: str, status: str) -> None:
    asked = registry.resolve_request(Request(path=path, action=action))
    if status == NONE:
        with pytest.raises(Refused, match=f"there is no such MCI: {WEB}") as caught:
            plan_action(asked, ObjectFacts(status, {}, never_counted))
        assert (caught.value.category, caught.value.hint) == (
            Category.NOT_FOUND,
            "see what there is: starter list mci",
        )
    else:
        assert plan_action(asked, ObjectFacts(status, {}, never_counted)).row


def test_a_creation_of_what_is_there_is_told_to_take_another_name() -> None:
    refused = refusal("account:acme", "create", "CONFIRMED")
    assert refused.message == "account exists already, under CONFIRMED"
    assert refused.hint.startswith("take another name, or act on this one: account:acme is CONFIRMED; allowed now: ")


def test_a_hidden_action_that_must_queue_is_admitted_in_a_status_that_refuses_it() -> None:
    assert refusal(MACHINE, "migrate", "DELETED").category is Category.NOT_ALLOWED
    asked = registry.resolve_request(Request(path=MACHINE, action="migrate"))
    found = plan_action(asked, ObjectFacts("DELETED", {}, never_counted), must_queue=True)
    assert found.row
    assert (found.row.action, found.came_from) == ("migrate", "DELETED")
