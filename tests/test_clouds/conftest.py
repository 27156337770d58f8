"""Every provider in turn, empty, prepared, and with a way to make it fail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from itertools import count

import pytest

from domain.faults import Fault
from domain.ports import Cloud
from providers.aws import AwsCloud
from providers.regions import RegionRouter
from providers.simulated import SimulatedCloud, create_tables
from providers.simulated.tables import metadata
from store.engine import Database
from tests.faulty import Moto
from tests.test_clouds.kit import ELSEWHERE, REGION, prepare

PROVIDERS = ("simulated on sqlite", "simulated on postgres", "aws on moto")
_numbers = count(1)


@dataclass(frozen=True)
class Subject:
    """A provider under test. `fault` gives it one more rule; `made` tells how many VMs it ever made."""

    cloud: Cloud
    fault: Callable[[Fault], Awaitable[None]]
    made: Callable[[], Awaitable[int]]


@pytest.fixture(params=PROVIDERS)
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    provider, _, backend = request.param.partition(" on ")
    if provider == "aws":
        async for each in _on_moto(request.getfixturevalue("moto"), "bare" in request.keywords):
            yield each
    else:
        url = _empty(backend, request)
        async for each in _simulated(url):
            yield each


@pytest.fixture
async def cloud(subject: Subject) -> Cloud:
    """With what VMs share prepared in the region of the contract."""
    await prepare(subject.cloud)
    return subject.cloud


async def _on_moto(moto: Moto, bare: bool) -> AsyncIterator[Subject]:
    owner = f"contract-{next(_numbers)}"
    connection = moto.connection if bare else moto.furnished
    clouds = {region: AwsCloud(connection(region, owner)) for region in (REGION, ELSEWHERE)}

    async def fault(rule: Fault) -> None:
        moto.ec2.add_fault(rule)

    async def made() -> int:
        return len(moto.ec2.instances(owner))

    yield Subject(RegionRouter("aws", clouds), fault, made)
    moto.ec2.clear()
    for cloud in clouds.values():
        await cloud.close()


async def _simulated(url: str) -> AsyncIterator[Subject]:
    database = Database(url)
    database.run_here(create_tables)
    cloud = SimulatedCloud("aws", database, bulk=50)

    async def made() -> int:
        return len(await cloud.books())

    yield Subject(cloud, cloud.add_fault, made)
    await cloud.close()
    assert cloud.in_flight().regions == 0
    database.close()


def _empty(backend: str, request: pytest.FixtureRequest) -> str:
    if backend == "sqlite":
        return f"sqlite:///{request.getfixturevalue('tmp_path')}/cloud.db"
    url: str = request.getfixturevalue("postgres_url")
    database = Database(url)
    database.run_here(metadata.drop_all)
    database.close()
    return url
