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
from temporalio.worker import (
    FixedSizeSlotSupplier,
    Interceptor,
    PollerBehaviorAutoscaling,
    Worker,
    WorkerDeploymentConfig,
    WorkerTuner,
)

from activities.accessguard import AccessGuard, RefusalRecorder
from activities.builds import BuildActivities
from activities.cancelling import CancelActivities
from activities.companions import CompanionReconciler
from activities.connectionchecks import ConnectionActivities
from activities.dryrun import DryRunChecker
from activities.eviction import EvictionActivities
from activities.faultscript import FaultActivities
from activities.fence import Fence, make_acknowledged_heartbeat
from activities.healing import HealingActivities
from activities.inventory import ActionActivities
from activities.login import LoginActivities
from activities.measuring import MeasuredCloud
from activities.orphans import OrphanActivities
from activities.permits import PermitPool
from activities.reads import ReadActivities, collect_direct_reads
from activities.retention import RetentionArchive, RetentionSweep
from activities.verify import VerifyActivities
from activities.workerfacts import WorkerFacts
from client.message_signer import load_signer
from client.tracing import span_function
from domain.connections import Connections
from domain.errors import RatchetError, format_one_line
from domain.limits import ConcurrencyCaps
from domain.model import StoreView
from domain.ports import Cloud
from domain.wire import ACTIONS_QUEUE, BUILDS_QUEUE, cloud_queue, worker_identity
from providers.simulated import SimulatedCloud, create_tables
from store.binding import bind_store
from store.engine import Database
from store.gauges import SqlGauges
from store.identity import read_identity
from store.inventory import SqlInventory
from store.migrate import migrate_schema, newest_schema_version, read_schema_version
from store.permits import SqlPermitStore
from store.schema import StoreIdentityRow
from workers import access
from workers.background import run_in_background
from workers.callsigning import CallSigning
from workers.connections import FileConnectionInspector, ServedClouds, load_connections, make_served_clouds, open_clouds
from workers.context import WorkerContext
from workers.discovery import collect_activities
from workers.families import FAMILIES, list_workflows, merge_hooks
from workers.family import Family
from workers.gauges import report_gauges
from workers.polling import WorkerGroup
from workers.schedule import ensure_heal_schedule, expected_schedules
from workers.sealing import seal_history
from workers.settings import WorkerSettings, redact_url
from workers.slots import MAX_ACTIVITIES, ActivitySlots, AdmissionRush
from workers.storewatch import StoreWatch
from workflows.floods import DEFINITION_ATTRIBUTE

DEFAULT_BUILD = f"ratchet-{metadata.version('ratchet')}"
# At once in a process. One that is taken must be done within TASK_TIMEOUT, or it is done again: in a rush a hundred at
# a time take longer than that, and all end later. A task waits for the store, and for Temporal where it asks a CRM.
MAX_WORKFLOW_TASKS = 20
_log = logging.getLogger("ratchet.companions")


def all_queues(
    connections: Connections, settings: WorkerSettings, families: Sequence[type[Family]] = FAMILIES
) -> list[str]:
    """Returns the queues that workers with these connections and settings poll."""
    own = [queue for family in families for queue in family.served_queues(settings, connections)]
    return [ACTIONS_QUEUE, *map(cloud_queue, connections.served_clouds()), *own]


class WorkerService:
    """Everything that the workers of this process share, created once."""

    def __init__(
        self,
        client: Client,
        settings: WorkerSettings,
        clouds: Mapping[str, Cloud] | None = None,
        interceptors: Sequence[Interceptor] = (),
        families: Sequence[type[Family]] = FAMILIES,
    ) -> None:
        self.client = client = access.with_program_signing(client, settings)
        self.settings = settings
        self.connections = load_connections(settings.connections)
        self._no_simulation = settings.simulated == "off"
        self.authorizer = access.make_authorizer(settings, client.namespace)
        self.database = Database(settings.store_database_url(), settings.store_pool)
        self.cloud_database = Database(settings.cloud_database_url(), settings.store_pool)
        quotas = access.make_quotas(settings)
        self.inventory = SqlInventory(self.database, merge_hooks(families), self.authorizer, quotas)
        self.tokens = access.make_oidc_verifier(settings, self.inventory.record_access_attempt)
        self._builds = BuildActivities(client, self.inventory.record_access_attempt)
        self._login = LoginActivities(self.inventory, self.tokens, load_signer(settings, client.namespace))
        self.simulated = {csp: self._simulated_cloud(csp) for csp in self.connections.served_clouds()}
        self.real = open_clouds(self.connections, settings.call_timeout)
        self.context = WorkerContext(
            client=client,
            settings=settings,
            database=self.database,
            cloud_database=self.cloud_database,
            inventory=self.inventory,
            authorizer=self.authorizer,
            simulated=self.simulated,
            connections=self.connections,
            clouds=self._measured_clouds(clouds or make_served_clouds(self.connections, self.simulated, self.real)),
            permits=PermitPool(
                ConcurrencyCaps(lower_caps=self.connections.caps_by_region()), SqlPermitStore(self.database)
            ),
            fence=Fence(self.inventory, make_acknowledged_heartbeat(client)),
        )
        self.inspection = ConnectionActivities(FileConnectionInspector(self.connections, self.real))
        self.families = [family(self.context) for family in families]
        listings = [listing for family in self.families for listing in family.listings()]
        self._orphans = OrphanActivities(self.inventory, listings, self.context.fence)
        self.queues = all_queues(self.connections, settings, families)
        self._workflows = list_workflows(families)
        self.rush = AdmissionRush()
        self._activities = self._activities_by_queue()
        rows = [row for family in self.families for row in family.companions()]
        self._companions = CompanionReconciler(client, rows, expected_schedules(client, settings.heal_interval))
        self.work_at_begin = {which: work for family in self.families for which, work in family.work_at_begin().items()}
        names = frozenset(str(workflow._Definition.must_from_class(each).name) for each in self._workflows)
        self.refusals = RefusalRecorder(self.inventory.record_access_attempt)
        signer = load_signer(settings, client.namespace) if settings.identities else None
        guard = AccessGuard(self.authorizer, names, self.refusals, self.inventory)
        self._interceptors = [guard, *([CallSigning(signer)] if signer else []), *interceptors]
        self.polling = WorkerGroup({})
        self.exit_after: float | None = None  # see WorkerGroup
        self.store_watch: StoreWatch | None = None  # of a service that is bound to its store

    def prepare_databases(self) -> None:
        """Migrates the databases. Raises for a wrong URL, missing permissions or a newer schema, before any work."""
        migrate_schema(self.database)
        self.cloud_database.run_transaction_blocking(create_tables)
        # Fewer garbage collections: a burst of ten thousand VMs allocates many objects.
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)

    async def bind_to_store(self) -> StoreIdentityRow:
        """Uses no other store from now on; while queues are served, a store that was swapped ends the workers."""
        identity = await self.database.run_transaction(read_identity)
        binding = await asyncio.to_thread(bind_store, self.database, identity)
        where = redact_url(self.settings.store_database_url())
        self.store_watch = StoreWatch(self.client, self.database, binding, identity, where)
        return identity

    @asynccontextmanager
    async def serve_queues(self, queues: Sequence[str] = ()) -> AsyncIterator[None]:
        """Polls these queues, or all, until the block ends; then drains. Raises PollingStopped if polling ends."""
        queues = queues or self.queues
        access.check_worker_key(self.settings, self.client.namespace)
        async with AsyncExitStack() as stack:
            self.context.serving.update(queues)
            stack.callback(self.context.serving.clear)
            for family in self.families:
                await stack.enter_async_context(family.run_beside_workers(queues))
            workers = {queue: self._make_worker(queue) for queue in queues}
            if ACTIONS_QUEUE in queues and self.settings.deployment:
                workers[BUILDS_QUEUE] = self._make_builds_worker()
            self.polling = WorkerGroup(workers, self.exit_after)
            await stack.enter_async_context(self.polling.run_workers())
            if self.store_watch:
                watch = self.store_watch.run_watch(self.polling.end_workers)
                await stack.enter_async_context(run_in_background(watch))
            if self.settings.metrics:
                held = [phase for family in self.families for phase in family.held_phases]
                gauges = report_gauges(self.client, SqlGauges(self.database), held)
                await stack.enter_async_context(run_in_background(gauges))
            if ACTIONS_QUEUE in queues:
                await ensure_heal_schedule(self.client, self.settings.heal_interval)
                works = (self._start_missing_companions(), seal_history(self.database))
                await stack.enter_async_context(run_in_background(*works))
            yield

    async def _start_missing_companions(self) -> None:
        """Starts missing companions; after a failure, the next sweep does."""
        try:
            for companion in await self._companions.start_missing_companions(datetime.now(UTC)):
                _log.warning("started a companion that was missing: %s (%s)", companion.title, companion.id)
        except (RatchetError, RPCError) as error:
            _log.warning("companions could not be looked at; a sweep will: %s", format_one_line(error))

    async def close(self) -> None:
        await self.context.permits.return_all_permits()
        for simulated in self.simulated.values():
            await simulated.close()
        for cloud in self.real.values():
            await cloud.close()
        self.database.close()
        self.cloud_database.close()

    def _make_worker(self, queue: str) -> Worker:
        lasting = [each for family in self.families for each in family.companion_workflows]
        with _auto_upgrade_companions(lasting if self.settings.deployment else ()):
            return self._build_worker(queue)

    def _build_worker(self, queue: str) -> Worker:
        on_actions = queue == ACTIONS_QUEUE
        return Worker(
            self.client,
            task_queue=queue,
            identity=worker_identity(self.client.identity, self.connections.connections_fingerprint),
            # Without an id the SDK hashes every loaded module for each worker.
            build_id=None if self.settings.deployment else DEFAULT_BUILD,
            deployment_config=self._deployment_config(),
            workflows=self._workflows if on_actions else [],
            activities=[
                *(self.inspection.read_connections, self._orphans.remove_orphan),
                *(self._kernel_activities() if on_actions else ()),
                *self._activities.get(queue, ()),
            ],
            interceptors=self._interceptors,
            graceful_shutdown_timeout=timedelta(seconds=self.settings.drain),
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=self.settings.step_patience),
            max_heartbeat_throttle_interval=timedelta(seconds=1),
            tuner=WorkerTuner.create_composite(
                workflow_supplier=FixedSizeSlotSupplier(MAX_WORKFLOW_TASKS),
                activity_supplier=FixedSizeSlotSupplier(MAX_ACTIVITIES) if on_actions else ActivitySlots(self.rush),
                local_activity_supplier=FixedSizeSlotSupplier(MAX_ACTIVITIES),
                nexus_supplier=FixedSizeSlotSupplier(1),
            ),
            workflow_task_poller_behavior=PollerBehaviorAutoscaling(),
            activity_task_poller_behavior=PollerBehaviorAutoscaling(initial=2),
        )

    def _make_builds_worker(self) -> Worker:
        """Returns the worker of orders about builds. It has no version: the first build could not be promoted."""
        return Worker(
            self.client,
            task_queue=BUILDS_QUEUE,
            identity=worker_identity(self.client.identity, self.connections.connections_fingerprint),
            build_id=DEFAULT_BUILD,
            activities=[self._builds.promote_build],
            interceptors=self._interceptors,
            max_concurrent_activities=2,
        )

    def _deployment_config(self) -> WorkerDeploymentConfig | None:
        """Returns the versioning config: actions stay on their build; companions override it."""
        if not self.settings.deployment:
            return None
        return WorkerDeploymentConfig(
            version=WorkerDeploymentVersion(self.settings.deployment, self.settings.build or DEFAULT_BUILD),
            use_worker_versioning=True,
            default_versioning_behavior=VersioningBehavior.PINNED,
        )

    def _activities_by_queue(self) -> dict[str, list[Callable[..., Any]]]:
        """Returns the activities of all families, by queue."""
        found: defaultdict[str, list[Callable[..., Any]]] = defaultdict(list)
        for family in self.families:
            for queue, some in family.activities().items():
                found[queue] += some
        return dict(found)

    def _kernel_activities(self) -> list[Callable[..., Any]]:
        facts = WorkerFacts(
            self.connections.real_places(),
            self._no_simulation,
            sorted(self.connections.backends),
            {which: find for family in self.families for which, find in family.objections().items()},
        )
        healing = HealingActivities(
            self.client,
            self.inventory,
            self._companions,
            self.settings.heal_limits,
            {kind: inspect for family in self.families for kind, inspect in family.inspectors().items()},
            [search for family in self.families for search in family.leftover_searches()],
            RetentionSweep(
                self.client,
                self.inventory,
                RetentionArchive(self.settings.archive_folder()),
                self.settings.retention,
            ),
            self.settings.order_lifetime(),
        )
        dry_runs = DryRunChecker(
            self.inventory,
            self.authorizer,
            {which: examine for family in self.families for which, examine in family.dry_run_checks().items()},
            facts,
            healing.find_dead_holders,
        )
        writes = ActionActivities(
            self.inventory,
            dry_runs,
            self.authorizer,
            self.work_at_begin,
            facts,
            note_admission=self.rush.note_admission,
        )
        reading = ReadActivities(self.inventory, self._describe_store, dry_runs, self.authorizer, facts)
        audits = [self._orphans.find_violations, *(audit for family in self.families for audit in family.audits())]
        verifying = VerifyActivities(self.client, self.inventory, audits, self._companions)
        verbs = {name: some for family in self.families for name, some in family.fault_verbs().items()}
        simulation = FaultActivities(next(iter(self.simulated.values())), verbs)
        eviction = EvictionActivities(self.client, dry_runs)
        cancelling = CancelActivities(self.client, self.inventory)
        kernel = collect_activities(self._login, simulation, writes, eviction, cancelling, healing, verifying, reading)
        return [*kernel, self._orphans.read_orphans]

    def store_reads(self, in_worker_process: bool = False) -> Mapping[str, Callable[..., Any]]:
        """Returns the reads that a gateway in this process answers; without a worker, those of the store alone."""
        return collect_direct_reads(
            [*self._kernel_activities(), *self._activities.get(ACTIONS_QUEUE, ())], in_worker_process
        )

    def activity_names(self) -> list[str]:
        """Returns the names of all activities that this process offers, on any queue."""
        offered: list[Callable[..., Any]] = [
            *self._kernel_activities(),
            *(self.inspection.read_connections, self._orphans.remove_orphan, self._builds.promote_build),
            *(each for some in self._activities.values() for each in some),
        ]
        return sorted({str(activity._Definition.must_from_callable(each).name) for each in offered})

    async def _describe_store(self) -> StoreView:
        found = await asyncio.to_thread(read_schema_version, self.database)
        seen = StoreView(
            url=redact_url(self.settings.store_database_url()),
            version=found,
            newest=newest_schema_version(),
            no_simulation=self._no_simulation,
        )
        if found != newest_schema_version():
            return seen
        mine = await self.database.run_transaction(read_identity)
        return seen.model_copy(update={"id": mine.id, "incarnation": mine.incarnation})

    def _measured_clouds(self, clouds: Mapping[str, Cloud]) -> Mapping[str, Cloud]:
        """Wraps the clouds in measurements, if metrics or traces are on."""
        if not (self.settings.metrics or self.settings.traces):
            return clouds
        return ServedClouds(
            {csp: MeasuredCloud(csp, cloud, span_function(self.settings)) for csp, cloud in clouds.items()}
        )

    def _simulated_cloud(self, csp: str) -> SimulatedCloud:
        latency, jitter = self.settings.simulated_latency, self.settings.simulated_jitter
        journal = self.settings.simulated_journal
        return SimulatedCloud(csp, self.cloud_database, latency=latency, jitter=jitter, journal=journal)


@contextmanager
def _auto_upgrade_companions(lasting: Sequence[type]) -> Iterator[None]:
    """Gives these workflows the behavior AUTO_UPGRADE while a versioned worker is created.

    Not declared in the workflows, as the server refuses it without versions.
    """
    pinned = {each: workflow._Definition.must_from_class(each) for each in lasting}
    for each, definition in pinned.items():
        moving = dataclasses.replace(definition, versioning_behavior=VersioningBehavior.AUTO_UPGRADE)
        setattr(each, DEFINITION_ATTRIBUTE, moving)
    yield
    for each, definition in pinned.items():
        setattr(each, DEFINITION_ATTRIBUTE, definition)
