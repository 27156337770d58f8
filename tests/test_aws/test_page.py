"""docs/aws.md agrees with the code: options, defaults, tags, permissions, example files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from domain.mci.specs import MciSpec
from providers.aws import tags
from providers.aws.connection import AwsConnection, AwsCredentialsSource, AwsOptions
from tests.cases import every_case
from workers.connections import parse_connections
from workers.settings import WorkerSettings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/aws.md").read_text()
WORDED = {"": ("none", "AWS's choice", "AWS's"), "[]": ("none", "nobody"), "{}": ("none",)}


@every_case("name", AwsOptions.model_fields)
def test_every_option_is_described_with_its_default(name: str) -> None:
    found = re.search(rf"(?m)^\| `{name}` \| ([^|]+) \|", PAGE)
    assert found, f"docs/aws.md says nothing about {name}"
    usual = str(AwsOptions.model_fields[name].default)
    assert found[1].strip("`") == usual or found[1] in WORDED.get(usual, ())


def test_every_source_of_credentials_and_every_tag_is_described() -> None:
    sources = AwsCredentialsSource.model_fields["source"].annotation.__args__  # type: ignore[union-attr]
    assert all(f"{{from: {source}" in PAGE for source in sources)
    ours = [value for name, value in vars(tags).items() if name.isupper() and str(value).startswith("ratchet:")]
    assert len(ours) == 6
    assert all(f"| `{tag}` |" in PAGE for tag in ours)


def test_the_permissions_are_those_that_the_code_uses() -> None:
    code = "".join(file.read_text() for file in (ROOT / "providers/aws").glob("*.py"))
    operations = re.findall(
        r'"((?:describe|create|delete|import|attach|detach|authorize|modify|run|start|stop|reboot|terminate)_[a-z_]+)"',
        code,
    )
    needed = {"".join(word.capitalize() for word in name.split("_")) for name in operations} | {"CreateTags"}
    [policy] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    [statement] = json.loads(policy)["Statement"]
    assert sorted(statement["Action"]) == sorted(f"ec2:{name}" for name in needed)


@pytest.mark.parametrize("name", ["connections-aws", "connections-moto"])
def test_the_example_files_are_valid(name: str) -> None:
    found = parse_connections(yaml.safe_load((ROOT / f"examples/{name}.yaml").read_text()), name)
    assert list(found.real_connections())


def test_the_file_on_the_page_is_valid() -> None:
    [shown] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert parse_connections(yaml.safe_load(shown), "page").connection_names() == ["frankfurt", "lab"]


def test_the_example_mci_fits_the_example_connections() -> None:
    spec = MciSpec.model_validate(yaml.safe_load((ROOT / "examples/mci-aws.yaml").read_text()))
    known = parse_connections(yaml.safe_load((ROOT / "examples/connections-moto.yaml").read_text()), "moto")
    assert {group.connectionName for group in spec.subGroups} == set(known.connection_names())
    [(_, connection)] = known.real_connections()
    assert isinstance(connection, AwsConnection)
    for group in spec.subGroups:
        assert group.specId in connection.options.specs
        assert group.imageId in connection.options.images


def test_an_order_that_takes_too_long_is_given_up_by_the_provider_before_the_activity_does() -> None:
    assert AwsOptions().wait_seconds + AwsOptions().read_seconds < WorkerSettings.model_fields["call_timeout"].default
