"""One stack on each kind of database for the whole session, when first asked for; a namespace of its own per test."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from httpx._transports import default as httpx_transports
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from temporalio.client import Client
from temporalio.worker._workflow import _WorkflowWorker

from activities import healing, keysets, pollers, runs
from activities.mci import dryrun
from activities.systems import examination
from client import actions, queries, session
from client.actions import ActionClient
from client.admission import ActionStarter
from client.reading import Queries
from domain import limits
from domain.faults import Fault
from gateway import guard, native
from gateway import server as gateway_server
from gateway.dialects import calls
from gateway.reads import GatewayClient
from providers.edge import crm
from providers.services import supervisor
from providers.simulated.provider import SimulatedProvider
from starter import shortcut
from store import engine
from tests.patience import PATIENCE
from tests.stack import (
    ActionStack,
    Histories,
    family_of,
    fresh_database,
    hasty_with_providers,
    opened,
    patient_with_clouds,
)
from tests.test_platform.forkserver import ForkServer
from tests.tiers import is_fast
from tests.user import User
from workers import embedded
from workers.mci import MciFamily
from workers.service import WorkerService
from workers.settings import WorkerSettings
from workflows import calls as calls_of_workflows
from workflows.edge import sessions

if TYPE_CHECKING:
    from tests.faulty import Moto

pytest_plugins = ["tests.shares", "tests.postgres"]

gc.disable()  # until everything is loaded: what is loaded stays, and to look through it again and again takes long

# Workers die often here, and there is little load: whoever takes over need not wait.
os.environ.setdefault("RATCHET_STEP_PATIENCE", "1")

# Most servers live for a minute: until one serves, it takes a fifth less work if it collects its garbage less often.
os.environ.setdefault("GOGC", "200")

# All HTTP here is plain: to load every certificate for each client takes longer than what the client asks.
httpx_transports.create_ssl_context = cache(httpx.create_ssl_context)  # type: ignore[attr-defined]

# The stacks here are the only process of their store, and hear of every order at once: they need not look for others.
supervisor.POLL_SECONDS = 3.0

# Threads of one process race here on a busy machine: none gives up before the others had their turn.
engine.BUSY_TIMEOUT_SECONDS = engine.POOL_TIMEOUT_SECONDS = PATIENCE
engine._CONNECT_OPTIONS["connect_timeout"] = embedded.START_SECONDS = PATIENCE
engine._CONNECT_OPTIONS["options"] = f"-c lock_timeout={PATIENCE}s -c statement_timeout={PATIENCE}s"

# A worker to which nobody says in time who polls a queue, whether a run goes on, or what a backend does not allow, lets
# a request pass: here it waits for the answer.
runs.ANSWER_TIMEOUT = pollers.CALL_TIMEOUT = examination.ANSWER_TIMEOUT = timedelta(seconds=PATIENCE)

# A worker of a test will come: who asks before its first poll waits for it. Where none comes, the test says so.
queries.POLLERS_SECONDS = PATIENCE

# A read is sent a second time, as its worker may have died: so this is less than the test's own patience.
Queries.read_seconds = 30

# A gateway of a test waits for a worker and for outcomes as long as the test does: a busy machine is no failure.
GatewayClient.admission_seconds = calls.WAIT_SECONDS = native.DEFAULT_WAIT_SECONDS = PATIENCE

# Nor is one that takes long to connect, to fetch keys, or to say what a cloud offers. Where nobody answers, the test
# sets such a limit.
ActionStarter.admission_seconds = session.CONNECT_SECONDS = keysets.FETCH_SECONDS = PATIENCE
actions.PROGRESS_SECONDS = PATIENCE
limits.VALIDATE_TIMEOUT = dryrun.CLOUD_TIMEOUT = timedelta(seconds=PATIENCE)

# Nor one that lets two seconds pass in a task of a workflow, live or replayed: for the SDK that would be a deadlock.
_WorkflowWorker._deadlock_timeout_seconds = property(lambda _self: PATIENCE, lambda _self, _seconds: None)  # type: ignore[assignment]

# Nor is one that is slow to send, to answer or to be asked. Whoever tries such a limit sets it.
gateway_server.HEADER_SECONDS = guard.BODY_SECONDS = shortcut.GATEWAY_SECONDS = healing.HOLDERS_TIMEOUT = PATIENCE

# Nor is a CRM that is silent for a while: a test that lost one says so. Its acknowledgement may come late, or be lost
# with the CRM before it: it connects again, but not because of a busy machine.
sessions.HEARTBEAT_TIMEOUT = timedelta(seconds=PATIENCE)
crm.ACK_TIMEOUT_WHEN_HEARD = 30

os.umask(0o077)  # as a worker does: a data folder that others may read is refused

_numbers = count(1)
HUNG_ALLOWED = 1  # then it is not the test: every later one would take five minutes to fail as well
_hung: list[str] = []  # tests of this process that were cut off by their timeout


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="every test, and not only the fast ones of tests/tiers.py")
    parser.addoption("--chaos", action="store_true", help="the long run: every fault at every step, not a sample")


def pytest_configure(config: pytest.Config) -> None:
    """If files or folders are named, run every test in them. The first process tells the others."""
    if hasattr(config, "workerinput"):
        config.option.all = config.workerinput["all"]
    elif config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        config.option.all = True
    # A slow machine is no failure. The fast tests: a third of the random examples, by which their own numbers go, too.
    hypothesis_settings.register_profile(
        "tests",
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        max_examples=hypothesis_settings().max_examples // (1 if config.option.all else 3),
    )
    hypothesis_settings.load_profile("tests")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells a process of xdist, which parses the options anew, whether slow files are run."""
    node.workerinput["all"] = node.config.option.all


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the slow files, without loading them."""
    if config.option.all or not collection_path.match("test_*.py"):
        return None
    return not is_fast(collection_path) or None


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Everything is loaded, in the first process too, which collects nothing."""
    gc.enable()
    gc.freeze()


@pytest.fixture(scope="session")
def chaos(request: pytest.FixtureRequest) -> bool:
    """Whether this is the long run (`--chaos`)."""
    return bool(request.config.getoption("--chaos"))


@pytest.fixture(scope="session")
async def histories(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, testrun_uid: str
) -> AsyncIterator[Histories | None]:
    """What the workflows of many stacks did is replayed when all have ended, by one replayer: it takes five seconds of
    CPU to begin. The fast tests leave it to others.
    """
    claimed = tmp_path_factory.getbasetemp().parent / f"replayed-{testrun_uid}"
    kept = Histories(claimed) if request.config.getoption("--all") else None
    yield kept
    if kept:
        await kept.replay()


@pytest.fixture(scope="session")
async def on_sqlite(
    tmp_path_factory: pytest.TempPathFactory, histories: Histories | None
) -> AsyncIterator[ActionStack]:
    async with opened(tmp_path_factory.mktemp("ratchet"), histories) as found:
        yield found


@pytest.fixture(scope="session")
async def on_postgres(
    tmp_path_factory: pytest.TempPathFactory, postgres_url: str, histories: Histories | None
) -> AsyncIterator[ActionStack]:
    """With a Temporal server of its own: queues have one name everywhere."""
    url = fresh_database(postgres_url)
    async with opened(tmp_path_factory.mktemp("ratchet"), histories, store_url=url, cloud_url=url) as found:
        yield found


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A test that hung may leave the shared stack in a state in which every later one would hang as well."""
    if report.failed and "from pytest-timeout" in report.longreprtext:
        _hung.append(report.nodeid)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A module says on which databases its actions run: `pytestmark = pytest.mark.stores("sqlite", "postgres")`."""
    stores = metafunc.definition.get_closest_marker("stores")
    if stores and "action_stack" in metafunc.fixturenames:
        metafunc.parametrize("action_stack", stores.args, indirect=True)


@pytest.fixture
def action_stack(request: pytest.FixtureRequest) -> ActionStack:
    """The stack of this test: on SQLite, unless its module says otherwise."""
    found: ActionStack = request.getfixturevalue(f"on_{getattr(request, 'param', 'sqlite')}")
    if len(_hung) > HUNG_ALLOWED:
        pytest.fail(f"the shared stack is not used any more: {', '.join(_hung)} hung")
    if found.stack.polling.failure:  # the fixture's own task is over: nobody else would say why nothing answers
        raise found.stack.polling.failure
    return found


@pytest.fixture
def home(action_stack: ActionStack) -> Path:
    """RATCHET_HOME of the shared stack: the server's and the stores' files."""
    return action_stack.home


@pytest.fixture
def server(action_stack: ActionStack) -> embedded.EmbeddedServer:
    return action_stack.server


@pytest.fixture
def temporal_address(action_stack: ActionStack) -> str:
    return action_stack.server.address


@pytest.fixture
def client(action_stack: ActionStack) -> Client:
    return action_stack.client


@pytest.fixture
def settings(action_stack: ActionStack) -> WorkerSettings:
    return action_stack.stack.settings


@pytest.fixture
def stack(action_stack: ActionStack) -> WorkerService:
    return action_stack.stack


@pytest.fixture
def asking(client: Client, stack: WorkerService) -> ActionClient:
    """A client of the running stack. It waits for an answer as long as tests do: a busy machine is no failure."""
    asking = ActionClient(client)
    asking.admission_seconds = PATIENCE
    return asking


@pytest.fixture
async def user(asking: ActionClient, stack: WorkerService, ns: str) -> AsyncIterator[User]:
    """A user in a namespace of its own, whose faults end with the test."""
    someone = User(asking, stack, ns)
    yield someone
    await someone.heal_faults()


@pytest.fixture
def patient(stack: WorkerService) -> Iterator[None]:
    """A stack that asks the clouds again for as long as a test takes: what hangs stays under way until it is healed.
    A call that met the fault is not answered any more: it is given up, and repeated, every few seconds.
    """
    with patient_with_clouds(stack, call_seconds=5):
        yield


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """A call that hangs does so until this is set, however long the machine takes until then: not without `patient` or
    `resigned`, or the stack gives it up.
    """
    event = asyncio.Event()

    async def wait_for_event(_cloud: SimulatedProvider, delays: Sequence[Fault], _paths: Sequence[str]) -> None:
        if delays:
            await event.wait()

    monkeypatch.setattr(SimulatedProvider, "simulate_delays", wait_for_event)
    monkeypatch.setattr(calls_of_workflows, "HEARTBEAT", timedelta(seconds=PATIENCE))  # nor is it made once more
    return event


@pytest.fixture
def resigned(stack: WorkerService) -> Iterator[None]:
    """A stack that soon gives up a cloud that says no: the call itself may take as long as a test does."""
    with patient_with_clouds(stack, call_seconds=PATIENCE):
        vars(family_of(stack, MciFamily).retry).update(total_seconds=3)
        yield


@pytest.fixture
def hasty(stack: WorkerService) -> Iterator[None]:
    """A stack that soon gives up a provider that does not answer."""
    with hasty_with_providers(stack):
        yield


@pytest.fixture
def ns() -> str:
    """A namespace that no other test uses."""
    return f"t{next(_numbers)}"


@pytest.fixture(scope="session")
async def forkserver() -> AsyncIterator[ForkServer]:
    """Where processes come from that need not load the program."""
    opened = await ForkServer.open()
    yield opened
    await opened.close()


@pytest.fixture(scope="session")
def postgres_url(cluster_url: str) -> str:
    """An empty database of this process in the run's PostgreSQL."""
    return fresh_database(cluster_url)


@pytest.fixture(scope="session")
def moto() -> Iterator[Moto]:
    """EC2 on moto and our wrapper, for the whole session; every test has its own owner tag."""
    from tests.faulty import PREFIX, running

    with pytest.MonkeyPatch.context() as patch, running("eu-central-1", "us-east-1") as server:
        patch.setenv(f"{PREFIX}AWS_ACCESS_KEY_ID", "AKIATESTTESTTESTTEST")
        patch.setenv(f"{PREFIX}AWS_SECRET_ACCESS_KEY", "a-secret-of-the-tests")
        yield server
