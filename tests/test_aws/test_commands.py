"""`starter connections`, and a bad connections file that stops `starter up` before anything runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from domain.faults import Fault, FaultKind
from tests.faulty import PREFIX, Moto
from tests.test_aws.conftest import AwsStack
from tests.test_cli.shell import Cli


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    for name in [name for name in os.environ if name.startswith(("TEMPORAL_", "RATCHET_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path))
    return Cli(monkeypatch)


@pytest.fixture
def connected(cli: Cli, aws_stack: AwsStack, monkeypatch: pytest.MonkeyPatch, moto: Moto) -> Cli:
    monkeypatch.setenv("TEMPORAL_ADDRESS", aws_stack.address)
    return cli


async def test_connections_are_listed_with_where_their_credentials_are(connected: Cli) -> None:
    ran = await connected("connections")
    assert ran.code == 0, ran.err
    lines = {line.split()[0]: line for line in ran.out.splitlines()}
    assert f"in {PREFIX}AWS_ACCESS_KEY_ID" in lines["frankfurt"]
    assert lines["gcp-us-central1"].split()[1:4] == ["simulated", "gcp", "us-central1"]
    assert "aws-eu-central-1" not in lines, "the simulated cloud of that name is no longer there"
    assert "a-secret-of-the-tests" not in ran.out + ran.err


async def test_check_asks_the_cloud(connected: Cli, moto: Moto) -> None:
    ran = await connected("connections --check -o json")
    assert ran.code == 0, ran.err
    seen = {load["name"]: load for load in json.loads(ran.out)}
    assert seen["frankfurt"]["answer"] == "EC2 answers: 3 zones in eu-central-1"
    assert seen["frankfurt"]["trouble"] == ""


async def test_check_tells_which_connection_is_ill_and_why(connected: Cli, moto: Moto) -> None:
    moto.ec2.add_fault(Fault(kind=FaultKind.FAIL, verb="validate", region="us-east-1", message="go away"))
    ran = await connected("connections --check")
    moto.ec2.clear()
    assert ran.code == 1
    assert "virginia: UnsupportedOperation: go away" in ran.err
    assert "frankfurt:" not in ran.err
    assert "hint:" in ran.err


@pytest.mark.parametrize("command", ["up", "worker"])
@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"connections": {"prod": {"provider": "moon"}}}, "connections.prod"),
        (
            {
                "connections": {
                    "p": {"provider": "aws", "region": "r", "credentials": {"from": "profile", "profile": "x"}}
                }
            },
            "the connection p has no credentials: there is no AWS profile 'x'",
        ),
    ],
)
async def test_a_bad_file_stops_the_start_before_anything_runs(
    cli: Cli,
    aws_stack: AwsStack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    document: object,
    words: str,
) -> None:
    file = tmp_path / "connections.yaml"
    file.write_text(yaml.safe_dump(document))
    monkeypatch.setenv("RATCHET_CONNECTIONS", str(file))
    if command == "worker":
        monkeypatch.setenv("TEMPORAL_ADDRESS", aws_stack.address)
    ran = await cli(command)
    assert ran.code == 2
    assert words in ran.err
    assert sorted(each.name for each in tmp_path.iterdir()) == ["connections.yaml"], "nothing was started"
