"""The stack of the tests: a Temporal server, a database, and a worker for every queue."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from temporalio.client import Client, WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import Replayer

from client.actions import ActionClient
from client.connection import connect_temporal
from client.payloads import data_converter
from domain.wire import ACTIONS_QUEUE
from tests.patience import PATIENCE
from workers import embedded
from workers.families import WORKFLOWS
from workers.family import Family
from workers.mci import MciFamily
from workers.plugin import temporal_plugin
from workers.service import WorkerService
from workers.settings import WorkerSettings

F = TypeVar("F", bound=Family)

ALIKE = 3
# The server gives tasks to polls of a worker that is frozen or cut off as long as they are open, a minute by itself;
# each is tried again when its timeout is over. Tests that lose workers need not wait for the whole minute.
SHORT_POLLS = 'matching.longPollExpirationInterval="5s"'
_numbers = count(1)
# The python of the tests may be where only its owner reaches it: services run as the tests' user.
PROCESS_BACKEND = {
    "backends": "simulated,process,container",
    "programs": "/",
    "images": "/",
    "service_users": "worker",
    "webhooks": "*",
}


@dataclass(frozen=True)
class ActionStack:
    """One server, one stack."""

    home: Path
    server: embedded.EmbeddedServer
    client: Client
    stack: WorkerService


def family_of(service: WorkerService, kind: type[F]) -> F:
    """A family as this service made it."""
    return next(family for family in service.families if isinstance(family, kind))


@contextmanager
def hasty_with_providers(service: WorkerService) -> Iterator[None]:
    """Calls to providers are given up after two seconds, and after five for good: for tests in which one is."""
    retries = [vars(family.retry) for family in service.families]
    before = [dict(retry) for retry in retries]
    for retry in retries:
        retry.update(call_seconds=2, total_seconds=5)
    try:
        yield
    finally:
        for retry, was in zip(retries, before, strict=True):
            retry.update(was)


@contextmanager
def patient_with_clouds(service: WorkerService, call_seconds: float | None = None) -> Iterator[None]:
    """Calls to the clouds of VMs are repeated for `PATIENCE`. The stack's own few seconds are over too soon for a test
    that looks at an action under way, if the machine is busy."""
    retry = family_of(service, MciFamily).retry
    before = dict(vars(retry))
    vars(retry).update(total_seconds=PATIENCE, call_seconds=call_seconds or retry.call_seconds)
    try:
        yield
    finally:
        vars(retry).update(before)


async def until_polled(client: Client, *queues: str) -> ActionClient:
    """A client, when Temporal lists a worker for actions and these queues: it does so only after a while."""
    asking = ActionClient(client)
    for queue in (ACTIONS_QUEUE, *queues):
        await asking.check_polled(queue)
    return asking


@asynccontextmanager
async def opened(
    home: Path, histories: Histories | None = None, tuning: Sequence[str] = (), **settings: str
) -> AsyncIterator[ActionStack]:
    """A stack that ends when the block does. `histories`: where what its workflows did is kept, to be replayed.

    `tuning`: more values of the server's dynamic configuration.
    """
    quick: dict[str, Any] = {"simulated_latency": 0, "simulated_jitter": 0, "call_timeout": 30, "patience": 60}
    # A sweep of the schedule would heal what a test is about to look at, which it broke on purpose. The schedule itself
    # is tried in tests/test_healing.py, with an interval of its own and by a trigger; sweeps beside actions, in chaos.
    quick["heal_interval"] = 86_400
    quick |= PROCESS_BACKEND
    server = await embedded.start_server(home, tuning=tuning)
    try:
        given = WorkerSettings.model_validate({"home": home, **quick, **settings})
        client = await connect_temporal(home, temporal_plugin(payloads=data_converter(given)))
        stack = WorkerService(client, given)
        try:
            stack.prepare_databases()
            async with stack.serve_queues():
                await until_polled(client)
                yield ActionStack(home, server, client, stack)
        finally:
            await stack.close()
        if histories:
            await histories.keep(client)
    finally:
        await server.stop_server()
        await asyncio.sleep(0.2)  # the SDK's threads end a moment later; leaving at once can abort the interpreter


class Histories:
    """What workflows did: so much of it that every step, from one event to the next, is in it.

    `claimed`: a file in which the processes of a run write what each of them replays; no other one does.
    """

    def __init__(self, claimed: Path) -> None:
        self._kept: list[WorkflowHistory] = []
        self._claimed = claimed
        self._known: set[str] = set()
        self._namespace = ""

    async def keep(self, client: Client) -> None:
        """Keep what has a new step, of a few of those that ended alike after as many events: to read thousands takes a
        minute.
        """
        self._namespace = client.namespace
        alike: Counter[tuple[object, ...]] = Counter()
        async for run in client.list_workflows("TaskQueue = 'actions'"):
            kind = (run.workflow_type, run.status, run.history_length)
            alike[kind] += 1
            if alike[kind] <= ALIKE or not run.history_length:  # Temporal tells it when a run has ended
                self._keep_new(await client.get_workflow_handle(run.id, run_id=run.run_id).fetch_history())

    def _keep_new(self, history: WorkflowHistory) -> None:
        kind = history.events[0].workflow_execution_started_event_attributes.workflow_type.name
        events = [
            f"{event.event_type}{event.activity_task_scheduled_event_attributes.activity_type.name}"
            for event in history.events
        ]
        steps = {f"{kind} {one} {next_one}" for one, next_one in pairwise(events)}
        if not steps <= self._known and self._claim(steps):
            self._kept.append(history)

    def _claim(self, steps: set[str]) -> bool:
        """Whether no process replays one of these steps yet: then it is this one that does."""
        with self._claimed.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            self._known = set(file.read().splitlines())
            new = steps - self._known
            file.writelines(f"{step}\n" for step in sorted(new))
        self._known |= new
        return bool(new)

    async def replay(self, payloads: DataConverter | None = None) -> None:
        """Whatever a workflow did, it does once more here, in the sandbox, which finds forbidden calls.

        Live workflows in it would do the same things thousands of times, for a twelfth of the CPU of tests of actions.
        """

        if not self._kept:
            return

        async def kept() -> AsyncIterator[WorkflowHistory]:
            for history in self._kept:
                yield history

        plugins = [temporal_plugin(sandbox=True, payloads=payloads)]
        replayer = Replayer(workflows=WORKFLOWS, plugins=plugins, namespace=self._namespace)
        async with replayer.workflow_replay_iterator(kept()) as results:
            failures = [
                f"{result.replay_failure}; its history: {_store_failed_history(result.history)}"
                async for result in results
                if result.replay_failure
            ]
        assert not failures, failures[:3]


def _store_failed_history(history: WorkflowHistory) -> Path:
    """Writes a history that could not be replayed to a file, as the next run may not make such a one."""
    file = Path(tempfile.mkdtemp(prefix="history-")) / f"{history.workflow_id}.{history.run_id}.json"
    file.write_text(history.to_json())
    return file


def is_locked(home: Path) -> bool:
    """Whether somebody holds a transaction on the SQLite files of a stack: if frozen, it keeps all others out."""
    for file in ("inventory.db", "cloud.db"):
        other = sqlite3.connect(home / file, isolation_level=None, timeout=2)
        try:
            other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        finally:
            other.close()
    return False


def fresh_database(postgres_url: str, template: str = "") -> str:
    """A new database in the run's PostgreSQL: empty, or a copy of another. Its time zone is not UTC, as on many
    servers.
    """
    name, url = f"db_{os.getpid()}_{next(_numbers)}", sa.make_url(postgres_url)
    copied = f" TEMPLATE {sa.make_url(template).database} STRATEGY FILE_COPY" if template else ""
    engine = sa.create_engine(
        url.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool
    )
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}{copied}")
        connection.exec_driver_sql(f"ALTER DATABASE {name} SET timezone TO 'Asia/Seoul'")
    return url.set(database=name).render_as_string(hide_password=False)
