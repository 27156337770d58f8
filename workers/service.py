"""One worker process: its store, its clouds, and a worker for each queue it serves."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from importlib import metadata
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Interceptor, PollerBehaviorAutoscaling, Worker

from activities.healing import Healing
from activities.inventory import ActionWrites
from activities.permits import Permits
from activities.reading import Reading
from activities.verifying import Verifying
from domain.limits import CLOUDS
from domain.model import StoreView
from domain.ports import Cloud
from domain.wire import ACTIONS_QUEUE, cloud_queue
from providers.simulated import SimulatedCloud, create_tables
from store.engine import Database
from store.inventory import SqlInventory
from store.migrate import migrate, newest, version
from workers.crash import Crashing, CrashPoints
from workers.families import QUEUES, WORKFLOWS, activities, audits, beside
from workers.parts import Parts
from workers.settings import Settings, redacted

BUILD = f"ratchet-{metadata.version('ratchet')}"
ALL_QUEUES = (ACTIONS_QUEUE, *map(cloud_queue, CLOUDS), *QUEUES)


class Service:
    """What this process knows: made once, shared by all its workers."""

    def __init__(self, client: Client, settings: Settings, clouds: Mapping[str, Cloud] | None = None) -> None:
        self.client = client
        self.settings = settings
        self.database = Database(settings.store())
        self.cloud_database = Database(settings.cloud())
        self.inventory = SqlInventory(self.database)
        self.simulated = {csp: self._simulated(csp) for csp in CLOUDS}
        self.parts = Parts(
            client=client,
            settings=settings,
            database=self.database,
            cloud_database=self.cloud_database,
            inventory=self.inventory,
            simulated=self.simulated,
            clouds=clouds or self.simulated,
            permits=Permits(CLOUDS, settings.part()),
        )
        self._activities = activities(self.parts)
        self._interceptors = self._crashing()

    def prepare(self) -> None:
        """Bring the databases up to date. Wrong URL, no permission, newer schema: said here, before any work."""
        migrate(self.database)
        self.cloud_database.run_here(create_tables)
        # A burst of ten thousand VMs makes objects faster than they die: do not collect all the time.
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)

    @asynccontextmanager
    async def serve(self, queues: Sequence[str] = ALL_QUEUES) -> AsyncIterator[None]:
        """Poll these queues until the block ends; then finish what runs, or hand it over."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(beside(self.parts, queues))
            for queue in queues:
                await stack.enter_async_context(self._worker(queue))
            yield

    async def close(self) -> None:
        for cloud in self.simulated.values():
            await cloud.close()
        self.database.close()
        self.cloud_database.close()

    def _worker(self, queue: str) -> Worker:
        on_actions = queue == ACTIONS_QUEUE
        return Worker(
            self.client,
            task_queue=queue,
            build_id=BUILD,  # without one the SDK hashes every loaded module, for each worker, at each start
            workflows=WORKFLOWS if on_actions else [],
            activities=[*(self._kernel_activities() if on_actions else ()), *self._activities.get(queue, ())],
            interceptors=self._interceptors,
            graceful_shutdown_timeout=timedelta(seconds=10),
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),  # how long a dead worker holds others up
            max_heartbeat_throttle_interval=timedelta(seconds=2),
            workflow_task_poller_behavior=PollerBehaviorAutoscaling(),
            activity_task_poller_behavior=PollerBehaviorAutoscaling(initial=2),
        )

    def _kernel_activities(self) -> list[Callable[..., Any]]:
        writes, healing, reading = (
            ActionWrites(self.inventory),
            Healing(self.client, self.inventory),
            Reading(self.inventory, self._describe_store),
        )
        verifying = Verifying(self.client, self.inventory, audits(self.parts))
        return [
            *(writes.begin, writes.advance, writes.finish, healing.heal_holders, verifying.verify),
            *(
                reading.read_object,
                reading.read_objects,
                reading.read_history,
                reading.read_locks,
                reading.read_check,
                reading.read_outcome,
                reading.read_store,
            ),
        ]

    def activity_names(self) -> list[str]:
        """Every activity that this process offers, on whatever queue."""
        offered = [*self._kernel_activities(), *(each for some in self._activities.values() for each in some)]
        return sorted({str(activity._Definition.must_from_callable(each).name) for each in offered})

    def _crashing(self) -> list[Interceptor]:
        """Only for tests that kill a worker at every step."""
        if not self.settings.crash_file:
            return []
        points = CrashPoints(self.settings.crash_file)
        self.database.watch = self.cloud_database.watch = points.transaction
        return [Crashing(points)]

    async def _describe_store(self) -> StoreView:
        found = await asyncio.to_thread(version, self.database)
        return StoreView(url=redacted(self.settings.store()), version=found, newest=newest())

    def _simulated(self, csp: str) -> SimulatedCloud:
        latency, jitter = self.settings.simulated_latency, self.settings.simulated_jitter
        return SimulatedCloud(csp, self.cloud_database, latency=latency, jitter=jitter)
