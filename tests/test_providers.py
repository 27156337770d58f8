"""A provider is one folder and one line: everything else reads its description."""

from __future__ import annotations

import logging
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import ValidationError

from domain.connections import Connection
from domain.wire import SIMULATED
from providers.description import CloudProvider
from providers.registry import PROVIDERS
from tests.cases import every_case
from tests.test_clouds.subjects import openers
from workers import logs
from workers.connections import connections_file_model

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ("domain", "store", "providers", "activities", "workflows", "client", "workers", "starter", "deploy")
BESIDES = ("run.py", "Dockerfile", "docker-compose.yml")
# AWS, its service, and the packages that call it. `draws` and `laws` are other words.
NAMES = re.compile(r"(?<![a-z])aws|Aws|AWS|(?i:amazon|boto|\bec2)")
# How many lines of a file may name it, and why.
MAY_NAME = {
    "providers/registry.py": 2,  # the one line of the provider, and its import
    "domain/limits.py": 1,  # data: a row of the table of clouds and their caps, simulated or not
    "providers/simulated/catalogue.py": 1,  # data: the regions of the simulated cloud of that name
}


def names_of_aws(text: str) -> int:
    """In how many lines it is named."""
    return sum(bool(NAMES.search(line)) for line in text.splitlines())


def product() -> Iterator[Path]:
    """Every file that is shipped, but for the provider's own folder."""
    found = [*(ROOT / name for name in BESIDES), *(file for name in SHIPPED for file in (ROOT / name).rglob("*"))]
    own = ROOT / "providers/aws"
    yield from (file for file in found if file.is_file() and file.suffix != ".pyc" and own not in file.parents)


def test_no_product_file_outside_its_folder_names_aws() -> None:
    found = Counter({str(file.relative_to(ROOT)): names_of_aws(file.read_text()) for file in product()})
    assert {name: lines for name, lines in found.items() if lines} == MAY_NAME


@every_case(
    ("line", "found"),
    [
        ("from providers.aws import AwsCloud", True),
        ('isinstance(each, AwsConnection)  # "AWS"', True),
        ("PROD_AWS_ACCESS_KEY_ID", True),
        ("cloud-aws", True),
        ("logging.getLogger('botocore')", True),
        ("as on EC2", True),
        ("the document draws it last; the laws of the table have no flaws", False),
    ],
)
def test_a_name_of_aws_is_found(line: str, found: bool) -> None:
    assert names_of_aws(line) == found


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda each: str(each.name))
def test_a_provider_is_a_folder_whose_name_is_the_word_for_it_in_the_file(provider: CloudProvider[Any]) -> None:
    assert (ROOT / "providers" / provider.name / "__init__.py").exists()
    assert provider.connection.model_fields["provider"].annotation == Literal[provider.name]
    assert (provider.cloud_access is None) == (provider.name == SIMULATED), "whoever is real says how it is reached"


@pytest.mark.parametrize(
    "provider", [provider for provider in PROVIDERS if provider.cloud_access], ids=lambda each: str(each.name)
)
def test_a_real_provider_has_a_page_and_the_extra_that_it_needs(provider: CloudProvider[Any]) -> None:
    assert (ROOT / provider.docs_page).is_file()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    if provider.install_extra:
        assert provider.install_extra in extras
        [clouds] = extras["clouds"]
        assert provider.install_extra in re.findall(r"[\w-]+", clouds.partition("[")[2]), (
            "`clouds` is what all of them need"
        )


def test_packages_of_providers_do_not_log_their_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [name for provider in PROVIDERS for name in provider.logger_names]
    assert names
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", list(root.handlers))
    level = root.level
    try:
        logs.configure_logging("debug")
        assert {logging.getLogger(name).getEffectiveLevel() for name in names} == {logging.WARNING}
    finally:
        root.setLevel(level)


class MoonConnection(Connection):
    """Of a provider that this program does not have."""

    provider: Literal["moon"]
    crater: str


MOON = CloudProvider(name="moon", connection=MoonConnection)


def test_a_provider_without_contract_tests_is_named() -> None:
    with pytest.raises(LookupError, match=r"the provider moon .* write tests/test_clouds/subjects/moon\.py"):
        openers((*PROVIDERS, MOON))


def test_the_file_takes_a_new_provider_by_its_own_model_and_refuses_what_that_refuses() -> None:
    model = connections_file_model((*PROVIDERS, MOON))
    told = {"provider": "moon", "region": "south", "crater": "Shackleton", "limits": {"vms": 3}}
    connection = model.model_validate({"connections": {"base": told}}).connections["base"]
    assert isinstance(connection, MoonConnection)
    assert (connection.csp, connection.place, connection.limits.vms) == ("moon", "moon/south@moon", 3)
    with pytest.raises(ValidationError, match=r"connections\.base\.moon\.crater"):
        model.model_validate({"connections": {"base": {"provider": "moon", "region": "south"}}})
