"""Reconciles one service: its instances, and a task that watches each of them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from domain.errors import RatchetError, format_one_line
from domain.services.definition import Node
from domain.services.rollout import (
    RunningInstance,
    ServiceFacts,
    instance_revision,
    plan_instance_changes,
    restart_delay,
)
from providers.services.ledger import BackendLedger, SupervisedInstance, WantedService
from providers.services.proxy import InstanceRoute
from providers.services.runner import InstanceRunner

T = TypeVar("T")

CRASHES_FORGIVEN_AFTER = 10.0  # seconds of health after which crashes are forgotten
FIRST_PROBE_PAUSE = 0.02  # seconds until the second check; then up to the definition's interval
PROXY_NUMBER = 0  # the proxy's number; instances begin at 1


class ServiceReconciler:
    """Starts and stops a service's instances whenever its order or an instance's state changes."""

    def __init__(self, path: str, runner: InstanceRunner, ledger: BackendLedger, touch: Callable[[str], None]) -> None:
        self.path = path
        self._runner = runner
        self._ledger = ledger
        self._mark_changed = touch
        self._wanted: WantedService | None = None
        self._node = Node(command=["none"], instances=0)
        self._units: dict[str, SupervisedInstance] = {}
        self._stops: dict[str, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._reconciling = asyncio.Lock()
        self._leaving = self._needs_reconcile = False
        self._noted: dict[str, bool] = {}
        self._routed: list[InstanceRoute] | None = None

    def adopt_instance(self, unit: SupervisedInstance) -> None:
        """Watches an instance that is in the ledger from an earlier supervisor."""
        self._add_instance(unit)
        self._start_task(self._supervise_instance(unit, from_before=True))

    def set_service_order(self, wanted: WantedService) -> None:
        """Sets the service's order."""
        self._wanted = wanted
        self._node = Node.model_validate(wanted.definition | ({"instances": 0} if wanted.removing else {}))
        self._request_reconcile()

    def remove_service_order(self) -> None:
        """Stops all instances, as no order wants the service."""
        self._request_reconcile()

    def is_service_gone(self) -> bool:
        return not self._units and (self._wanted is None or self._wanted.removing)

    def service_facts(self) -> ServiceFacts:
        """Returns the service's present facts."""
        units = [unit for unit in self._units.values() if unit.number != PROXY_NUMBER]
        now = instance_revision(self._node)
        healthy = [unit for unit in units if unit.healthy and not unit.stopping]
        front = [unit.healthy for unit in self._units.values() if unit.number == PROXY_NUMBER]
        reachable = any(front) if self._proxy_to_run() else True
        wanted = [unit for unit in units if unit.revision == now]  # only instances of the current revision count
        front_or_wanted = [unit for unit in self._units.values() if unit in wanted or unit.number == PROXY_NUMBER]
        troubled = max(
            self._units.values(),
            key=lambda unit: (unit in front_or_wanted, unit.crashes, bool(unit.message)),
            default=None,
        )
        return ServiceFacts(
            path=self.path,
            generation=self._wanted.generation if self._wanted else -1,
            wanted=self._node.instances,
            alive=len(units),
            healthy=len(healthy),
            current=sum(unit.revision == now for unit in healthy) if reachable else 0,
            former=sum(unit.revision != now for unit in healthy),
            crashes=max((unit.crashes for unit in wanted), default=0),
            message=troubled.message if troubled else "",
        )

    def take_changed_instances(self) -> list[SupervisedInstance]:
        """Returns instances whose health has changed since the last call."""
        changed = [unit for unit in self._units.values() if self._noted.get(unit.token) != unit.healthy]
        self._noted = {unit.token: unit.healthy for unit in self._units.values()}
        return changed

    def stop_watching(self) -> None:
        """Stops watching; instances keep running."""
        self._leaving = True
        for task in self._tasks:
            task.cancel()

    async def wait_until_stopped(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _reconcile(self) -> None:
        """Starts and stops instances by `plan_instance_changes`, one reconciliation at a
        time, then reports the change.
        """
        async with self._reconciling:
            self._needs_reconcile = False
            running = [
                RunningInstance(unit.token, unit.revision, unit.healthy)
                for unit in self._units.values()
                if unit.number != PROXY_NUMBER and not unit.stopping
            ]
            steps = plan_instance_changes(self._node, running)
            await self._retry_store(
                self._start_instances, [self._new_instance(number) for number in self._free_numbers(steps.start)]
            )
            await self._retry_store(self._stop_instances, [self._units[token] for token in steps.stop])
            await self._reconcile_proxy()
        self._update_routes()
        self._mark_changed(self.path)

    def _proxy_to_run(self) -> Node | None:
        """Returns the proxy that the service should have, or None."""
        ending = self._wanted is None or self._wanted.removing
        return None if ending else self._runner.proxy_definition(self.path, self._node)

    async def _reconcile_proxy(self) -> None:
        """Starts the proxy first and stops it last, so that clients are refused rather than left without an answer."""
        front = next((unit for unit in self._units.values() if unit.number == PROXY_NUMBER), None)
        node = self._proxy_to_run()
        if front is None:
            await self._retry_store(self._start_instances, [self._new_instance(PROXY_NUMBER, node)] if node else [])
        elif front.node != node and not front.stopping and (node or len(self._units) == 1):
            await self._retry_store(self._stop_instances, [front])

    def _free_numbers(self, count: int) -> list[int]:
        """Returns the lowest free instance numbers."""
        taken = {unit.number for unit in self._units.values()} - {PROXY_NUMBER}
        return [number for number in range(1, len(taken) + count + 1) if number not in taken][:count]

    def _new_instance(self, number: int, node: Node | None = None) -> SupervisedInstance:
        made_of = node or self._node
        return SupervisedInstance(uuid.uuid4().hex, self.path, number, instance_revision(made_of), made_of)

    async def _start_instances(self, units: list[SupervisedInstance]) -> None:
        await self._ledger.insert_instances(units)
        for unit in units:
            self._add_instance(unit)
            self._start_task(self._supervise_instance(unit))

    async def _stop_instances(self, units: list[SupervisedInstance]) -> None:
        for unit in units:
            unit.stopping = True
        self._update_routes()  # the proxy sends it no more connections
        await self._ledger.update_instances(units)
        for unit in units:
            self._stops[unit.token].set()

    def _add_instance(self, unit: SupervisedInstance) -> None:
        self._units[unit.token] = unit
        self._stops[unit.token] = asyncio.Event()

    async def _supervise_instance(self, unit: SupervisedInstance, from_before: bool = False) -> None:
        """Runs one instance until it is to stop; restarts it with backoff when it ends by itself."""
        stop = self._stops[unit.token]
        if unit.stopping:
            stop.set()
        known = unit.pid
        up = from_before and await self._runner.find_instance(unit)
        if up and unit.pid != known:
            await self._retry_store(self._ledger.update_instances, [unit])
        unit.healthy = unit.healthy and up  # keeps the last known health
        while not stop.is_set():
            why = await self._run_instance_until_exit(unit, up)
            up = False
            if stop.is_set():
                break
            unit.healthy, unit.message, unit.crashes = False, why, unit.crashes + 1
            self._request_reconcile()
            with suppress(TimeoutError):
                async with asyncio.timeout(restart_delay(unit.crashes - 1)):
                    await stop.wait()
        await self._runner.stop_instance(unit)
        await self._retry_store(self._ledger.delete_instances, [unit.token])
        del self._units[unit.token], self._stops[unit.token]
        self._request_reconcile()

    async def _run_instance_until_exit(self, unit: SupervisedInstance, up: bool) -> str:
        """Starts the instance if it is not up, and watches it. Returns why it ended; empty if it is to stop."""
        try:
            if not up:
                if unit.pid or unit.started:  # on record before a new process starts: if we die now, that one is found
                    unit.pid = unit.started = 0
                    await self._retry_store(self._ledger.update_instances, [unit])
                await self._runner.start_instance(unit)
                if unit.pid or unit.port:
                    await self._retry_store(self._ledger.update_instances, [unit])
        except RatchetError as error:
            return format_one_line(error)
        end = asyncio.ensure_future(self._runner.wait_for_exit(unit))
        stop = asyncio.ensure_future(self._stops[unit.token].wait())
        health = asyncio.ensure_future(self._probe_loop(unit))
        try:
            await asyncio.wait({end, stop, health}, return_when=asyncio.FIRST_COMPLETED)
            if stop.done():
                return ""
            if end.done():
                return end.result()
            unit.healthy, unit.message = False, health.result()
            self._request_reconcile()  # at once, as the stop may take long
            await self._runner.stop_instance(unit)
            return health.result()
        finally:
            for task in (end, stop, health):
                task.cancel()

    async def _probe_loop(self, unit: SupervisedInstance) -> str:
        """Checks the instance's health and reports changes. Returns the reason when a healthy one fails."""
        health, clock = unit.node.health, asyncio.get_running_loop().time
        began, misses, pause = clock(), 0, FIRST_PROBE_PAUSE
        if health is None and self._runner.steady_seconds:
            await asyncio.sleep(self._runner.steady_seconds)
        while True:
            why = await self._runner.probe_instance(unit)
            misses = misses + 1 if why else 0
            if why and unit.healthy and health and misses >= health.failures:
                return f"no longer healthy: {why}"
            if (not why and not unit.healthy) or (why and why != unit.message and not unit.healthy):
                unit.healthy, unit.message = not why, why
                self._request_reconcile()
            if unit.healthy and unit.crashes and clock() - began > CRASHES_FORGIVEN_AFTER:
                unit.crashes = 0
                self._request_reconcile()
            if health is None and not why and not unit.crashes:
                await asyncio.Event().wait()  # healthy as long as it runs
            pause = min(pause * 2, health.interval) if health else CRASHES_FORGIVEN_AFTER
            await asyncio.sleep(pause)

    def _request_reconcile(self) -> None:
        if not self._leaving and not self._needs_reconcile:
            self._needs_reconcile = True
            self._start_task(self._reconcile())

    def _update_routes(self) -> None:
        routes = sorted(
            self._runner.route_of_instance(unit)
            for unit in self._units.values()
            if unit.number != PROXY_NUMBER and unit.healthy and not unit.stopping
        )
        if routes != self._routed:
            self._routed = routes
            self._runner.set_routes(self.path, routes)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _retry_store(self, write: Callable[[list[T]], Coroutine[Any, Any, None]], what: list[T]) -> None:
        """Writes to the ledger, with retries while the store is unavailable."""
        while what:
            try:
                return await write(what)
            except RatchetError:
                await asyncio.sleep(0.5)
