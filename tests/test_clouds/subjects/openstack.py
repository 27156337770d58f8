"""Nova and Neutron behind our proxy. Every test has its own owner."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import pytest

from domain.faults import Fault
from providers.openstack import OpenStackCloud
from providers.regions import RegionRouter
from tests.openstack.rig import OpenStack
from tests.test_clouds.kit import ELSEWHERE, REGION, Opener, Subject

_numbers = count(1)


@asynccontextmanager
async def _on_nova(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    stack: OpenStack = request.getfixturevalue("openstack")
    owner = f"contract-{next(_numbers)}"
    connection = stack.connection if "bare" in request.keywords else stack.furnished
    clouds = {region: OpenStackCloud(connection(region, owner)) for region in (REGION, ELSEWHERE)}

    async def fault(rule: Fault) -> None:
        stack.proxy.add_fault(rule)

    async def made() -> int:
        return len(stack.servers(owner))

    yield Subject(RegionRouter("openstack", clouds), fault, made)
    stack.proxy.clear()
    for cloud in clouds.values():
        await cloud.close()


SUBJECTS: dict[str, Opener] = {"nova": _on_nova}
