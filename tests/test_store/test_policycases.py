"""Trying a policy file: cases with expected answers, and what it would have refused in the recorded history."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from domain.access import AccessPolicy
from domain.identities import Principal
from domain.policycases import PolicyCases, RecordedAction, compare_cases, replay_actions
from starter.command import run_command
from starter.errors import ExitCode
from store.replay import iterate_actions
from tests.test_store.driver import NOON, WEB, StoreDriver
from tests.tiers import ROOT

CASES, POLICY = ROOT / "examples" / "policy-cases.yaml", ROOT / "examples" / "policy.yaml"
LEASE = "project:p1:lease:l1"


async def test_the_example_cases_are_answered_as_expected(capsys: pytest.CaptureFixture[str]) -> None:
    assert await run_command(["policy", "test", str(CASES), "--policy", str(POLICY)]) == ExitCode.DONE
    assert "6 of 6 cases are answered as expected" in "".join(capsys.readouterr())


async def test_differences_are_listed_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tmp_path / "cases.yaml"
    wrong.write_text(CASES.read_text().replace("verb: terminate", "verb: reboot"))
    assert await run_command(["policy", "test", str(wrong), "--policy", str(POLICY), "-o", "json"]) == ExitCode.FAILED
    [found] = json.loads(capsys.readouterr().out)
    assert (found["number"], found["expected"], found["answer"], found["why"]) == (5, "deny", "allow", "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cases: []", "at least 1 item"),
        ("cases: [{subject: a, verb: read, expect: maybe}]", "'allow' or 'deny'"),
        ("cases: [{subject: a, verb: read, path: nowhere, expect: deny}]", "bad path"),
        ("cases: [", "is not YAML"),
    ],
)
async def test_a_file_of_cases_that_is_wrong_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    file = tmp_path / "cases.yaml"
    file.write_text(text)
    assert await run_command(["policy", "test", str(file), "--policy", str(POLICY)]) != ExitCode.DONE
    assert words in capsys.readouterr().err


def test_programs_are_replayed_with_the_rights_of_whom_they_acted_for() -> None:
    policy = AccessPolicy.model_validate(
        {"roles": {"all": {"kinds": ["*"], "actions": ["*"]}}, "users": {"ann": ["all"]}}
    )
    asked = [
        RecordedAction(path=WEB, action="delete", requested_by=LEASE, principal=Principal(name=who), began_at=NOON)
        for who in ("ann", "bob")
    ]
    own = RecordedAction(path="account:a:disk:d", action="destroy", requested_by="recycle bin", began_at=NOON)
    [refused] = replay_actions(policy, [*asked, own])
    assert (refused.on_behalf_of, refused.why.split(":")[0]) == ("bob", f"bob may not delete {WEB}".split(":")[0])
    assert (
        compare_cases(
            policy, PolicyCases.model_validate({"cases": [{"subject": "bob", "verb": "read", "expect": "deny"}]})
        )
        == []
    )


async def test_a_replay_reads_page_by_page(driver: StoreDriver) -> None:
    await driver.make()
    for n in range(3):
        await driver.act(WEB, "suspend", "Suspended", requested_by="ann", request_id=f"s{n}")
        await driver.act(WEB, "resume", "Running", requested_by="eve", request_id=f"r{n}")
    nobody = AccessPolicy.model_validate(
        {"roles": {"all": {"kinds": ["*"], "actions": ["*"]}}, "users": {"ann": ["all"]}}
    )
    with driver.database.engine.connect() as connection:
        refused = list(replay_actions(nobody, iterate_actions(connection)))
    assert [(one.action, one.requested_by) for one in refused][-3:] == [("resume", "eve")] * 3
