"""MCI, SubGroup and VM in the domain: what a request may say."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from domain import registry
from domain.connections import Connections
from domain.errors import Category, Refused
from domain.limits import CAPS_BY_CLOUD, MAX_SUBGROUPS, MAX_VMS_PER_MCI, CloudCaps
from domain.mci.messages import requirements_by_place
from domain.mci.specs import MciSpec, ScaleSpec, new_vm_objects
from domain.model import Request
from tests.cases import every_case

pytestmark = pytest.mark.stores("postgres")


def group(**changes: Any) -> dict[str, Any]:
    return {"name": "front", "subGroupSize": 2, "csp": "aws", "region": "eu-1"} | changes


def spec(*groups: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"subGroups": list(groups) or [group()]} | changes


def test_vms_are_named_after_their_subgroup_and_counted_from_one() -> None:
    asked = MciSpec.model_validate(spec(group(label={"tier": "web"}), group(name="db", subGroupSize=1, csp="gcp")))
    born = [
        vm for subgroup in asked.subGroups for vm in new_vm_objects("ns:a:mci:w", subgroup, 1, subgroup.subGroupSize)
    ]
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


@every_case(
    ("bad", "told"),
    [
        ({}, "subGroups: Field required"),
        (spec(subGroups=[]), "at least 1 item"),
        (spec(group(subGroupSize=0)), "greater than or equal to 1"),
        (spec(group(subGroupSize=-1)), "greater than or equal to 1"),
        (spec(group(subGroupSize=10**9)), "less than or equal to 20000"),
        (spec(group(subGroupSize="many")), "valid integer"),
        (spec(group(subGroupSize=1.5)), "integer"),
        (spec(group(csp="the moon")), "subGroups.0.csp: bad name 'the moon'"),
        (spec(group(csp="x" * 5_000)), "bad name"),
        (spec(group(name="../x")), "bad name"),
        (spec(group(name="a:b")), "bad name"),
        (spec(group(region="eu 1")), "bad name"),
        (spec(group(name="x" * 62, subGroupSize=10)), "is too long: VMs are named"),
        (spec(group(colour="red")), "subGroups.0.colour: there is no such field; fields are: name, "),
        (spec(group(), flavour="sweet"), "flavour: there is no such field; fields are: description, "),
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
        requirements_by_place(asked)
    found = asked.with_places({"seoul": ("aws", "ap-northeast-2")}, Connections().provider_of_region)
    assert [subgroup.place for subgroup in found.subGroups] == ["aws/ap-northeast-2", "aws/eu-1"]


def test_what_is_wanted_is_gathered_by_place() -> None:
    groups = (group(), group(name="b", specId="large"), group(name="c", csp="gcp", imageId="debian-12"))
    first, second = requirements_by_place(MciSpec.model_validate(spec(*groups)))
    assert (first.place, first.specs, first.images) == ("aws/eu-1", ["large", "small"], ["ubuntu-24.04"])
    assert (second.place, second.specs, second.images) == ("gcp/eu-1", ["small"], ["debian-12"])


@pytest.mark.parametrize(
    "bad", [{}, {"subGroup": "a", "count": 0}, {"subGroup": "a", "count": 20_001}, {"subGroup": ""}]
)
def test_a_change_of_size_by_nothing_or_by_too_much_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="the spec is not valid"):
        registry.parse_spec(Request(path="ns:a:mci:w", action="scale-out", spec=bad))
    assert ScaleSpec(subGroup="a").count == 1


def test_the_largest_request_is_taken() -> None:
    asked = MciSpec.model_validate(spec(group(subGroupSize=MAX_VMS_PER_MCI)))
    assert len(list(new_vm_objects("ns:a:mci:w", asked.subGroups[0], 1, asked.vm_count))) == 20_000


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
        assert {verb.action for verb in kind.verbs} <= set(kind.table.user_actions)
        assert kind.scope[-1] == kind.name


def test_a_spec_cannot_be_changed_behind_our_back() -> None:
    asked = MciSpec.model_validate(spec())
    with pytest.raises(ValidationError, match="frozen"):
        asked.description = "other"  # type: ignore[misc]


# Limits, table in the document and in the rules.


@every_case(
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
    assert CAPS_BY_CLOUD[csp] == CloudCaps(regions, vms)
