"""The CLI on the shared stack, an MCI to act on, and clouds that can be made to fail."""

from __future__ import annotations

import asyncio
import os
import re
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client

from client import queries
from client.actions import ActionClient
from tests.stack import patient_with_clouds
from tests.test_cli.shell import EXAMPLES, Cli, Clouds, State
from workers.service import WorkerService

NAMESPACE = re.compile(r"(?<![^\W_])t\d")  # the fixture `ns`, alone or as the beginning of a name or of a part of it


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, temporal_address: str, home: Path) -> Cli:
    """The CLI, talking to the shared server."""
    for name in [name for name in os.environ if name.startswith(("TEMPORAL_", "RATCHET_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
    monkeypatch.setenv("RATCHET_HOME", str(home))
    return Cli(monkeypatch)


@pytest.fixture
async def empty_namespace(cli: Cli, client: Client, monkeypatch: pytest.MonkeyPatch) -> str:
    """A namespace in which no worker polls."""
    name = f"empty-{uuid.uuid4().hex[:8]}"
    kept = Duration()
    kept.FromTimedelta(timedelta(days=1))
    request = RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=kept)
    await client.workflow_service.register_namespace(request)
    monkeypatch.setenv("TEMPORAL_NAMESPACE", name)
    monkeypatch.setattr(queries, "POLLERS_SECONDS", 0.1)  # nobody will come
    return name


@pytest.fixture
async def mci(cli: Cli, asking: ActionClient, ns: str) -> str:
    """The short path of an MCI of six VMs that run."""
    created = await cli(f"mci create {ns}/web -o name -f", str(EXAMPLES / "mci-demo.yaml"))
    assert created.code == 0, created.err
    return f"{ns}/web"


@pytest.fixture
async def clouds(asking: ActionClient, stack: WorkerService) -> AsyncIterator[Clouds]:
    told = Clouds(asking)
    with patient_with_clouds(stack):
        yield told
    await told.relent()


@pytest.fixture
def state(asking: ActionClient) -> Callable[[], asyncio.Future[State]]:
    """All that a command on MCIs could have changed: every MCI with its status, and how many actions began since.

    Not what other tests have left, in namespaces of their own or of other families: their clocks and actions may go on.
    """
    began = datetime.now(UTC).isoformat()  # Temporal may list only now what an earlier test started
    actions = f'ObjectKind IN ("mci", "vm") AND StartTime >= "{began}"'

    async def look() -> State:
        views = [view async for view in asking.iterate_objects("mci") if not NAMESPACE.search(view.path)]
        runs = [run.id async for run in asking.client.list_workflows(actions) if not NAMESPACE.search(run.id)]
        return [f"{view.path} {view.status} {view.epoch}" for view in views], len(runs)

    return lambda: asyncio.ensure_future(look())
