"""A stack whose connections lead to moto, and single clouds with their own options."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from client.actions import ActionClient
from client.connection import connect_temporal
from providers.aws import AwsCloud
from tests.faulty import Moto
from tests.patience import PATIENCE
from tests.stack import until_polled
from tests.user import User
from workers import embedded
from workers.plugin import temporal_plugin
from workers.service import WorkerService
from workers.settings import WorkerSettings

REGION = "eu-central-1"
OWNER = "lives"  # of everything that the stack makes
# A sweep would heal what a test is about to look at; a busy machine is no failure.
PATIENTLY: dict[str, Any] = {
    "simulated_latency": 0,
    "heal_interval": 86_400,
    "call_timeout": 2 * PATIENCE,
    "patience": 2 * PATIENCE,
}
_numbers = count(1)

CloudMaker = Callable[..., AwsCloud]


@pytest.fixture
async def cloud(moto: Moto) -> AsyncIterator[CloudMaker]:
    """Makes a cloud with options; all have one owner's tag, which no other test uses."""
    owner = f"aws-{next(_numbers)}"
    async with AsyncExitStack() as closing:

        def make(**options: Any) -> AwsCloud:
            made = AwsCloud(moto.furnished(REGION, options.pop("owner", owner), **options))
            closing.push_async_callback(made.close)
            return made

        yield make
    moto.ec2.clear()


@dataclass(frozen=True)
class AwsStack:
    home: Path
    address: str
    service: WorkerService
    asking: ActionClient


@pytest.fixture(scope="package")
async def aws_stack(moto: Moto, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AwsStack]:
    """A server and a worker whose connections `frankfurt` and `virginia` lead to moto."""
    home = tmp_path_factory.mktemp("aws")
    file = home / "connections.yaml"
    places = {"frankfurt": moto.document(REGION, OWNER), "virginia": moto.document("us-east-1", OWNER)}
    file.write_text(yaml.safe_dump({"connections": places}))
    server = await embedded.start_server(home)
    client = await connect_temporal(home, temporal_plugin(sandbox=True))
    settings = WorkerSettings(home=home, connections=file, sandbox=True, **PATIENTLY)
    service = WorkerService(client, settings)
    service.prepare_databases()
    async with service.serve_queues():
        yield AwsStack(home, server.address, service, await until_polled(client))
    await service.close()
    await server.stop_server()


@pytest.fixture
async def user(aws_stack: AwsStack, moto: Moto, ns: str) -> AsyncIterator[User]:
    yield User(aws_stack.asking, aws_stack.service, ns)
    moto.ec2.clear()
