"""The connections file: what it may say, what is refused and how, and that no secret is repeated."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from domain.errors import Category, Refused, Superseded
from domain.limits import CAPS_BY_CLOUD
from domain.ports import VmKey, VmOrder
from domain.wire import ACTIONS_QUEUE, cloud_queue
from providers.aws.connection import AwsConnection, AwsCredentialsSource
from providers.aws.credentials import describe_credentials_source, open_session
from providers.simulated.catalogue import REGIONS
from tests.cases import every_case
from workers.connections import check_connections, load_connections, make_served_clouds, parse_connections

AWS = {"provider": "aws", "region": "eu-central-1"}
SECRET = "hush-hush-it-is-a-secret"


def aws(**more: Any) -> dict[str, Any]:
    return {"connections": {"prod": AWS | more}}


def write(folder: Path, document: object) -> Path:
    file = folder / "connections.yaml"
    file.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return file


def test_without_a_file_everything_is_simulated_under_the_usual_names() -> None:
    known = load_connections(None)
    assert {name: known.find_place_of_connection(name) for name in known.connection_names()} == {
        f"{csp}-{region}": (csp, region) for csp, regions in REGIONS.items() for region in regions
    }
    assert list(known.real_connections()) == []


def test_a_cloud_that_the_file_names_has_only_the_files_regions(tmp_path: Path) -> None:
    known = load_connections(write(tmp_path, aws()))
    assert known.find_place_of_connection("prod") == ("aws", "eu-central-1")
    assert known.find_place_of_connection("aws-us-east-1") is None
    assert known.find_place_of_connection("gcp-us-central1") == ("gcp", "us-central1")


def test_a_simulated_connection_needs_no_credentials_and_may_have_any_name(tmp_path: Path) -> None:
    places = {"lab": {"provider": "simulated", "csp": "azure", "region": "eastus"}, **aws()["connections"]}
    known = load_connections(write(tmp_path, {"connections": places}))
    assert known.find_place_of_connection("lab") == ("azure", "eastus")
    assert [name for name, _ in known.real_connections()] == ["prod"]


async def test_only_the_regions_of_the_file_are_real(tmp_path: Path) -> None:
    known = load_connections(write(tmp_path, aws()))
    clouds = make_served_clouds(known, silent(), {"prod": _Silent("real")})  # type: ignore[dict-item]

    async def lists(csp: str, region: str) -> list[Any]:
        return await clouds[csp].list_tagged_vms(region, "")

    assert await lists("gcp", "us-central1") == ["simulated us-central1"]
    assert await lists("aws", "eu-central-1@aws") == ["real eu-central-1"]
    assert await lists("aws", "us-east-1") == ["simulated us-east-1"], "what was there before the file is still reached"
    assert await clouds["aws"].list_missing_offers("us-east-1", [], []) == [
        "no connection leads to aws/us-east-1; the connections file has: eu-central-1@aws"
    ]


async def test_a_place_that_this_worker_does_not_serve_is_not_touched() -> None:
    clouds = make_served_clouds(load_connections(None), silent(), {})
    [answer] = await clouds["aws"].perform_orders(
        "terminate", "eu-central-1@aws", [VmOrder("ns:a:mci:b:vm:c", "token", "i-1")]
    )
    assert isinstance(answer, Superseded)
    for call in (
        clouds["aws"].list_tagged_vms("eu-central-1@aws", ""),
        clouds["aws"].describe_vms("eu-central-1@aws", []),
    ):
        with pytest.raises(Superseded, match="aws/eu-central-1 of aws is not served by this worker"):
            await call


@pytest.mark.parametrize("options", [{"endpoint_url": "http://moto"}, {"owner": "us"}, {"account": "123456789012"}])
def test_another_endpoint_owner_or_account_is_another_place(options: dict[str, str]) -> None:
    plain = parse_connections(aws(), "c.yaml")
    other = parse_connections(aws(options=options), "c.yaml")
    assert plain.real_places() == ["aws/eu-central-1@aws"]
    assert (
        other.real_places()
        == [f"aws/eu-central-1@{other.provider_of_region('aws', 'eu-central-1')}"]
        != plain.real_places()
    )
    assert parse_connections(aws(options={"zone": "eu-central-1a"}), "c.yaml").real_places() == plain.real_places()


def silent() -> dict[str, Any]:
    return {csp: _Silent("simulated") for csp in CAPS_BY_CLOUD}


class _Silent:
    orders_per_call = 1

    def __init__(self, name: str) -> None:
        self._name = name

    async def list_tagged_vms(self, region: str, _prefix: str, _after: VmKey) -> list[str]:
        return [f"{self._name} {region}"]


@every_case(
    ("document", "words"),
    [
        (None, "file: Input should be"),
        ([], "file: Input should be"),
        ({}, "names nothing"),
        ({"connections": {}}, "names nothing"),
        ({"connections": {"a b": AWS}}, "bad name"),
        ({"connections": {"prod": {"region": "eu-1"}}}, "Unable to extract tag"),
        (
            {"connections": {"prod": {"provider": "moon"}}},
            "not match any of the expected tags: 'simulated', 'aws'",
        ),
        ({"connections": {"prod": {"provider": "aws"}}}, "connections.prod.aws.region: Field required"),
        ({"connections": {"x": {"provider": "simulated", "csp": "the moon", "region": "r1"}}}, "bad name"),
        ({"connections": {"a": AWS, "b": AWS}}, "a and b are both aws/eu-central-1: one connection per place"),
        (aws(colour="red"), "colour: there is no such field"),
        (aws(credentials={"from": "thin air"}), "credentials.from: Input should be 'default', 'environment'"),
        (aws(credentials={"from": "file"}), "credentials from file need a path"),
        (aws(credentials={"from": "profile"}), "credentials from profile need a profile"),
        (aws(credentials={"from": "default", "profile": "x"}), "profile says nothing for credentials from default"),
        (aws(credentials={"secret_access_key": SECRET}), "secret_access_key: there is no such field"),
        (aws(credentials={"from": "environment", "prefix": SECRET}), "prefix: String should match pattern"),
        (aws(options={"endpoint_url": f"http://user:{SECRET}@host"}), "endpoint_url: String should match pattern"),
        (aws(options={"public_key": f"-----BEGIN PRIVATE KEY----- {SECRET}"}), "public_key holds a private key"),
        (aws(options={"cidr": "10.0.0.0/99"}), "does not appear to be an IPv4 or IPv6 network"),
        (aws(options={"ingress": [{"port": 0, "from": "0.0.0.0/0"}]}), "ingress.0.port"),
        (aws(options={"ingress": [{"port": 9, "to_port": 8, "from": "0.0.0.0/0"}]}), "ports run from 9 to 8"),
        (aws(options={"wait_seconds": 0}), "wait_seconds"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place_and_the_reason(document: object, words: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_connections(document, "c.yaml")
    assert refused.value.category is Category.INVALID
    assert words in refused.value.message
    assert "c.yaml" in refused.value.message
    assert "docs/aws.md" in refused.value.hint
    assert SECRET not in refused.value.message
    assert refused.value.__cause__ is None, "the cause would hold what the file says"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"connections: [{SECRET}", "not YAML in line 1"),
        ("connections: *nowhere", "not YAML in line 1"),
        ("a: 1\n\tb: 2", "not YAML in line 2"),
        ("x" * 300_000, "larger than 256 KiB"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(Refused, match=words) as refused:
        load_connections(write(tmp_path, text))
    assert SECRET not in str(refused.value)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="No such file"):
        load_connections(tmp_path / "nothing.yaml")
    with pytest.raises(Refused, match="Is a directory"):
        load_connections(tmp_path)
    (tmp_path / "noise.yaml").write_bytes(b"\xff\xfe\x00\x9f")
    with pytest.raises(Refused, match="not text"):
        load_connections(tmp_path / "noise.yaml")


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No credentials anywhere but where the test puts them."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


def from_(source: str, **more: str) -> AwsCredentialsSource:
    return AwsCredentialsSource.model_validate({"from": source, **more})


def test_credentials_from_the_environment_may_have_a_prefix(keys: pytest.MonkeyPatch) -> None:
    keys.setenv("PROD_AWS_ACCESS_KEY_ID", "AKIAPROD")
    with pytest.raises(Refused, match="not set: PROD_AWS_SECRET_ACCESS_KEY"):
        describe_credentials_source(from_("environment", prefix="PROD_"), "eu-central-1")
    keys.setenv("PROD_AWS_SECRET_ACCESS_KEY", SECRET)
    assert (
        describe_credentials_source(from_("environment", prefix="PROD_"), "eu-central-1") == "in PROD_AWS_ACCESS_KEY_ID"
    )
    assert open_session(from_("environment", prefix="PROD_"), "eu-central-1").get_credentials().secret_key == SECRET
    with pytest.raises(Refused, match="not set: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"):
        describe_credentials_source(from_("environment"), "eu-central-1")


def test_credentials_from_a_file(keys: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "keys.ini"
    with pytest.raises(Refused, match="cannot be read: No such file"):
        describe_credentials_source(from_("file", path=str(file)), "eu-central-1")
    file.write_text(f"aws_secret_access_key = {SECRET}")
    with pytest.raises(Refused, match="is no AWS credentials file") as refused:
        describe_credentials_source(from_("file", path=str(file)), "eu-central-1")
    assert SECRET not in str(refused.value)
    file.write_text(f"[default]\naws_access_key_id = A\naws_secret_access_key = {SECRET}%x\naws_session_token = t\n")
    assert describe_credentials_source(from_("file", path=str(file)), "eu-central-1") == f"in {file}"
    read = open_session(from_("file", path=str(file)), "eu-central-1").get_credentials()
    assert (read.access_key, read.secret_key, read.token) == ("A", f"{SECRET}%x", "t")
    with pytest.raises(Refused, match=r"no keys in \[prod\]"):
        describe_credentials_source(from_("file", path=str(file), profile="prod"), "eu-central-1")


def test_credentials_from_a_profile(keys: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no AWS profile 'prod'"):
        describe_credentials_source(from_("profile", profile="prod"), "eu-central-1")
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(f"[prod]\naws_access_key_id = A\naws_secret_access_key = {SECRET}\n")
    assert describe_credentials_source(from_("profile", profile="prod"), "eu-central-1") == "in profile prod"


def test_nothing_found_by_the_sdk_is_said(keys: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refused, match="no AWS credentials were found"):
        describe_credentials_source(AwsCredentialsSource(), "eu-central-1")


def test_without_boto3_it_is_said_how_to_get_it(keys: pytest.MonkeyPatch) -> None:
    keys.setitem(sys.modules, "boto3", None)
    with pytest.raises(Refused, match="boto3 is not installed") as refused:
        open_session(AwsCredentialsSource(), "eu-central-1")
    assert "ratchet[aws]" in refused.value.hint


def test_only_a_worker_that_calls_the_cloud_needs_its_credentials(keys: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = write(tmp_path, aws(credentials={"from": "environment"}))
    check_connections(file, [ACTIONS_QUEUE, cloud_queue("gcp")])
    with pytest.raises(Refused, match="the connection prod has no credentials: not set: AWS_ACCESS_KEY_ID"):
        check_connections(file, [cloud_queue("aws")])


def test_what_the_model_shows_of_itself_holds_no_secret() -> None:
    connection = AwsConnection.model_validate(AWS | {"credentials": {"from": "environment"}})
    assert "environment" in repr(connection)  # where, not what: there is no field that could hold more
    assert not {"secret", "token", "password", "key"} & set(AwsCredentialsSource.model_fields)
