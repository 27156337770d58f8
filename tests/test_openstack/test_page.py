"""docs/openstack.md agrees with the code: options, defaults, marks, example files; and where secrets may be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from domain.errors import Refused
from providers.openstack import OpenStackConnection, servers
from providers.openstack.connection import OpenstackCredentialsSource, OpenStackOptions
from providers.openstack.credentials import check_prerequisites
from tests.cases import every_case
from workers.connections import parse_connections
from workers.settings import WorkerSettings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/openstack.md").read_text()
WORDED = {"": ("none", "Nova's choice"), "[]": ("none", "nobody"), "{}": ("none",)}
SECRET = "hush-hush-it-is-a-secret"


@every_case("name", OpenStackOptions.model_fields)
def test_every_option_is_described_with_its_default(name: str) -> None:
    found = re.search(rf"(?m)^\| `{name}` \| ([^|]+) \|", PAGE)
    assert found, f"docs/openstack.md says nothing about {name}"
    usual = str(OpenStackOptions.model_fields[name].default)
    assert found[1].strip("`") == usual or found[1] in WORDED.get(usual, ())


def test_every_source_of_credentials_and_every_mark_is_described() -> None:
    sources = OpenstackCredentialsSource.model_fields["source"].annotation.__args__  # type: ignore[union-attr]
    assert all(f"{{from: {source}" in PAGE for source in sources)
    ours = [value for name, value in vars(servers).items() if name.isupper() and str(value).startswith("ratchet:")]
    assert len(ours) == 3
    assert all(f"| metadata `{key}` |" in PAGE for key in ours)


def test_the_example_file_and_the_file_on_the_page_are_valid() -> None:
    [shown] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    example = (ROOT / "examples/connections-openstack.yaml").read_text()
    for text in (shown, example):
        [(_, connection)] = parse_connections(yaml.safe_load(text), "page").real_connections()
        assert isinstance(connection, OpenStackConnection)


def test_an_order_that_takes_too_long_is_given_up_by_the_provider_before_the_activity_does() -> None:
    usual = OpenStackOptions()
    assert usual.wait_seconds + usual.read_seconds < WorkerSettings.model_fields["call_timeout"].default


def connection(file: Path, cloud: str = "lab") -> OpenStackConnection:
    source = {"from": "clouds", "path": str(file), "cloud": cloud}
    return OpenStackConnection.model_validate({"provider": "openstack", "region": "r", "credentials": source})


def test_a_file_of_credentials_must_be_private_and_readable_and_is_never_repeated(tmp_path: Path) -> None:
    file = tmp_path / "clouds.yaml"
    with pytest.raises(Refused, match="cannot be read"):
        check_prerequisites(connection(file))
    auth = {"auth_url": "http://127.0.0.1:1", "username": "u", "password": SECRET, "project_name": "p"}
    file.write_text(yaml.safe_dump({"clouds": {"lab": {"auth": auth}}}))
    file.chmod(0o644)
    with pytest.raises(Refused, match="can be used by others"):
        check_prerequisites(connection(file))
    file.chmod(0o600)
    check_prerequisites(connection(file))
    with pytest.raises(Refused, match="there is no cloud 'other'"):
        check_prerequisites(connection(file, "other"))
    file.write_text(f"clouds: {{lab: {{auth: {{password: {SECRET}")
    with pytest.raises(Refused, match="there is no cloud 'lab'") as broken:  # the SDK skips such a file
        check_prerequisites(connection(file))
    assert SECRET not in f"{broken.value.message} {broken.value.hint}"


def test_variables_of_another_prefix_are_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    source = {"from": "environment", "prefix": "PROD_"}
    wanted = OpenStackConnection.model_validate({"provider": "openstack", "region": "r", "credentials": source})
    monkeypatch.setenv("OS_AUTH_URL", "http://127.0.0.1:1")
    with pytest.raises(Refused, match="no variable begins with PROD_OS_"):
        check_prerequisites(wanted)
    for name, value in {"AUTH_URL": "http://127.0.0.1:1", "USERNAME": "u", "PASSWORD": SECRET}.items():
        monkeypatch.setenv(f"PROD_OS_{name}", value)
    check_prerequisites(wanted)
