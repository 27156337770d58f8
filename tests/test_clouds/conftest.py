"""Every provider of the registry in turn: empty, prepared, and with a way to make it fail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from domain.ports import Cloud
from providers.registry import PROVIDERS
from tests.openstack.rig import OpenStack, openstack_running
from tests.test_clouds.kit import Opener, Subject, prepare
from tests.test_clouds.subjects import openers

OPENERS = openers(PROVIDERS)


@pytest.fixture(scope="package")
def openstack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenStack]:
    """Nova and Neutron; every test has its own owner. They end with these tests: they are busy also when they wait."""
    with openstack_running(tmp_path_factory.mktemp("openstack")) as running:
        yield running


@pytest.fixture(params=OPENERS)
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    opener: Opener = OPENERS[request.param]
    async with opener(request) as opened:
        yield opened


@pytest.fixture
async def cloud(subject: Subject) -> Cloud:
    """With what VMs share prepared in the region of the contract."""
    await prepare(subject.cloud)
    return subject.cloud
