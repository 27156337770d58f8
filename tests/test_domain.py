"""Small decisions of domain/ that no other pure test takes from both sides."""

from __future__ import annotations

import base64
from contextlib import nullcontext
from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from domain import registry
from domain.access import AccessPolicy, Subject
from domain.edge.proofs import KEY_BYTES, text_to_sign
from domain.edge.specs import KeySpec
from domain.errors import Category, Refused, format_count
from domain.exposure import READ
from domain.faults import Fault
from domain.healing import ANY_ACTION, DEFAULT_LIMIT_SECONDS, action_limit_seconds
from domain.machines.orders import _RELATED_STAGES
from domain.machines.rules import (
    check_another_node_enabled,
    check_disk_for_machine,
    check_image_usable,
    check_machine_for_disk,
    check_node_has_room,
)
from domain.machines.sizes import SIZES
from domain.machines.specs import NewMachineSpec
from domain.mci.messages import SurveyRequest
from domain.mci.specs import SubGroup
from domain.mci.tables import VM as VM_TABLE
from domain.message import CHILD_PROOF
from domain.model import BeginRequest, Request
from domain.requests import is_asked_by_parent, request_as_signed
from domain.services.definition import SecretReference
from domain.simulated import check_no_place_simulated, is_simulated_place
from domain.statetable import Ruling
from tests.cases import every_case

MCI, VM = "ns:default:mci:web", "ns:default:mci:web:vm:a-1"
DISK, MACHINE, OTHER = "cloudspace:c:disk:d", "cloudspace:c:machine:m", "cloudspace:c:machine:n"
POLICY = AccessPolicy.model_validate(
    {
        "roles": {
            "operator": {"kinds": ["*"], "actions": ["*"]},
            "web": {"kinds": ["*"], "actions": ["suspend"], "paths": [MCI]},
            "both": {"kinds": ["mci"], "actions": ["*"], "paths": ["ns:default", "ns:default:mci:db", "ns:other"]},
        },
        "users": {"ann": ["operator"], "bob": ["web"], "eve": ["operator"], "kim": ["both"]},
        "groups": {"night": {"roles": ["operator"], "members": ["noor"]}},
        "deny": [{"who": ["eve"], "actions": ["terminate"]}, {"who": ["*"], "actions": ["delete"], "paths": [MCI]}],
    }
)
# Who, what, where: whether the policy allows it.
JUDGED = {
    "ann terminates": ("ann", "terminate", MCI, True),
    "nobody deletes web": ("ann", "delete", MCI, False),
    "another one is deleted": ("ann", "delete", "ns:default:mci:db", True),
    "eve is denied": ("eve", "terminate", MCI, False),
    "eve may do the rest": ("eve", "suspend", MCI, True),
    "bob suspends below": ("bob", "suspend", VM, True),
    "bob may not elsewhere": ("bob", "suspend", "ns:default:mci:db", False),
    "bob has one action": ("bob", "reboot", MCI, False),
    "bob reads what his role is about": ("bob", READ, VM, True),
    "bob reads nothing else": ("bob", READ, "ns:default:mci:db", False),
    "a member of a group": ("noor", "terminate", MCI, True),
    "somebody unknown": ("zoe", "suspend", MCI, False),
}


@every_case("name", JUDGED)
def test_a_policy_is_judged_by_roles_after_its_denials(name: str) -> None:
    who, verb, path, allowed = JUDGED[name]
    assert POLICY.is_allowed(Subject(who), verb, path) == allowed


def test_readers_are_shown_the_paths_of_their_roles() -> None:
    shown = {
        who: (POLICY.readable_paths(Subject(who), ""), POLICY.readable_paths(Subject(who), VM))
        for who in ("ann", "bob", "kim", "zoe")
    }
    assert shown == {
        "ann": ([""], [VM]),
        "bob": ([MCI], [VM]),
        "kim": (["ns:default", "ns:other"], [VM]),
        "zoe": ([], []),
    }


def test_nothing_is_hidden_only_from_those_whom_no_denial_and_no_role_narrows() -> None:
    free = POLICY.model_copy(update={"deny": []})
    assert [free.can_read_everything(Subject(who)) for who in ("ann", "bob", "kim", "zoe")] == [True, *[False] * 3]
    assert not POLICY.can_read_everything(Subject("ann")), "a denial for a path may hide something"
    for kinds, hidden in ((["*"], False), (["vm"], True)):
        denial = {"who": ["ann"], "actions": ["terminate"], "kinds": kinds}
        denying = AccessPolicy.model_validate({**POLICY.model_dump(), "deny": [denial]})
        assert denying.can_read_everything(Subject("ann")) is not hidden, "a denial for a kind may hide it"


def test_the_nearest_limit_of_an_action_is_taken() -> None:
    limits = {"mci.create": 1.0, "mci": 2.0, ANY_ACTION: 3.0}
    assert action_limit_seconds(limits, MCI, "create") == 1
    assert action_limit_seconds(limits, MCI, "suspend") == 2
    assert action_limit_seconds(limits, VM, "suspend") == 3
    assert action_limit_seconds({}, VM, "suspend") == DEFAULT_LIMIT_SECONDS


def test_a_public_key_has_its_length() -> None:
    good = base64.b64encode(bytes(KEY_BYTES)).decode()
    assert KeySpec(key=good).key == good
    for wrong in (base64.b64encode(bytes(KEY_BYTES - 1)).decode(), "no base64"):
        with pytest.raises(ValidationError, match="bytes in base64"):
            KeySpec(key=wrong)


def test_a_crm_signs_what_every_transport_keeps() -> None:
    full = {
        "state": "Ready",
        "parts": ({"name": "a", "size": 2.0, "more": []}, {"name": "b"}),
        "note": "",
        "proof": "x",
    }
    sent = {"state": "Ready", "parts": [{"name": "a", "size": 2, "more": None}, {"name": "b"}], "path": "p"}
    assert text_to_sign("s", "p", full) == text_to_sign("s", "p", sent)
    assert '"parts":[{"name":"a","size":2},{"name":"b"}]' in text_to_sign("s", "p", full)
    assert text_to_sign("s", "p", {"size": 2.5}) != text_to_sign("s", "p", {"size": 2})


@pytest.mark.parametrize(
    ("reconcile", "dry_run", "verb"),
    [(False, False, READ), (False, True, READ), (True, True, READ), (True, False, "reconcile")],
)
def test_a_survey_that_changes_nothing_is_a_read(reconcile: bool, dry_run: bool, verb: str) -> None:
    order = SurveyRequest(path=MCI, reconcile=reconcile, dry_run=dry_run)
    assert order.verb_to_authorize("reconcile") == verb


def test_what_is_simulated_is_known_by_its_place_or_its_role() -> None:
    assert is_simulated_place("aws/eu-central-1@simulated")
    assert not is_simulated_place("aws/eu-central-1@aws")
    assert not is_simulated_place("")
    check_no_place_simulated(["aws/eu-central-1@aws"])
    with pytest.raises(Refused, match="is simulated"):
        check_no_place_simulated(["aws/eu-central-1@aws", "gcp/europe-west3@simulated"])
    machine = registry.KINDS["machine"]
    assert machine.has_simulated_provider({}, "")
    assert not machine.has_simulated_provider({}, "", [machine.backend_role])
    assert not registry.KINDS["mci"].has_simulated_provider({}, "")
    reservation = registry.KINDS["reservation"]
    assert reservation.has_simulated_provider({"resource_type": "physical:host"}, "")
    assert not reservation.has_simulated_provider({"resource_type": "mci"}, "")  # it is as real as its VMs


# Action, the disk's status, the machine that has it: what is refused.
DISKS = {
    "a new one": ("add-disk", None, "", ""),
    "one that was destroyed": ("add-disk", "DESTROYED", "", ""),
    "one that exists": ("add-disk", "CREATED", "", "exists already"),
    "attach a free one": ("attach-disk", "CREATED", "", ""),
    "attach what is attached": ("attach-disk", "ASSIGNED", OTHER, f"is ASSIGNED, attached to {OTHER}"),
    "detach what is attached": ("detach-disk", "ASSIGNED", MACHINE, ""),
    "detach a free one": ("detach-disk", "CREATED", "", f"disk {DISK} is CREATED"),
    "detach another's": ("detach-disk", "ASSIGNED", OTHER, OTHER),
    "none": ("attach-disk", None, "", "there is no such disk"),
}


@every_case("name", DISKS)
def test_a_disk_must_be_where_the_action_of_a_machine_needs_it(name: str) -> None:
    action, status, of, refusal = DISKS[name]
    with pytest.raises(Refused) if refusal else nullcontext() as refused:
        check_disk_for_machine(action, DISK, status, of, MACHINE)
    if refused:
        assert refusal in str(refused.value)
        assert ("attached to" in str(refused.value)) == bool(of)


def test_a_subgroup_has_a_place_when_its_connection_was_looked_up() -> None:
    assert SubGroup(name="a", csp="aws", region="eu-central-1", provider="aws").place == "aws/eu-central-1@aws"
    for told in ({"csp": "aws"}, {"region": "eu-central-1"}, {}):
        with pytest.raises(Refused) as refused:
            _ = SubGroup(name="a", connectionName="home", **told).place
        assert refused.value.category is Category.INVALID


def test_a_secret_has_one_source() -> None:
    assert SecretReference(file="db").env is None
    assert SecretReference(env="DB").file is None
    for told in ({}, {"file": "db", "env": "DB"}):
        with pytest.raises(ValidationError, match="one of the two"):
            SecretReference.model_validate(told)


def test_a_fault_matches_a_vm_by_its_name_or_its_path() -> None:
    matched = {
        vm: Fault(kind="fail", verb="reboot", vm=vm).matches("reboot", "aws/eu-central-1", VM)
        for vm in ("*", "a-1", "a-*", VM, "ns:default:*", "b-1", "ns:other:*")
    }
    assert [vm for vm, matches in matched.items() if not matches] == ["b-1", "ns:other:*"]


# The node's status, its room, and where the machine is: what is wrong with that.
PLACED: dict[str, tuple[str | None, int, str, str]] = {
    "room": ("ENABLED", 8, "", ""),
    "just enough room": ("ENABLED", 4, "n2", ""),
    "no such node": (None, 8, "", "there is no node n1"),
    "there already": ("ENABLED", 8, "n1", "on node n1 already"),
    "out of use": ("MAINTENANCE", 8, "n2", "n1 is MAINTENANCE"),
    "full": ("ENABLED", 3, "", "n1 is full: 3 GiB are free, 4 are needed"),
    "more than full": ("ENABLED", -2, "", "n1 is full: 0 GiB are free"),
}


@every_case("name", PLACED)
def test_a_machine_is_placed_on_another_node_in_use_that_has_room(name: str) -> None:
    status, room, here, wrong = PLACED[name]
    with pytest.raises(Refused, match=wrong) if wrong else nullcontext():
        check_node_has_room("n1", status, room, 4, here)


def test_a_node_is_emptied_only_if_there_is_another_one_in_use() -> None:
    check_another_node_enabled("n1", ["n1", "n2"], "maintenance")
    for enabled in ([], ["n1"]):
        with pytest.raises(Refused, match="no other enabled node"):
            check_another_node_enabled("n1", enabled, "maintenance")


def test_a_request_is_judged_as_it_was_signed() -> None:
    """With the hash of the spec that was sent; without one, with the spec itself."""
    request = Request(path=MCI, action="create", spec={"size": 1})
    claim = BeginRequest(request=request, run="r", at=datetime.now(UTC))
    assert request_as_signed(claim).content == request.signed_content()
    hashed = request_as_signed(claim.model_copy(update={"spec_digest": "as sent"}))
    assert hashed.content == request.signed_content() | {"spec": "as sent"}


def test_a_member_is_judged_by_the_rows_of_its_group_only_for_actions_that_have_some() -> None:
    rulings = {action: VM_TABLE.judge_member("Running", action).ruling for action in ("suspend", "resume", "refine")}
    assert rulings == {"suspend": Ruling.GO, "resume": Ruling.REFUSED, "refine": Ruling.ALREADY}


@every_case(
    ("parent", "proof", "own"), [("", "", 0), ("p", "", 1), ("p", f"{CHILD_PROOF}x", 1), ("p", "of a person", 0)]
)
def test_a_parent_asks_in_its_own_name_unless_it_passes_on_what_a_person_signed(
    parent: str, proof: str, own: int
) -> None:
    request = Request(path=MCI, action="create", proof=proof)
    assert is_asked_by_parent(BeginRequest(request=request, run="r", at=datetime.now(UTC), parent=parent)) == bool(own)


def test_a_size_stands_for_its_numbers_and_for_no_others() -> None:
    for size in SIZES:
        spec = NewMachineSpec(image="ubuntu", size=size.name)
        assert (spec.vcpus, spec.memory) == (size.vcpus, size.memory)
        assert NewMachineSpec.model_validate(spec.model_dump()) == spec, "as it is stored"
        with pytest.raises(ValidationError, match=f"the size {size.name} has {size.memory} memory"):
            NewMachineSpec(image="ubuntu", size=size.name, memory=size.memory + 1)
    assert NewMachineSpec(image="ubuntu", memory=7).memory == 7


def test_the_catalogue_of_sizes_is_whole_and_an_account_takes_all_kinds_along() -> None:
    assert [(size.name, size.memory) for size in SIZES] == [
        *(("small", 1), ("medium", 2), ("large", 4)),
        *(("xlarge", 8), ("2xlarge", 16)),
    ]
    for action in ("delete", "destroy"):
        stages = [(stage.kind, stage.action) for stage in _RELATED_STAGES["account", action]]
        assert stages == [(kind, action) for kind in ("machine", "disk", "cloudspace")]


def test_members_of_a_group_land_one_by_one_and_groups_do_not() -> None:
    assert [kind for kind in ("vm", "mci", "machine", "lease") if registry.is_member_kind(kind)] == ["vm"]


def test_an_action_moves_what_is_below_its_object_but_not_below_a_group_or_an_orphans_owner() -> None:
    kinds = {"account", "cloudspace", "cloudlet", "cluster", "lease", "system", "part"}
    assert {kind for kind in registry.KINDS if registry.can_move_descendants(kind)} == kinds


def test_a_noun_has_the_number_of_what_is_counted() -> None:
    assert [format_count(number, "service") for number in (0, 1, 2)] == ["0 services", "1 service", "2 services"]


def test_only_families_that_are_there_are_found() -> None:
    assert registry.FAMILIES["mci"] is registry.FAMILIES["mci"]
    assert "nothing" not in registry.FAMILIES
    with pytest.raises(KeyError):
        registry.FAMILIES["nothing"]


def test_what_is_missing_is_created_by_a_command_with_what_it_needs() -> None:
    with pytest.raises(Refused) as image:
        check_image_usable("image:ubuntu", None)
    assert "--image" not in image.value.hint
    with pytest.raises(Refused) as machine:
        check_machine_for_disk("attach", MACHINE, None)
    assert "--image IMAGE" in machine.value.hint
