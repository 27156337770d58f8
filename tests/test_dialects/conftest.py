"""A gateway with a project and a pool of hosts that no other test uses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gateway.app import build_gateway_app
from gateway.context import Gateway
from gateway.reads import GatewayClient
from gateway.server import serve_app
from tests.patience import PATIENCE
from tests.test_dialects.clients import ClientsMissing, install_clients
from workers.service import WorkerService


@pytest.fixture
async def gateway(stack: WorkerService, ns: str) -> Gateway:
    return Gateway(GatewayClient(stack.client, stack.store_reads()), pool=f"pool-{ns}", project=f"project-{ns}")


@pytest.fixture
async def url(gateway: Gateway) -> AsyncIterator[str]:
    async with serve_app(build_gateway_app(gateway), "127.0.0.1", 0) as found:
        yield found


@pytest.fixture
async def http(url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"{url}/reservation/v1", timeout=PATIENCE) as client:
        yield client


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of the real clients' programs."""
    try:
        return install_clients()
    except ClientsMissing as error:
        pytest.skip(f"the clients are not here: {error}")
