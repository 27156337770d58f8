"""MCI, SubGroup and VM in the domain: the state tables against the source document."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import product

import pytest

from domain import registry, rendering
from domain.mci.tables import (
    CLOUD_VERB_OF_ACTION,
    MCI,
    RECONCILED_STATUSES,
    STATUS_OF_CLOUD_STATE,
    SURVEYED_STATUSES,
    VM,
    WANTED_STATUS,
    MciPhase,
    VmStatus,
)
from domain.model import ObjectView, Request
from domain.ports import VmState
from domain.statetable import NONE, SAME, Actor, Ruling, StateTable
from starter.reads import object_data
from starter.tui import _object_cells as tui_row
from tests.cases import every_case

pytestmark = pytest.mark.stores("postgres")

# The source document, word for word. It is the oracle: nothing here is derived from our rows.

MATRIX = """
| Current Status | Suspend | Resume | Reboot | Terminate |
|----------------|---------|--------|--------|-----------|
| Running | ✅ | ❌ | ✅ | ✅ |
| Suspended | ❌ | ✅ | ❌ | ✅ |
| Creating | ❌ | ❌ | ❌ | ❌ |
| Terminating | ❌ | ❌ | ❌ | ❌ |
| Terminated | ❌ | ❌ | ❌ | ❌ |
| Failed | ❌ | ❌ | ❌ | ✅ (Force) |
"""

VM_STATUSES = """
| `Creating` | VM is being provisioned | No (Transitional) |
| `Running` | VM is running and accessible | Yes |
| `Suspending` | VM is being suspended | No (Transitional) |
| `Suspended` | VM is suspended (stopped) | Yes |
| `Resuming` | VM is being resumed from suspended state | No (Transitional) |
| `Rebooting` | VM is being rebooted | No (Transitional) |
| `Terminating` | VM is being terminated | No (Transitional) |
| `Terminated` | VM has been terminated | Yes (Final) |
| `Failed` | VM creation or operation failed | Yes (Final) |
| `Undefined` | VM status cannot be determined | Yes |
"""

MCI_STATUSES = """
| `Preparing` | MCI resources are being prepared (VNet, SecurityGroup, SSH Key) | No (Transitional) |
| `Prepared` | MCI resources are prepared, ready for VM provisioning | No (Transitional) |
| `Creating` | VMs are being provisioned | No (Transitional) |
| `Running` | All VMs are running | Yes |
| `Suspending` | VMs are being suspended | No (Transitional) |
| `Suspended` | All VMs are suspended | Yes |
| `Resuming` | VMs are being resumed | No (Transitional) |
| `Rebooting` | VMs are being rebooted | No (Transitional) |
| `Terminating` | VMs are being terminated | No (Transitional) |
| `Terminated` | All VMs are terminated | Yes (Final) |
| `Failed` | MCI creation failed | Yes (Final) |
| `Undefined` | MCI status cannot be determined | Yes |
"""

TARGETS = """
| `Create` | Create new VM(s) | Running |
| `Suspend` | Stop VM(s) without termination | Suspended |
| `Resume` | Start suspended VM(s) | Running |
| `Reboot` | Restart VM(s) | Running |
| `Terminate` | Permanently delete VM(s) | Terminated |
"""

VM_DIAGRAM = """
    [*] --> Creating: Create Action
    Creating --> Running: Success
    Creating --> Failed: Error
    Running --> Suspending: Suspend Action
    Running --> Rebooting: Reboot Action
    Running --> Terminating: Terminate Action
    Suspending --> Suspended: Success
    Suspending --> Failed: Error
    Suspended --> Resuming: Resume Action
    Suspended --> Terminating: Terminate Action
    Resuming --> Running: Success
    Resuming --> Failed: Error
    Rebooting --> Running: Success
    Rebooting --> Failed: Error
    Terminating --> Terminated: Success
    Terminating --> Failed: Error
    Failed --> Terminating: Terminate (Force)
    Terminated --> [*]
"""


CONTROL = ("suspend", "resume", "reboot", "terminate")


def lines(text: str) -> list[list[str]]:
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in text.strip().splitlines()]


def stability(text: str) -> dict[str, str]:
    return {status: stable for status, _, stable in lines(text)}


def cells() -> list[tuple[str, str, str]]:
    heading, _, *rows = lines(MATRIX)
    return [(row[0], heading[n].lower(), row[n]) for row in rows for n in range(1, 5)]


def arrows(text: str) -> set[tuple[str, str]]:
    return {(source, to) for source, to in re.findall(r"(\S+) --> ([^\s:]+)", text)}


# The VM's table.


@every_case(("status", "action", "cell"), cells())
def test_the_vm_table_is_the_documents_matrix(status: str, action: str, cell: str) -> None:
    plain, forced = (VM.judge(status, action, force=force) for force in (False, True))
    if cell == "✅":
        assert plain.ruling is Ruling.GO
    elif cell == "✅ (Force)":
        assert plain.ruling is Ruling.REFUSED
        assert plain.reason == f"{action} is not allowed for VM under {status} without force"
        assert forced.ruling is Ruling.GO
    elif (status, action) == ("Terminated", "terminate"):
        assert plain.ruling is Ruling.ALREADY  # the rules: a success that does nothing
    else:
        assert plain.ruling is Ruling.REFUSED
        assert plain.reason == f"{action} is not allowed for VM under {status}"


def test_the_refusal_reads_as_the_rules_print_it() -> None:
    assert VM.judge("Creating", "suspend").reason == "suspend is not allowed for VM under Creating"


@every_case("action", CONTROL)
@every_case("status", ["Suspending", "Resuming", "Rebooting", "Terminating", "Creating"])
def test_nothing_is_allowed_while_an_action_is_under_way(status: str, action: str) -> None:
    assert VM.judge(status, action).reason == f"{action} is not allowed for VM under {status}"
    assert VM.allowed_actions(status) == ()


@pytest.mark.parametrize("action", CONTROL)
def test_an_undefined_vm_can_only_be_terminated_with_force(action: str) -> None:
    assert VM.judge("Undefined", action).ruling is Ruling.REFUSED
    assert VM.judge("Undefined", "terminate").reason == "terminate is not allowed for VM under Undefined without force"
    assert VM.judge("Undefined", "terminate", force=True).ruling is Ruling.GO


@pytest.mark.parametrize("action", CONTROL)
def test_force_never_revives_what_is_terminated(action: str) -> None:
    ruling = VM.judge("Terminated", action, force=True).ruling
    assert ruling is (Ruling.ALREADY if action == "terminate" else Ruling.REFUSED)


@pytest.mark.parametrize("table", [VM, MCI], ids=["VM", "MCI"])
@pytest.mark.parametrize("force", [False, True], ids=["plain", "force"])
def test_nothing_is_done_to_what_does_not_exist_and_nothing_is_created_twice(table: StateTable, force: bool) -> None:
    for action in CONTROL:
        assert table.judge(NONE, action, force=force).reason == f"there is no such {table.label}"
    for status in table.statuses:
        reason = table.judge(status, "create", force=force).reason
        assert reason == f"{table.label} exists already, under {status}"


def test_the_vms_statuses_are_the_documents_and_as_stable_as_it_says() -> None:
    told = stability(VM_STATUSES)
    assert set(VM.statuses) == set(told) == set(VmStatus)
    assert set(VM.transitional_statuses) == {status for status, word in told.items() if word == "No (Transitional)"}
    assert set(VM.stable_statuses) == {status for status, word in told.items() if word.startswith("Yes")}


def test_the_vms_final_statuses_are_the_documents_but_for_failed_which_force_leaves() -> None:
    told = {status for status, word in stability(VM_STATUSES).items() if word == "Yes (Final)"}
    assert set(VM.final_statuses) == told - {"Failed"} == {"Terminated"}
    assert {row.otherwise for row in VM.rows} - {None, NONE, SAME} == {"Failed"}


def test_the_vms_diagram_is_the_documents_and_undefined_can_be_ended_and_records_removed() -> None:
    ours = arrows(rendering.mermaid_diagram(VM))
    removed = {("Terminated", "Terminating"), ("Terminating", "[*]")}
    assert ours == arrows(VM_DIAGRAM) | {("Undefined", "Terminating")} | removed


def test_every_action_leads_to_the_documents_target_status() -> None:
    told = {action.lower(): target for action, _, target in lines(TARGETS)}
    assert told == {action: status for action, status in WANTED_STATUS.items() if action not in CLOUD_VERB_OF_ACTION}
    assert set(VM.user_actions) == set(told)


@pytest.mark.parametrize("action", [*CONTROL, "delete"])
def test_an_mci_under_way_is_expected_to_become_what_its_vms_become(action: str) -> None:
    told = {action.lower(): target for action, _, target in lines(TARGETS)} | {"delete": "Terminated"}
    for table in (MCI, VM):
        rows = [row for row in table.rows if row.action == action and row.during]
        assert {row.target_status(row.source) for row in rows} == {told[action]}


@pytest.mark.parametrize("kind", ["mci", "vm"])
def test_a_target_action_is_shown_as_the_document_writes_it(kind: str) -> None:
    words = [word for word, _, _ in lines(TARGETS)]
    assert [registry.find_kind(kind).format_target_action(word.lower()) for word in words] == words
    assert registry.find_kind(kind).format_target_action(NONE) == "None"


@pytest.mark.parametrize(("kind", "path"), [("mci", "ns:a:mci:b"), ("vm", "ns:a:mci:b:vm:c")])
def test_lists_and_the_full_screen_show_a_target_action_alike(kind: str, path: str) -> None:
    now = datetime.now(UTC)
    under_way = {"target_action": "suspend", "target_status": "Suspended", "previous_status": "Running"}
    view = ObjectView(
        path=path,
        kind=kind,
        status="Suspending",
        phase="Suspending",
        epoch=1,
        created_at=now,
        changed_at=now,
        **under_way,
    )
    assert object_data(view)["target_action"] == "Suspend"
    assert tui_row(view)[3] == "Suspend"


@pytest.mark.parametrize("status", VM.stable_statuses)
def test_refine_is_refused_for_no_vm_at_rest(status: str) -> None:
    ruling = VM.judge_member(status, "refine").ruling
    assert ruling is (Ruling.GO if status in ("Failed", "Undefined") else Ruling.ALREADY)


@pytest.mark.parametrize(
    ("action", "statuses"), [("refine", "Failed Undefined"), ("delete", " ".join(VM.stable_statuses))]
)
def test_only_the_group_removes_vms_and_only_those_it_should(action: str, statuses: str) -> None:
    for status, force in product(VM.statuses, (False, True)):
        verdict = VM.judge_member(status, action, force)
        assert (verdict.ruling is Ruling.GO) is (status in statuses.split()), status
        assert VM.judge(status, action, Actor.USER).ruling is Ruling.REFUSED


@pytest.mark.parametrize("status", VM.transitional_statuses)
def test_the_cloud_may_find_a_vm_under_way_anywhere_but_failed(status: str) -> None:
    for seen in VM.statuses:
        allowed = VM.judge_step(status, seen, Actor.CLOUD).ruling is not Ruling.REFUSED
        assert allowed is (seen in ("Running", "Suspended", "Terminated", "Undefined")), seen


@pytest.mark.parametrize("status", VM.stable_statuses)
def test_only_the_cloud_corrects_a_vm_at_rest_and_nobody_revives_a_terminated_one(status: str) -> None:
    clear = {"Running", "Suspended", "Terminated", "Undefined"} - {status}
    for seen, actor in product(VM.statuses, Actor):
        allowed = actor is Actor.CLOUD and status != "Terminated" and seen in clear
        assert (VM.judge_step(status, seen, actor).ruling is Ruling.GO) is allowed, (seen, actor)


def test_a_status_read_believes_what_is_terminated_failed_or_suspended_and_a_reconciliation_only_the_first() -> None:
    assert set(VM.statuses) - set(SURVEYED_STATUSES) == {"Terminated", "Failed", "Suspended"}
    assert set(VM.statuses) - set(RECONCILED_STATUSES) == {"Terminated"}


def test_every_clear_answer_of_a_cloud_has_a_status_that_it_may_lead_to() -> None:
    assert STATUS_OF_CLOUD_STATE == {
        VmState.RUNNING: VmStatus.RUNNING,
        VmState.STOPPED: VmStatus.SUSPENDED,
        VmState.TERMINATED: VmStatus.TERMINATED,
    }
    for during, seen in product(VM.transitional_statuses, STATUS_OF_CLOUD_STATE.values()):
        assert VM.can_land("reboot", during, "Running", seen)


@every_case(
    ("action", "came_from", "back"),
    [
        ("create", NONE, "Failed"),
        ("suspend", "Running", "Running"),
        ("resume", "Suspended", "Suspended"),
        ("reboot", "Running", "Running"),
        ("terminate", "Running", "Running"),
        ("terminate", "Suspended", "Suspended"),
        ("terminate", "Failed", "Failed"),
        ("terminate", "Undefined", "Undefined"),
        ("suspend", "Failed", "Failed"),  # forced
    ],
)
def test_a_vm_whose_action_died_goes_back(action: str, came_from: str, back: str) -> None:
    assert VM.recovery_status(action, came_from) == back


# The MCI's table.


def test_the_mcis_statuses_are_among_the_documents_and_as_stable_as_it_says() -> None:
    told = stability(MCI_STATUSES)
    assert set(MCI.statuses) <= set(told)
    assert set(MCI.transitional_statuses) == {status for status in MCI.statuses if told[status] == "No (Transitional)"}
    computed = {"Suspended", "Terminated", "Undefined"}  # shown from the VMs, never stored
    assert computed.isdisjoint(MCI.statuses)
    assert MCI.final_statuses == ()  # Terminated is computed, and force leaves Failed


STEPS = {
    ("Preparing", "Prepared"),
    ("Prepared", "Creating"),
    ("Prepared", NONE),  # withdrawn
    ("Creating", NONE),  # rolled back
}


def test_an_mci_goes_from_preparing_by_prepared_to_creating_and_only_we_move_it() -> None:
    for source, to, actor in product((*MCI.statuses, NONE), (*MCI.statuses, NONE), Actor):
        allowed = actor is Actor.CONTROLLER and (source, to) in STEPS
        assert (MCI.judge_step(source, to, actor).ruling is Ruling.GO) is allowed, (source, to, actor)
    row = MCI.judge(NONE, "create").row
    assert row
    assert (row.during, row.then, row.otherwise) == ("Preparing", "Running", "Failed")


def test_preparing_and_prepared_are_an_mcis_alone() -> None:
    assert set(MciPhase) == set(MCI.statuses) - set(VM.statuses) == {"Preparing", "Prepared"}
    assert set(MciPhase) <= set(MCI.transitional_statuses)


@pytest.mark.parametrize("action", ["scale-out", "scale-in"])
def test_only_an_mci_that_stands_changes_its_size(action: str) -> None:
    for status in MCI.statuses:
        assert (MCI.judge(status, action).ruling is Ruling.GO) is (status == "Running")


@pytest.mark.parametrize("action", CONTROL)
def test_an_mci_that_stands_leaves_the_verdict_to_its_vms(action: str) -> None:
    verdict = MCI.judge("Running", action)
    assert verdict.ruling is Ruling.GO
    assert verdict.row
    assert verdict.row.success_status("Running") == verdict.row.failure_status("Running") == "Running"


@every_case("status", MCI.transitional_statuses)
@every_case("action", CONTROL)
def test_an_mci_under_way_refuses(status: str, action: str) -> None:
    assert MCI.judge(status, action).reason == f"{action} is not allowed for MCI under {status}"


def test_a_failed_mci_can_be_terminated_with_force_only() -> None:
    assert MCI.allowed_actions("Failed") == ("refine", "delete")
    assert MCI.judge("Failed", "terminate").reason == "terminate is not allowed for MCI under Failed without force"
    assert MCI.judge("Failed", "terminate", force=True).ruling is Ruling.GO


def test_action_words_are_taken_in_any_case() -> None:
    assert Request(path="ns:a:mci:w", action="SusPend").action == "suspend"
