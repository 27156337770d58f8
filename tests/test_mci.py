"""MCI, SubGroup and VM in the domain: the tables against the source document, the computed status, the request."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from domain import registry, rendering
from domain.errors import Category, Refused
from domain.limits import CLOUDS, MAX_SUBGROUPS, MAX_VMS_PER_MCI, Caps
from domain.machine import NONE, Actor, Ruling
from domain.mci import (
    MCI,
    OBSERVED,
    ORDERS,
    TIE_ORDER,
    VM,
    WANTED,
    MciSpec,
    Phase,
    Scale,
    Status,
    aggregate,
    status_count,
)
from domain.mci.messages import wants
from domain.mci.spec import births
from domain.mci.tables import ASKED, RECONCILED
from domain.model import Request
from domain.ports import VmState

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

COUNTS = """
    CountTotal CountCreating CountRunning CountFailed CountSuspended CountRebooting CountTerminated CountSuspending
    CountResuming CountTerminating CountUndefined
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


@pytest.mark.parametrize(("status", "action", "cell"), cells())
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


@pytest.mark.parametrize("action", CONTROL)
@pytest.mark.parametrize("status", ["Suspending", "Resuming", "Rebooting", "Terminating", "Creating"])
def test_nothing_is_allowed_while_an_action_is_under_way(status: str, action: str) -> None:
    assert VM.judge(status, action).reason == f"{action} is not allowed for VM under {status}"
    assert VM.allowed(status) == ()


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
def test_nothing_is_done_to_what_does_not_exist_and_nothing_is_created_twice(table: Any, force: bool) -> None:
    for action in CONTROL:
        assert table.judge(NONE, action, force=force).reason == f"there is no such {table.label}"
    for status in table.statuses:
        reason = table.judge(status, "create", force=force).reason
        assert reason == f"{table.label} exists already, under {status}"


def test_the_vms_statuses_are_the_documents_and_as_stable_as_it_says() -> None:
    told = stability(VM_STATUSES)
    assert set(VM.statuses) == set(told) == set(Status)
    assert set(VM.transitional) == {status for status, word in told.items() if word == "No (Transitional)"}
    assert set(VM.stable) == {status for status, word in told.items() if word.startswith("Yes")}


def test_the_vms_final_statuses_are_the_documents_but_for_failed_which_force_leaves() -> None:
    told = {status for status, word in stability(VM_STATUSES).items() if word == "Yes (Final)"}
    assert set(VM.final) == told - {"Failed"} == {"Terminated"}
    assert VM.failure == ("Failed",)


def test_the_vms_diagram_is_the_documents_and_undefined_can_be_ended_and_records_removed() -> None:
    ours = arrows(rendering.mermaid(VM))
    removed = {("Terminated", "Terminating"), ("Terminating", "[*]")}
    assert ours == arrows(VM_DIAGRAM) | {("Undefined", "Terminating")} | removed


def test_every_action_leads_to_the_documents_target_status() -> None:
    told = {action.lower(): target for action, _, target in lines(TARGETS)}
    assert told == {action: status for action, status in WANTED.items() if action not in ORDERS}
    assert set(VM.actions) == set(told)


@pytest.mark.parametrize(("action", "statuses"), [("refine", "Failed Undefined"), ("delete", " ".join(VM.stable))])
def test_only_the_group_removes_vms_and_only_those_it_should(action: str, statuses: str) -> None:
    for status, force in product(VM.statuses, (False, True)):
        verdict = VM.judge_member(status, action, force)
        assert (verdict.ruling is Ruling.GO) is (status in statuses.split()), status
        assert VM.judge(status, action, Actor.USER).ruling is Ruling.REFUSED


@pytest.mark.parametrize("status", VM.transitional)
def test_the_cloud_may_find_a_vm_under_way_anywhere_but_failed(status: str) -> None:
    for seen in VM.statuses:
        allowed = VM.step(status, seen, Actor.CLOUD).ruling is not Ruling.REFUSED
        assert allowed is (seen in ("Running", "Suspended", "Terminated", "Undefined")), seen


@pytest.mark.parametrize("status", VM.stable)
def test_only_the_cloud_corrects_a_vm_at_rest_and_nobody_revives_a_terminated_one(status: str) -> None:
    clear = {"Running", "Suspended", "Terminated", "Undefined"} - {status}
    for seen, actor in product(VM.statuses, Actor):
        allowed = actor is Actor.CLOUD and status != "Terminated" and seen in clear
        assert (VM.step(status, seen, actor).ruling is Ruling.GO) is allowed, (seen, actor)


def test_a_status_read_believes_what_is_terminated_failed_or_suspended_and_a_reconciliation_only_the_first() -> None:
    assert set(VM.statuses) - set(ASKED) == {"Terminated", "Failed", "Suspended"}
    assert set(VM.statuses) - set(RECONCILED) == {"Terminated"}


def test_every_clear_answer_of_a_cloud_has_a_status_that_it_may_lead_to() -> None:
    assert OBSERVED == {
        VmState.RUNNING: Status.RUNNING,
        VmState.STOPPED: Status.SUSPENDED,
        VmState.TERMINATED: Status.TERMINATED,
    }
    for during, seen in product(VM.transitional, OBSERVED.values()):
        assert VM.lands("reboot", during, "Running", seen)


@pytest.mark.parametrize(
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
    assert VM.abandoned(action, came_from) == back


# The MCI's table.


def test_the_mcis_statuses_are_among_the_documents_and_as_stable_as_it_says() -> None:
    told = stability(MCI_STATUSES)
    assert set(MCI.statuses) <= set(told)
    assert set(MCI.transitional) == {status for status in MCI.statuses if told[status] == "No (Transitional)"}
    computed = {"Suspended", "Terminated", "Undefined"}  # shown from the VMs, never stored
    assert computed.isdisjoint(MCI.statuses)
    assert MCI.final == ()  # Terminated is computed, and force leaves Failed


STEPS = {
    ("Preparing", "Prepared"),
    ("Prepared", "Creating"),
    ("Prepared", NONE),  # withdrawn
    ("Creating", NONE),  # rolled back
}


def test_an_mci_goes_from_preparing_by_prepared_to_creating_and_only_we_move_it() -> None:
    for source, to, actor in product((*MCI.statuses, NONE), (*MCI.statuses, NONE), Actor):
        allowed = actor is Actor.CONTROLLER and (source, to) in STEPS
        assert (MCI.step(source, to, actor).ruling is Ruling.GO) is allowed, (source, to, actor)
    row = MCI.judge(NONE, "create").row
    assert row
    assert (row.during, row.then, row.otherwise) == ("Preparing", "Running", "Failed")


def test_preparing_and_prepared_are_an_mcis_alone() -> None:
    assert set(Phase) == set(MCI.statuses) - set(VM.statuses) == {"Preparing", "Prepared"}
    assert set(Phase) <= set(MCI.transitional)


@pytest.mark.parametrize("action", ["scale-out", "scale-in"])
def test_only_an_mci_that_stands_changes_its_size(action: str) -> None:
    for status in MCI.statuses:
        assert (MCI.judge(status, action).ruling is Ruling.GO) is (status == "Running")


@pytest.mark.parametrize("action", CONTROL)
def test_an_mci_that_stands_leaves_the_verdict_to_its_vms(action: str) -> None:
    verdict = MCI.judge("Running", action)
    assert verdict.ruling is Ruling.GO
    assert verdict.row
    assert verdict.row.success("Running") == verdict.row.failure("Running") == "Running"


@pytest.mark.parametrize("status", MCI.transitional)
@pytest.mark.parametrize("action", CONTROL)
def test_an_mci_under_way_refuses(status: str, action: str) -> None:
    assert MCI.judge(status, action).reason == f"{action} is not allowed for MCI under {status}"


def test_a_failed_mci_can_be_terminated_with_force_only() -> None:
    assert MCI.allowed("Failed") == ("refine", "delete")
    assert MCI.judge("Failed", "terminate").reason == "terminate is not allowed for MCI under Failed without force"
    assert MCI.judge("Failed", "terminate", force=True).ruling is Ruling.GO


def test_action_words_are_taken_in_any_case() -> None:
    assert Request(path="ns:a:mci:w", action="SusPend").action == "suspend"


# The status that is computed.


@pytest.mark.parametrize(
    ("counts", "shown"),
    [
        ({"Running": 5}, "Running:5 (R:5/5)"),
        ({"Running": 3, "Suspended": 2}, "Partial-Running:3 (R:3/5)"),
        ({"Suspended": 4, "Running": 1}, "Partial-Suspended:4 (R:1/5)"),
        ({"Terminated": 5}, "Terminated:5 (R:0/5)"),
        ({"Running": 10}, "Running:10 (R:10/10)"),
        ({"Suspended": 6, "Running": 4}, "Partial-Suspended:6 (R:4/10)"),
        ({"Failed": 2}, "Failed:2 (R:0/2)"),
        ({"Failed": 1, "Running": 2}, "Partial-Running:2 (R:2/3)"),
        ({"Running": 1, "Sleepwalking": 2}, "Partial-Undefined:2 (R:1/3)"),
        ({"Sleepwalking": 1, "Undefined": 1, "": 1}, "Undefined:3 (R:0/3)"),
        ({"Running": 2, "Failed": 0}, "Running:2 (R:2/2)"),
    ],
)
def test_the_status_of_an_mci_counts_its_vms(counts: dict[str, int], shown: str) -> None:
    assert aggregate("Running", counts) == shown


TIES = [
    *("Failed", "Suspended", "Running", "Terminated", "Creating"),
    *("Suspending", "Resuming", "Rebooting", "Terminating", "Undefined"),
]


def test_the_tie_order_is_the_rules_and_leaves_nothing_out() -> None:
    assert list(TIE_ORDER) == TIES
    assert set(TIES) == set(Status)


@pytest.mark.parametrize(("winner", "loser"), [(a, b) for n, a in enumerate(TIES) for b in TIES[n + 1 :]])
def test_a_tie_goes_to_the_earlier(winner: str, loser: str) -> None:
    for counts in ({winner: 2, loser: 2}, {loser: 2, winner: 2}):
        assert aggregate("Running", counts).startswith(f"Partial-{winner}:2 (R:")


@pytest.mark.parametrize("phase", ["Preparing", "Prepared", "Creating", "Failed"])
def test_without_vms_the_phase_stands_bare(phase: str) -> None:
    assert aggregate(phase, {}) == phase
    assert aggregate(phase, {"Running": 0}) == phase


def test_an_mci_without_vms_that_is_past_its_creation_is_empty() -> None:
    assert aggregate("Running", {}) == "Empty"


def test_a_create_in_which_every_vm_failed_is_bare_failed() -> None:
    assert aggregate("Failed", {"Failed": 3}) == "Failed"
    assert aggregate("Failed", {"Failed": 2, "Terminated": 1}) == "Partial-Failed:2 (R:0/3)"


words = st.one_of(st.sampled_from(TIES), st.text(max_size=12))


@settings(deadline=None)
@given(phase=st.sampled_from(MCI.statuses), counts=st.dictionaries(words, st.integers(0, 50), max_size=8))
def test_counts_always_add_up(phase: str, counts: dict[str, int]) -> None:
    total = sum(counts.values())
    info = status_count(counts)
    assert info["countTotal"] == total == sum(number for name, number in info.items() if name != "countTotal")
    shown = aggregate(phase, counts)
    if shown in (phase, "Empty"):
        assert total == 0 or (phase == "Failed" and info["countFailed"] == total)
        return
    match = re.fullmatch(r"(Partial-)?(\w+):(\d+) \(R:(\d+)/(\d+)\)", shown)
    assert match
    partial, dominant, number, running, of = match.groups()
    assert (int(running), int(of)) == (counts.get("Running", 0), total)
    assert int(number) == info[f"count{dominant}"] == max(info[f"count{status}"] for status in TIES)
    assert bool(partial) == (int(number) < total)


def test_the_counts_are_the_documents_fields() -> None:
    told = {name[0].lower() + name[1:] for name in COUNTS.split()}
    assert set(status_count({})) == told


# The request.


def group(**changes: Any) -> dict[str, Any]:
    return {"name": "front", "subGroupSize": 2, "csp": "aws", "region": "eu-1"} | changes


def spec(*groups: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"subGroups": list(groups) or [group()]} | changes


def test_vms_are_named_after_their_subgroup_and_counted_from_one() -> None:
    asked = MciSpec.model_validate(spec(group(label={"tier": "web"}), group(name="db", subGroupSize=1, csp="gcp")))
    born = [vm for each in asked.subGroups for vm in births("ns:a:mci:w", each, 1, each.subGroupSize)]
    assert [(each.path, each.kind, each.placement) for each in born] == [
        ("ns:a:mci:w:vm:front-1", "vm", "aws/eu-1"),
        ("ns:a:mci:w:vm:front-2", "vm", "aws/eu-1"),
        ("ns:a:mci:w:vm:db-1", "vm", "gcp/eu-1"),
    ]
    assert born[0].spec == {
        "subGroup": "front",
        "specId": "small",
        "imageId": "ubuntu-24.04",
        "label": {"tier": "web"},
    }


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ({}, "subGroups: Field required"),
        (spec(subGroups=[]), "at least 1 item"),
        (spec(group(subGroupSize=0)), "greater than or equal to 1"),
        (spec(group(subGroupSize=-1)), "greater than or equal to 1"),
        (spec(group(subGroupSize=10**9)), "less than or equal to 20000"),
        (spec(group(subGroupSize="many")), "valid integer"),
        (spec(group(subGroupSize=1.5)), "integer"),
        (spec(group(csp="moon")), "unknown cloud 'moon'; clouds are: aws, azure"),
        (spec(group(csp="x" * 5_000)), "unknown cloud"),
        (spec(group(name="../x")), "bad name"),
        (spec(group(name="a:b")), "bad name"),
        (spec(group(region="eu 1")), "bad name"),
        (spec(group(name="x" * 62, subGroupSize=10)), "is too long: VMs are named"),
        (spec(group(colour="red")), "subGroups.0.colour: Extra inputs are not permitted"),
        (spec(group(), flavour="sweet"), "flavour: Extra inputs are not permitted"),
        (spec(group(), group()), "subgroup names must differ: front occurs more than once"),
        (spec(group(subGroupSize=15_000), group(name="b", subGroupSize=15_000)), "30000 VMs are too many"),
        (spec(*(group(name=f"g{n}", subGroupSize=1) for n in range(MAX_SUBGROUPS + 1))), "at most 500 items"),
        (spec(group(label={"": "x"})), "at least 1 character"),
        (spec(group(label={str(n): "x" for n in range(51)})), "at most 50 items"),
        (spec(description="x" * 501), "at most 500 characters"),
        ({"subGroups": "front"}, "valid list"),
    ],
)
def test_a_request_that_is_wrong_in_itself_is_refused_and_says_where(bad: dict[str, Any], told: str) -> None:
    with pytest.raises(Refused) as caught:
        registry.parse_spec(Request(path="ns:a:mci:w", action="create", spec=bad))
    assert caught.value.category is Category.INVALID
    assert told in caught.value.message
    assert len(caught.value.message) < 2_000


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (spec(group(csp=None)), "say where: a connectionName, or csp and region"),
        (spec(group(region=None)), "say where: a connectionName, or csp and region"),
        (spec(group(connectionName="a b")), "bad name"),
        (spec(policyOnPartialFailure="shrug"), "'continue', 'rollback' or 'refine'"),
        (spec(option="wait"), "'' or 'hold'"),
    ],
)
def test_where_and_how_must_be_said_in_known_words(bad: dict[str, Any], told: str) -> None:
    with pytest.raises(Refused, match=told):
        registry.parse_spec(Request(path="ns:a:mci:w", action="create", spec=bad))


def test_a_connection_stands_for_a_cloud_and_a_region() -> None:
    asked = MciSpec.model_validate(spec({"name": "a", "connectionName": "seoul"}, group()))
    with pytest.raises(Refused, match="nobody has looked up the connection seoul"):
        wants(asked)
    found = asked.located({"seoul": ("aws", "ap-northeast-2")})
    assert [each.place for each in found.subGroups] == ["aws/ap-northeast-2", "aws/eu-1"]


def test_what_is_wanted_is_gathered_by_place() -> None:
    groups = (group(), group(name="b", specId="large"), group(name="c", csp="gcp", imageId="debian-12"))
    first, second = wants(MciSpec.model_validate(spec(*groups)))
    assert (first.place, first.specs, first.images) == ("aws/eu-1", ["large", "small"], ["ubuntu-24.04"])
    assert (second.place, second.specs, second.images) == ("gcp/eu-1", ["small"], ["debian-12"])


@pytest.mark.parametrize(
    "bad", [{}, {"subGroup": "a", "count": 0}, {"subGroup": "a", "count": 20_001}, {"subGroup": ""}]
)
def test_a_change_of_size_by_nothing_or_by_too_much_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="the spec is not valid"):
        registry.parse_spec(Request(path="ns:a:mci:w", action="scale-out", spec=bad))
    assert Scale(subGroup="a").count == 1


def test_the_largest_request_is_taken() -> None:
    asked = MciSpec.model_validate(spec(group(subGroupSize=MAX_VMS_PER_MCI)))
    assert len(list(births("ns:a:mci:w", asked.subGroups[0], 1, asked.size))) == 20_000


def test_a_spec_for_an_action_that_takes_none_is_refused() -> None:
    with pytest.raises(Refused, match="suspend takes no spec"):
        registry.parse_spec(Request(path="ns:a:mci:w", action="suspend", spec=spec()))
    assert registry.parse_spec(Request(path="ns:a:mci:w", action="suspend")) is None


def test_a_single_vm_cannot_be_created() -> None:
    with pytest.raises(Refused, match="unknown action 'create' for VM"):
        registry.parse_spec(Request(path="ns:a:mci:w:vm:x", action="create", spec={}))


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("ns:a:pod:w", "unknown kind 'pod'"),
        ("mci:w", "does not name"),
        ("ns:a:mci:w:mci:v", "does not name"),
        ("web", "bad path 'web'"),
        ("", "bad path ''"),
    ],
)
def test_a_path_of_no_known_kind_is_refused(path: str, told: str) -> None:
    with pytest.raises(Refused, match=told):
        registry.kind_at(path)


def test_the_verbs_of_each_kind_are_actions_of_its_table() -> None:
    for kind in registry.KINDS.values():
        assert {verb.action for verb in kind.verbs} <= set(kind.table.actions)
        assert kind.scope[-1] == kind.name


def test_a_spec_cannot_be_changed_behind_our_back() -> None:
    asked = MciSpec.model_validate(spec())
    with pytest.raises(ValidationError, match="frozen"):
        asked.description = "other"  # type: ignore[misc]


# Limits, table in the document and in the rules.


@pytest.mark.parametrize(
    ("csp", "regions", "vms"),
    [
        ("aws", 10, 30),
        ("azure", 8, 25),
        ("gcp", 12, 35),
        ("ncp", 3, 15),
        ("alibaba", 6, 20),
        ("tencent", 6, 20),
        ("nhn", 5, 20),
        ("openstack", 5, 15),
        ("other", 10, 30),
    ],
)
def test_the_caps_of_each_cloud(csp: str, regions: int, vms: int) -> None:
    assert CLOUDS[csp] == Caps(regions, vms)


@settings(deadline=None)
@given(regions=st.integers(1, 50), vms=st.integers(1, 50), of=st.integers(1, 10))
def test_the_shares_of_several_workers_add_up_to_the_caps(regions: int, vms: int, of: int) -> None:
    shares = [Caps(regions, vms).share(part, of) for part in range(1, of + 1)]
    assert all(share.regions >= 1 and share.vms >= 1 for share in shares)
    assert sum(share.regions for share in shares) == max(regions, of)  # more than the cap only if nobody may starve
    assert sum(share.vms for share in shares) == max(vms, of)
