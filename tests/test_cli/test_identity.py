"""`starter key new`, `sign`, `whoami`, `can`, `policy test` and `replay`; and files of rights that change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from temporalio.client import Client

from activities.access import Authorizer, claimed_sender
from activities.proofs import ProofVerifier
from domain.access import AccessPolicy
from domain.errors import Refused
from domain.model import Request
from starter.errors import ExitCode
from tests.test_cli.shell import EXAMPLES, Cli
from tests.test_proofs import start_by_hand
from tests.user import User, spec
from workers.access import WatchedFile, load_identities, load_policy
from workers.service import WorkerService


@pytest.fixture
def rights(stack: WorkerService) -> Iterator[Authorizer]:
    """The worker wants proofs and asks a policy as a test says; afterwards neither."""
    policy = stack.authorizer.policy
    yield stack.authorizer
    stack.authorizer.policy, stack.authorizer.identify = policy, claimed_sender


async def test_what_is_signed_on_the_command_line_can_be_pasted_once(
    cli: Cli,
    user: User,
    client: Client,
    stack: WorkerService,
    rights: Authorizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    key = tmp_path / "wanda.pem"
    made = await cli("key new wanda --file", str(key))
    assert (made.code, key.stat().st_mode & 0o777) == (ExitCode.DONE, 0o600), made
    assert (await cli("key new wanda --file", str(key))).code == ExitCode.USAGE, "it replaces no key"
    (tmp_path / "identities.yaml").write_text(made.out.partition("Put these lines")[0])
    (tmp_path / "identities.yaml").chmod(0o600)
    claimed = await cli("whoami")
    assert "claimed" in claimed.out
    known = WatchedFile(str(tmp_path / "identities.yaml"), load_identities)
    stack.authorizer.identify = ProofVerifier(known, client.namespace)
    unsigned = await cli("sign mci suspend", f"{user.ns}/web")
    assert (unsigned.code, "there is no key to sign with" in unsigned.err) == (ExitCode.USAGE, True), unsigned
    monkeypatch.setenv("RATCHET_KEY_FILE", str(key))
    monkeypatch.setenv("RATCHET_SUBJECT", "wanda")
    assert "proven" in (await cli("whoami")).out
    signed = await cli("sign mci suspend", f"{user.ns}/web", "--within", "10m", "--reason", "tonight")
    assert signed.code == ExitCode.DONE, signed
    assert f"ID {user.mci()}, task queue actions; good for 10m" in signed.out + signed.err
    paper = Request.model_validate(json.loads(signed.out.splitlines()[0]))
    assert (paper.requested_by, paper.reason) == ("wanda", "tonight")
    assert await start_by_hand(client, paper) == ""
    assert (await user.see(user.mci())).status.startswith("Suspended")
    assert "used before" in await start_by_hand(client, paper)
    assert (await cli("mci resume", f"{user.ns}/web")).code == ExitCode.DONE
    assert {line.requested_by for line in await user.history(user.mci()) if line.action == "resume"} == {"wanda"}


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
