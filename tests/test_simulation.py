"""The fault script: a rule that can never apply is refused, with the valid choices."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any, cast

import pytest

from domain import wire
from domain.errors import Category, Refused
from domain.faults import Fault, FaultKind, FaultScript
from tests.user import User
from workers.connections import parse_connections
from workers.mci import MciFamily


async def told(user: User, **fault: str) -> FaultScript:
    script = FaultScript(faults=[Fault.model_validate({"kind": FaultKind.FAIL, "vm": f"nobody-{user.ns}", **fault})])
    return await user.asking.run_query(wire.CLOUD_FAULTS, script, FaultScript)


@pytest.mark.parametrize(
    ("fault", "message", "hint"),
    [
        (
            {"csp": "systems"},
            "nothing simulated is called 'systems'",
            "^simulated .* aws, azure, .*hypervisor, hosts",
        ),
        ({"csp": "gcp", "verb": "susspend"}, "gcp knows no verb 'susspend'", r"^did you mean suspend\? verbs are"),
        ({"csp": "asw"}, "nothing simulated is called 'asw'", r"^did you mean aws\? simulated here are: aws"),
        ({"csp": "aws", "verb": "migrate"}, "aws knows no verb 'migrate'", "verbs are: create, suspend, .*release"),
        ({"csp": "hypervisor", "verb": "suspend"}, "hypervisor knows no verb 'suspend'", "migrate"),
        ({"verb": "explode"}, "whatever is simulated knows no verb 'explode'", "create, suspend"),
    ],
)
async def test_a_rule_that_could_never_strike_is_refused(
    user: User, fault: dict[str, str], message: str, hint: str
) -> None:
    with pytest.raises(Refused, match=message) as refused:
        await told(user, **fault)
    assert refused.value.category is Category.INVALID
    assert re.search(hint, refused.value.hint)


@pytest.mark.parametrize("fault", [{}, {"csp": "gcp", "verb": "prepare"}, {"csp": "hypervisor", "verb": "migrate"}])
async def test_a_rule_for_what_there_is_is_kept(user: User, fault: dict[str, str]) -> None:
    kept = await told(user, **fault)
    assert f"nobody-{user.ns}" in [rule.vm for rule in kept.faults]
    await user.heal_faults()


@pytest.mark.parametrize(
    ("connections", "can_fail"),
    [
        ({"a": {"provider": "aws", "region": "eu-central-1"}}, False),
        (
            {
                "a": {"provider": "aws", "region": "eu-central-1"},
                "b": {"provider": "simulated", "csp": "aws", "region": "lab"},
            },
            True,
        ),
        ({"a": {"provider": "simulated", "csp": "gcp", "region": "us-central1"}}, True),
    ],
)
def test_a_cloud_that_is_real_cannot_be_told_to_fail(connections: dict[str, Any], can_fail: bool) -> None:
    parts = SimpleNamespace(
        connections=parse_connections({"connections": connections}, "c.yaml"), simulated={"aws": 0, "gcp": 0}
    )
    assert ("aws" in MciFamily.fault_verbs(cast(Any, SimpleNamespace(context=parts)))) is can_fail
