"""`starter can`, `policy test` and `replay`; and files of rights that change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from activities.access import Authorizer, claimed_sender
from domain.access import AccessPolicy
from domain.errors import Refused
from starter.errors import ExitCode
from tests.test_cli.shell import EXAMPLES, Cli
from tests.user import User, spec
from workers.access import WatchedFile, load_policy
from workers.service import WorkerService


@pytest.fixture
def rights(stack: WorkerService) -> Iterator[Authorizer]:
    """The worker wants proofs and asks a policy as a test says; afterwards neither."""
    policy = stack.authorizer.policy
    yield stack.authorizer
    stack.authorizer.policy, stack.authorizer.identify = policy, claimed_sender


async def test_can_says_yes_or_no_and_why(
    cli: Cli, user: User, stack: WorkerService, rights: Authorizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    roles = {"night": {"kinds": ["mci"], "actions": ["suspend"], "paths": [f"ns:{user.ns}"]}}
    policy = AccessPolicy.model_validate({"roles": roles, "users": {"wanda": ["night"]}})
    stack.authorizer.policy = lambda: policy
    monkeypatch.setenv("RATCHET_SUBJECT", "wanda")
    yes = await cli("can suspend", user.mci())
    assert (yes.code, "yes: wanda may suspend" in yes.out + yes.err) == (ExitCode.DONE, True), yes
    for words in (f"suspend {user.mci()} --force", f"terminate {user.mci()}", f"suspend ns:{user.ns}x:mci:web"):
        no = await cli("can", *words.split())
        assert (no.code, "wanda may not" in no.err) == (ExitCode.FORBIDDEN, True), (words, no)


async def test_a_policy_is_tried_on_cases_and_on_what_was_recorded(cli: Cli, user: User, tmp_path: Path) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    cases, shipped = str(EXAMPLES / "policy-cases.yaml"), str(EXAMPLES / "policy.yaml")
    right = await cli("policy test", cases, "--policy", shipped)
    assert (right.code, "cases are answered as expected" in right.out + right.err) == (ExitCode.DONE, True), right
    (tmp_path / "cases.yaml").write_text(
        yaml.safe_dump({"cases": [{"subject": "eve", "verb": "read", "path": "ns:web:mci:shop", "expect": "allow"}]})
    )
    wrong = await cli("policy test", str(tmp_path / "cases.yaml"), "--policy", shipped, "-o", "json")
    assert (wrong.code, json.loads(wrong.out)[0]["answer"]) == (ExitCode.FAILED, "deny"), wrong
    found = await cli("policy replay", shipped, "-o", "json")
    lines = [json.loads(line) for line in found.out.splitlines()]
    assert [(line["action"], line["requested_by"]) for line in lines if line["path"] == user.mci()] == [
        ("create", "tester")
    ], found.err


def test_a_file_of_rights_is_in_force_when_it_changes_and_a_wrong_one_is_not(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"

    def write(text: str) -> None:
        beside = tmp_path / "beside"
        beside.write_text(text)
        beside.chmod(0o600)
        beside.replace(file)

    write("roles: {a: {kinds: ['*'], actions: [suspend]}}\nusers: {wanda: [a]}\n")
    watched = WatchedFile(str(file), load_policy)
    assert list(watched().users) == ["wanda"]
    write("roles: {a: {kinds: ['*'], actions: [suspend]}}\nusers: {walter: [a]}\n")
    assert list(watched().users) == ["walter"]
    write("roles: what\n")
    assert list(watched().users) == ["walter"], "what it said before stays in force"
    file.unlink()
    assert list(watched().users) == ["walter"]
    with pytest.raises(Refused):
        WatchedFile(str(file), load_policy)
