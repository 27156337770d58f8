"""The state tables, row by row as in the source document, and the refusal of everything else."""

from __future__ import annotations

from itertools import product

import pytest

from domain import registry
from domain.edge.tables import APP, CLOUDLET, CLUSTER, POLICY, CrmActor, why_changes_refused
from domain.errors import Refused
from domain.model import ActionResult, Outcome
from domain.statetable import NONE, Actor, Ruling, StateTable
from starter.outcomes import outcome_sheet

ACTORS = (*Actor, *CrmActor)

# The source document's tables, typed once more and by hand: (from, actor, to). NotPresent is None here.
CREATE = {
    ("CreateRequested", "CRM", "Creating"),
    ("CreateRequested", "CRM", "Ready"),
    ("CreateRequested", "CRM", "CreateError"),
    ("Creating", "CRM", "Ready"),
    ("Creating", "CRM", "CreateError"),
    ("CreateError", "Controller", "None"),
}
UPDATE = {
    ("UpdateRequested", "CRM", "Updating"),
    ("UpdateRequested", "CRM", "Ready"),
    ("UpdateRequested", "CRM", "UpdateError"),
    ("Updating", "CRM", "Ready"),
    ("Updating", "CRM", "UpdateError"),
    ("UpdateError", "Controller", "Ready"),
}
DELETE = {
    ("DeletePrepare", "Controller", "DeleteRequested"),
    ("DeleteRequested", "CRM", "Deleting"),
    ("DeleteRequested", "CRM", "None"),
    ("DeleteRequested", "CRM", "DeleteError"),
    ("Deleting", "CRM", "None"),
    ("Deleting", "CRM", "DeleteError"),
    ("DeleteError", "Controller", "Ready"),
}
SILENCE = {  # ours: the CRM did not answer in time
    ("CreateRequested", "Controller", "CreateError"),
    ("Creating", "Controller", "CreateError"),
    ("UpdateRequested", "Controller", "UpdateError"),
    ("Updating", "Controller", "UpdateError"),
    ("DeleteRequested", "Controller", "DeleteError"),
    ("Deleting", "Controller", "DeleteError"),
}
INSTANCE = CREATE | UPDATE | DELETE | SILENCE

UPGRADE = {
    ("UpdateRequested", "CRMv1", "Updating"),
    ("UpdateRequested", "Controller", "InitOk"),
    ("UpdateRequested", "CRMv1", "UpdateError"),
    ("Updating", "Controller", "InitOk"),
    ("Updating", "CRMv2", "Ready"),
    ("Updating", "CRMv1", "UpdateError"),
    ("InitOk", "CRMv2", "Ready"),
    ("InitOk", "CRMv1", "UpdateError"),
    ("UpdateError", "CRMv1", "UpdateError"),
    ("UpdateRequested", "Controller", "UpdateError"),  # ours: nobody answered in time
    ("Updating", "Controller", "UpdateError"),
    ("InitOk", "Controller", "UpdateError"),
    ("Ready", "Controller", "UpdateError"),  # ours: it was terminated when CRMv2 had connected
}
BRING_UP = {
    ("Offline", "CRM", "Init"),
    ("Ready", "CRM", "Init"),
    ("Init", "CRM", "Init"),
    ("InitOk", "CRM", "Init"),
    ("Init", "Controller", "InitOk"),
    ("InitOk", "CRM", "Ready"),
    ("InitOk", "Controller", "Offline"),
    ("Ready", "Controller", "Offline"),  # the same disconnect, later or earlier
    ("Init", "Controller", "Offline"),
    ("UnderMaintenance", "CRM", "UnderMaintenance"),
}
STEPS: dict[str, set[tuple[str, str, str]]] = {
    "cluster": INSTANCE,
    "app": INSTANCE,
    "cloudlet": UPGRADE | BRING_UP,
    "policy": set(),
}

# (action, from, while, then, else)
INSTANCE_ACTIONS = {
    ("create", "None", "CreateRequested", "Ready", "CreateError"),
    ("update", "Ready", "UpdateRequested", "Ready", "Ready"),
    ("delete", "Ready", "DeletePrepare", "None", "Ready"),
    ("delete", "CreateError", "DeletePrepare", "None", "CreateError"),
    ("recreate", "Ready", "CreateRequested", "Ready", "CreateError"),
    ("discard", "None", "DeleteRequested", "None", "None"),  # an orphan
}
ACTIONS: dict[str, set[tuple[str, str, str, str, str]]] = {
    "cluster": INSTANCE_ACTIONS,
    "app": INSTANCE_ACTIONS,
    "cloudlet": {
        ("create", "None", "Init", "Ready", "Offline"),
        ("create", "Offline", "Init", "Ready", "Offline"),
        ("create", "InitOk", "Init", "Ready", "Offline"),
        ("upgrade", "Ready", "UpdateRequested", "Ready", "UpdateError"),
        ("repair", "UpdateError", "Init", "Ready", "UpdateError"),
        ("maintenance-start", "Ready", "MaintenanceStart", "UnderMaintenance", "Ready"),
        ("maintenance-end", "UnderMaintenance", "NormalOperationInit", "Ready", "UnderMaintenance"),
        ("rekey", "Ready", "UpdateRequested", "Ready", "Ready"),  # ours: the document knows no tokens
        ("rekey", "Offline", "UpdateRequested", "Offline", "Offline"),
        ("rekey", "InitOk", "UpdateRequested", "InitOk", "InitOk"),
        ("rekey", "UpdateError", "UpdateRequested", "UpdateError", "UpdateError"),
        ("rekey", "UnderMaintenance", "UpdateRequested", "UnderMaintenance", "UnderMaintenance"),
        ("delete", "Ready", "DeleteRequested", "None", "Ready"),
        ("delete", "Offline", "DeleteRequested", "None", "Offline"),
        ("delete", "InitOk", "DeleteRequested", "None", "InitOk"),
        ("delete", "UpdateError", "DeleteRequested", "None", "UpdateError"),
        ("delete", "UnderMaintenance", "DeleteRequested", "None", "UnderMaintenance"),
    },
    "policy": {
        ("create", "None", "Creating", "Active", "Inactive"),
        ("create", "Inactive", "Creating", "Active", "Inactive"),
        ("delete", "Inactive", "Deleting", "None", "Inactive"),
        ("update", "Active", "Updating", "Active", "Active"),
        ("delete", "Active", "Deleting", "None", "Active"),
    },
}
TABLES = [CLUSTER, APP, CLOUDLET, POLICY]


def by_kind(table: StateTable) -> str:
    return table.kind


def every_step(table: StateTable) -> list[tuple[str, str, str]]:
    words = [*map(str, table.statuses), NONE]
    return [(source, str(actor), to) for source, actor, to in product(words, ACTORS, words)]


@pytest.mark.parametrize("table", TABLES, ids=by_kind)
def test_every_row_of_the_document_is_a_step_of_the_table(table: StateTable) -> None:
    for source, actor, to in STEPS[table.kind]:
        assert table.judge_step(source, to, actor).ruling is not Ruling.REFUSED, (source, actor, to)


@pytest.mark.parametrize("table", TABLES, ids=by_kind)
def test_every_step_that_no_row_names_is_refused(table: StateTable) -> None:
    refused = [step for step in every_step(table) if step not in STEPS[table.kind]]
    assert len(refused) > len(STEPS[table.kind])
    for source, actor, to in refused:
        verdict = table.judge_step(source, to, actor)
        assert verdict.ruling is Ruling.REFUSED, (source, actor, to)
        assert source in verdict.reason
        assert to in verdict.reason
        assert actor in verdict.reason


@pytest.mark.parametrize("table", TABLES, ids=by_kind)
def test_every_action_leads_where_the_document_says(table: StateTable) -> None:
    for action, source, during, then, otherwise in ACTIONS[table.kind]:
        row = table.judge(source, action).row
        assert row is not None, (action, source)
        assert (row.during, row.success_status(source), row.failure_status(source)) == (during, then, otherwise)


@pytest.mark.parametrize("table", TABLES, ids=by_kind)
def test_every_action_that_no_row_names_is_refused_to_everybody(table: StateTable) -> None:
    legal = {(action, source) for action, source, *_ in ACTIONS[table.kind]}
    for action, source in product(table.user_actions, [*table.statuses, NONE]):
        for actor in ACTORS:
            allowed = (action, str(source)) in legal and actor == Actor.USER
            assert (table.judge(source, action, actor).ruling is Ruling.GO) is allowed, (action, source, actor)


@pytest.mark.parametrize("table", TABLES, ids=by_kind)
def test_an_unknown_action_is_refused_with_those_that_there_are(table: StateTable) -> None:
    with pytest.raises(Refused, match="unknown action 'explode'") as found:
        table.judge("Ready", "explode")
    assert "create" in found.value.hint


@pytest.mark.parametrize("table", [CLUSTER, APP], ids=by_kind)
def test_an_instance_is_at_rest_only_as_ready_or_after_a_create_that_was_cut_off(table: StateTable) -> None:
    assert {str(word) for word in table.stable_statuses} == {"Ready", "CreateError"}


def test_only_the_actor_of_a_row_may_take_it() -> None:
    assert CLUSTER.judge_step("Creating", "Ready", CrmActor.CRM).ruling is Ruling.GO
    for other in (Actor.USER, Actor.CONTROLLER, CrmActor.V1, CrmActor.V2):
        assert CLUSTER.judge_step("Creating", "Ready", other).ruling is Ruling.REFUSED


@pytest.mark.parametrize("kind", ["cloudlet", "cluster", "app"])
def test_what_is_gone_is_not_present_in_what_people_read(kind: str) -> None:
    found = registry.find_kind(kind)
    assert (found.display_status(NONE), found.display_status("Ready")) == ("NotPresent", "Ready")
    assert registry.find_kind("mci").display_status(NONE) == NONE


def test_the_outcome_of_a_delete_says_not_present() -> None:
    gone = Outcome(path="org:a:cloudlet:b:cluster:c", action="delete", result=ActionResult.SUCCEEDED, status=NONE)
    assert "NotPresent" in str(outcome_sheet(registry.find_kind("cluster"), gone))


def test_a_cloudlet_says_why_it_takes_no_changes_of_instances() -> None:
    upgrade, maintenance = ("UpdateRequested", "Updating"), ("MaintenanceStart", "UnderMaintenance")
    told = {
        "UpdateError": "its upgrade failed (UpdateError)",
        **{status: f"it is being upgraded ({status})" for status in upgrade},
        **{status: f"it is in maintenance ({status})" for status in (*maintenance, "NormalOperationInit")},
        "Offline": "it is Offline: no CRM is connected",
        "Ready": "",
    }
    for status in map(str, CLOUDLET.statuses):
        assert why_changes_refused(status, True) == told.get(status, f"it is not Ready yet ({status})"), status
    assert set(told) < set(map(str, CLOUDLET.statuses))
    assert why_changes_refused("Ready", False) == "its CRM is not connected"
