"""One worker process: its store, its clouds, and a Temporal worker per queue."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from importlib import metadata
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.service import RPCError
from temporalio.worker import Interceptor, PollerBehaviorAutoscaling, Worker, WorkerDeploymentConfig

from activities.companions import Companions
from activities.connections import ConnectionReading
from activities.eviction import EvictActivities
from activities.fence import Fence, acknowledged_heartbeats
from activities.healing import HealActivities
from activities.inventory import ActionWrites
from activities.measuring import MeasuredCloud
from activities.orphans import OrphanActivities
from activities.permits import Permits
from activities.reads import ReadActivities, store_reads
from activities.retention import Archive, Retention
from activities.simulation import FaultActivities
from activities.verify import VerifyActivities
from client.tracing import span
from domain.connections import Connections
from domain.errors import RatchetError, one_line
from domain.limits import ConcurrencyCaps
from domain.model import StoreView
from domain.ports import Cloud
from domain.wire import ACTIONS_QUEUE, cloud_queue, worker_identity
from providers.simulated import SimulatedCloud, create_tables
from store.begin import allow_everybody
from store.engine import Database
from store.identity import identity
from store.inventory import SqlInventory
from store.migrate import migrate, newest, version
from store.permits import SqlPermitStore
from workers import policies
from workers.connections import ConnectionInspection, ServedClouds, clouds_of, load, open_clouds
from workers.context import WorkerContext
from workers.families import FAMILIES, hooks_of, workflows_of
from workers.family import Family
from workers.offered import activities_of
from workers.schedule import keep_schedule, schedules
from workers.settings import Settings, redacted
from workflows.guard import DEFINITION

BUILD = f"ratchet-{metadata.version('ratchet')}"
_log = logging.getLogger("ratchet.companions")


def all_queues(connections: Connections, families: Sequence[type[Family]] = FAMILIES) -> list[str]:
    """Returns the queues that workers with these connections poll."""
    own = [queue for family in families for queue in family.queues]
    return [ACTIONS_QUEUE, *map(cloud_queue, connections.clouds()), *own]


class Service:
    """Everything that the workers of this process share, created once."""

    def __init__(
        self,
        client: Client,
        settings: Settings,
        clouds: Mapping[str, Cloud] | None = None,
        interceptors: Sequence[Interceptor] = (),
        families: Sequence[type[Family]] = FAMILIES,
    ) -> None:
        self.client = client
        self.settings = settings
        self.connections = load(settings.connections)
        self._allowed = policies.load(settings.policy_file).check if settings.policy_file else allow_everybody
        self.database = Database(settings.store(), settings.store_pool)
        self.cloud_database = Database(settings.cloud(), settings.store_pool)
        self.inventory = SqlInventory(self.database, hooks_of(families), self._allowed)
        self.simulated = {csp: self._simulated(csp) for csp in self.connections.clouds()}
        self.real = open_clouds(self.connections, settings.call_timeout)
        self.context = WorkerContext(
            client=client,
            settings=settings,
            database=self.database,
            cloud_database=self.cloud_database,
            inventory=self.inventory,
            simulated=self.simulated,
            connections=self.connections,
            clouds=self._measured_clouds(clouds or clouds_of(self.connections, self.simulated, self.real)),
            permits=Permits(ConcurrencyCaps(lower=self.connections.limits()), SqlPermitStore(self.database)),
            fence=Fence(self.inventory, acknowledged_heartbeats(client)),
        )
        self.inspection = ConnectionReading(ConnectionInspection(self.connections, self.real))
        self.families = [family(self.context) for family in families]
        listings = [listing for family in self.families for listing in family.listings()]
        self._orphans = OrphanActivities(self.inventory, listings, self.context.fence)
        self.queues = all_queues(self.connections, families)
        self._workflows = workflows_of(families)
        self._activities = self._family_activities()
        rows = [row for family in self.families for row in family.companions()]
        self._companions = Companions(client, rows, schedules(client, settings.heal_interval))
        self.at_once = {which: work for family in self.families for which, work in family.at_once().items()}
        self._interceptors = interceptors

    def prepare(self) -> None:
        """Migrates the databases. Raises for a wrong URL, missing permissions or a newer schema, before any work."""
        migrate(self.database)
        self.cloud_database.run_here(create_tables)
        # Fewer garbage collections: a burst of ten thousand VMs allocates many objects.
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)

    @asynccontextmanager
    async def serve(self, queues: Sequence[str] = ()) -> AsyncIterator[None]:
        """Polls these queues, or all, until the block ends; then drains."""
        queues = queues or self.queues
        async with AsyncExitStack() as stack:
            self.context.serving.update(queues)
            stack.callback(self.context.serving.clear)
            for family in self.families:
                await stack.enter_async_context(family.serving(queues))
            workers = [await stack.enter_async_context(self._worker(queue)) for queue in queues]
            if ACTIONS_QUEUE in queues:
                await keep_schedule(self.client, self.settings.heal_interval)
                await stack.enter_async_context(self._companions_ensured())
            yield
            await asyncio.gather(*(worker.shutdown() for worker in workers))  # concurrently, as each may take long

    @asynccontextmanager
    async def _companions_ensured(self) -> AsyncIterator[None]:
        """Starts missing companions in the background; after a failure, the next sweep does."""

        async def ensure() -> None:
            try:
                for each in await self._companions.ensure(datetime.now(UTC)):
                    _log.warning("started a companion that was missing: %s (%s)", each.title, each.id)
            except (RatchetError, RPCError) as error:
                _log.warning("companions could not be looked at; a sweep will: %s", one_line(error))

        task = asyncio.create_task(ensure())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        await self.context.permits.close()
        for simulated in self.simulated.values():
            await simulated.close()
        for cloud in self.real.values():
            await cloud.close()
        self.database.close()
        self.cloud_database.close()

    def _worker(self, queue: str) -> Worker:
        on_actions = queue == ACTIONS_QUEUE
        lasting = [each for family in self.families for each in family.lasting] if self.settings.deployment else ()
        with _moving_on(lasting):
            return self._build_worker(queue, on_actions)

    def _build_worker(self, queue: str, on_actions: bool) -> Worker:
        return Worker(
            self.client,
            task_queue=queue,
            identity=worker_identity(self.client.identity, self.connections.fingerprint),
            # Without an id the SDK hashes every loaded module for each worker.
            build_id=None if self.settings.deployment else BUILD,
            deployment_config=self._deployment(),
            workflows=self._workflows if on_actions else [],
            activities=[
                *(self.inspection.read_connections, self._orphans.remove_orphan),
                *(self._kernel_activities() if on_actions else ()),
                *self._activities.get(queue, ()),
            ],
            interceptors=self._interceptors,
            graceful_shutdown_timeout=timedelta(seconds=self.settings.drain),
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=self.settings.step_patience),
            max_heartbeat_throttle_interval=timedelta(seconds=2),
            workflow_task_poller_behavior=PollerBehaviorAutoscaling(),
            activity_task_poller_behavior=PollerBehaviorAutoscaling(initial=2),
        )

    def _deployment(self) -> WorkerDeploymentConfig | None:
        """Returns the versioning config: actions stay on their build; companions override it."""
        if not self.settings.deployment:
            return None
        return WorkerDeploymentConfig(
            version=WorkerDeploymentVersion(self.settings.deployment, self.settings.build or BUILD),
            use_worker_versioning=True,
            default_versioning_behavior=VersioningBehavior.PINNED,
        )

    def _family_activities(self) -> dict[str, list[Callable[..., Any]]]:
        """Returns the activities of all families, by queue."""
        found: defaultdict[str, list[Callable[..., Any]]] = defaultdict(list)
        for family in self.families:
            for queue, some in family.activities().items():
                found[queue] += some
        return dict(found)

    def _kernel_activities(self) -> list[Callable[..., Any]]:
        writes, healing, reading = (
            ActionWrites(self.inventory, self._allowed, self.at_once, self.connections.places()),
            HealActivities(
                self.client,
                self.inventory,
                self.settings.heal_limits,
                {kind: inspect for family in self.families for kind, inspect in family.inspectors().items()},
                self._companions,
                [search for family in self.families for search in family.searches()],
                Retention(
                    self.client, self.inventory, Archive(self.settings.archive_folder()), self.settings.retention
                ),
                self.settings.order_life(),
            ),
            ReadActivities(
                self.inventory,
                self._describe_store,
                self._allowed,
                {which: examine for family in self.families for which, examine in family.dry_run_checks().items()},
                self.connections.places(),
            ),
        )
        audits = [self._orphans.audit, *(audit for family in self.families for audit in family.audits())]
        verifying = VerifyActivities(self.client, self.inventory, audits, self._companions)
        verbs = {name: some for family in self.families for name, some in family.fault_verbs().items()}
        simulation = FaultActivities(next(iter(self.simulated.values())), verbs)
        eviction = EvictActivities(self.client, self._allowed)
        kernel = activities_of(simulation, writes, eviction, healing, verifying, reading)
        return [*kernel, self._orphans.read_orphans]

    def store_reads(self) -> Mapping[str, Callable[..., Any]]:
        """The reads that need nothing but the store, by their names: a gateway answers them without a worker."""
        return store_reads([*self._kernel_activities(), *self._activities.get(ACTIONS_QUEUE, ())])

    def activity_names(self) -> list[str]:
        """Every activity that this process offers, on whatever queue."""
        offered = [
            *self._kernel_activities(),
            self._orphans.remove_orphan,
            *(each for some in self._activities.values() for each in some),
        ]
        return sorted({str(activity._Definition.must_from_callable(each).name) for each in offered})

    async def _describe_store(self) -> StoreView:
        found = await asyncio.to_thread(version, self.database)
        seen = StoreView(url=redacted(self.settings.store()), version=found, newest=newest())
        if found != newest():
            return seen
        mine = await self.database.run(identity)
        return seen.model_copy(update={"id": mine.id, "incarnation": mine.incarnation})

    def _measured_clouds(self, clouds: Mapping[str, Cloud]) -> Mapping[str, Cloud]:
        """Wraps the clouds in measurements, if metrics or traces are on."""
        if not (self.settings.metrics or self.settings.traces):
            return clouds
        return ServedClouds({csp: MeasuredCloud(csp, cloud, span(self.settings)) for csp, cloud in clouds.items()})

    def _simulated(self, csp: str) -> SimulatedCloud:
        latency, jitter = self.settings.simulated_latency, self.settings.simulated_jitter
        journal = self.settings.simulated_journal
        return SimulatedCloud(csp, self.cloud_database, latency=latency, jitter=jitter, journal=journal)


@contextmanager
def _moving_on(lasting: Sequence[type]) -> Iterator[None]:
    """Gives these workflows the behavior AUTO_UPGRADE while a versioned worker is created.

    Not declared in the workflows, as the server refuses it without versions.
    """
    pinned = {each: workflow._Definition.must_from_class(each) for each in lasting}
    for each, definition in pinned.items():
        moving = dataclasses.replace(definition, versioning_behavior=VersioningBehavior.AUTO_UPGRADE)
        setattr(each, DEFINITION, moving)
    yield
    for each, definition in pinned.items():
        setattr(each, DEFINITION, definition)
