"""The systems family in a worker: one queue per backend, and a supervisor of its services beside the workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import structlog

from activities.orphans import ProviderListing
from activities.systems.backend import (
    BackendActivities,
    BackendLogActivities,
    BackendReadActivities,
    SystemRecordActivities,
)
from activities.systems.examination import BackendRuleActivities, SystemExaminer
from activities.systems.listing import ServiceListing
from activities.workerfacts import RaiseObjection
from domain.connections import Connections
from domain.errors import RatchetError
from domain.model import AT_WRITE_TIME
from domain.paths import ancestor_paths
from domain.services.rollout import ServiceFacts
from domain.systems import KINDS
from domain.systems.ports import backend_queue
from domain.systems.tables import PART, SYSTEM
from domain.wire import ACTIONS_QUEUE
from providers.services.container import ContainerRunner
from providers.services.ledger import BackendLedger, create_tables
from providers.services.process import ProcessRunner
from providers.services.runner import InstanceRunner
from providers.services.supervisor import Supervisor
from providers.systems.simulated import SimulatedRunner
from store.hooks import HooksByKind
from store.systems.hooks import HOOKS, SqlSystemStore
from workers.background import run_in_background
from workers.context import WorkerContext
from workers.family import ActivitiesByQueue, Family
from workers.settings import WorkerSettings
from workers.supervision import container_rules, process_rules, supervise_forever
from workflows.systems.actions import CreateSystem, DeleteSystem, DeployPart, TearDownSystem

BACKENDS = ("simulated", "process", "container")
LOOK_SECONDS = 10.0  # seconds between full comparisons, for changes that could not be written

_log = structlog.get_logger("keeper")


class SystemFamily(Family):
    """Systems, their parts, and the records of deploys and teardowns."""

    name = "systems"
    kinds = KINDS
    workflows = (CreateSystem, DeployPart, TearDownSystem, DeleteSystem)
    queues = tuple(map(backend_queue, BACKENDS))

    @classmethod
    def served_queues(cls, settings: WorkerSettings, connections: Connections) -> Sequence[str]:
        """Returns the queues of the backends that are switched on: `process` runs commands on this machine."""
        return [backend_queue(name) for name in settings.backends]

    @classmethod
    def hooks(cls) -> HooksByKind:
        return HOOKS

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        self._store = SqlSystemStore(context.database)
        home = context.settings.home
        runners: tuple[InstanceRunner, ...] = (
            SimulatedRunner(context.settings.simulated_latency),
            ProcessRunner(home / "services", process_rules(context.settings)),
            ContainerRunner(home / "services", process_rules(context.settings), container_rules(context.settings)),
        )
        self.supervisors = {
            runner.name: Supervisor(
                runner, BackendLedger(runner.name, context.cloud_database), home / f"keeper-{runner.name}.lock"
            )
            for runner in runners
        }
        limited = {name: some for name, some in self.supervisors.items() if name != SimulatedRunner.name}
        self._examination = SystemExaminer(context.client, context.inventory, limited, context.serving)

    def activities(self) -> ActivitiesByQueue:
        writes = SystemRecordActivities(self._store)
        reads = BackendReadActivities(self.supervisors, self._store)
        found: dict[str, list[Callable[..., Any]]] = {
            ACTIONS_QUEUE: [
                writes.accept_deploy,
                writes.accept_removal,
                writes.revert_deploy,
                reads.read_services,
                reads.read_definition,
            ]
        }
        for name, supervisor in self.supervisors.items():
            work = BackendActivities(supervisor, self._store, self.context.inventory, self.context.fence)
            found[backend_queue(name)] = [
                *(work.prepare_system, work.roll_out, work.assess_parts),
                *(work.settle_parts, work.remove_parts, work.settle_removal),
                BackendLogActivities(supervisor, self._store).read_service_logs,
                BackendRuleActivities(supervisor).read_objections,
            ]
        return found

    def objections(self) -> Mapping[tuple[str, str], RaiseObjection]:
        """Returns who says that a backend is not served, or does not allow what every action would start."""
        forbidden = self._examination.check_services_allowed
        return {
            (SYSTEM.kind, "create"): self._examination.check_backend_served,
            (SYSTEM.kind, "deploy"): forbidden,
            (PART.kind, "deploy"): forbidden,
        }

    def listings(self) -> Sequence[ProviderListing]:
        """Lists what every backend runs, for the audit."""
        return [ServiceListing(self.supervisors, self._store)]

    @asynccontextmanager
    async def run_beside_workers(self, queues: Sequence[str]) -> AsyncIterator[None]:
        """Supervises the backends that this process serves. Services keep running when the process ends."""
        served = [supervisor for name, supervisor in self.supervisors.items() if backend_queue(name) in queues]
        if served:
            await self.context.cloud_database.run_transaction(create_tables)
        works = (
            work(supervisor, self._store) for supervisor in served for work in (_supervise_and_record, _record_reports)
        )
        async with run_in_background(*works):
            yield


async def _supervise_and_record(supervisor: Supervisor, store: SqlSystemStore) -> None:
    """Runs the supervisor, and records what it reports."""

    async def report(facts: Sequence[ServiceFacts], gone: Sequence[str]) -> None:
        if facts:
            await store.record_observations(facts, AT_WRITE_TIME)
        if gone:
            await _delete_removed_parts(supervisor, store)

    await supervise_forever(supervisor, report)


async def _record_reports(supervisor: Supervisor, store: SqlSystemStore) -> None:
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        await supervisor.is_supervising.wait()
        with suppress(RatchetError):
            facts = await supervisor.describe_services()
            if facts and (changed := await store.record_observations(facts, AT_WRITE_TIME)):
                _log.info("corrected what services are shown as", services=changed)
            await _delete_removed_parts(supervisor, store)


async def _delete_removed_parts(supervisor: Supervisor, store: SqlSystemStore) -> None:
    """Deletes the records of parts whose removal was cut off and that the backend has removed since."""
    if leaving := await store.list_parts_being_removed(supervisor.name):
        run = [
            fact.path for fact in await supervisor.describe_services()
        ]  # read second: includes services started meanwhile
        there = {path for each in run for path in (each, *ancestor_paths(each))}
        if gone := {path: epoch for path, epoch in leaving.items() if path not in there}:
            await store.delete_removed_parts(gone, AT_WRITE_TIME)
