"""EC2 on moto and our wrapper. Every test has its own owner tag."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import pytest

from domain.faults import Fault
from providers.aws import AwsCloud
from providers.regions import RegionRouter
from tests.faulty import Moto
from tests.test_clouds.kit import ELSEWHERE, REGION, Opener, Subject

_numbers = count(1)


@asynccontextmanager
async def _on_moto(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    moto: Moto = request.getfixturevalue("moto")
    owner = f"contract-{next(_numbers)}"
    connection = moto.connection if "bare" in request.keywords else moto.furnished
    clouds = {region: AwsCloud(connection(region, owner)) for region in (REGION, ELSEWHERE)}

    async def fault(rule: Fault) -> None:
        moto.ec2.add_fault(rule)

    async def made() -> int:
        return len(moto.ec2.instances(owner))

    yield Subject(RegionRouter("aws", clouds), fault, made)
    moto.ec2.clear()
    for cloud in clouds.values():
        await cloud.close()


SUBJECTS: dict[str, Opener] = {"moto": _on_moto}
