"""The supervisor: reconciles wanted and running services, and restarts instances that ended by themselves.

It runs in a worker process; a file lock, which the operating system frees however it dies, keeps one active per data
folder. Its successor reads the ledger, finds the running instances, and continues with them.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TypeVar

import structlog

from domain.errors import RatchetError, format_one_line
from domain.services.definition import Node
from domain.services.ports import InstanceLog, ServiceOrder
from domain.services.rollout import ServiceFacts
from providers.services import pids
from providers.services.ledger import BackendLedger
from providers.services.reconciler import ServiceReconciler
from providers.services.runner import InstanceRunner

T = TypeVar("T")

POLL_SECONDS = 0.5  # seconds between polls for orders that other processes have taken
STOPPED_SECONDS = 10.0  # how long a worker with the lock may be stopped while another one waits for it
GROUP_SECONDS = 0.005  # how long a change waits for others before it is written

# Receives the facts of services, and the paths of removed ones.
ReportFacts = Callable[[Sequence[ServiceFacts], Sequence[str]], Awaitable[None]]


def _try_lock(file: IO[str]) -> bool:
    """Tells whether this process has the lock now."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_holder(file: IO[str]) -> tuple[int, int]:
    """Returns the pid and the start time of the process that has the lock; zeros if it has not written them yet."""
    file.seek(0)
    words = file.read().split()
    return (int(words[0]), int(words[1])) if len(words) == 2 else (0, 0)


class _ChangeFeed:
    """Waits for changes of the services at and below a path; none since the last call is missed."""

    def __init__(self, prefix: str, among: set[_ChangeFeed]) -> None:
        self._prefix = prefix
        self._among = among
        self._heard = asyncio.Event()

    def notify_changed(self, paths: Collection[str]) -> None:
        if any(path == self._prefix or path.startswith(f"{self._prefix}:") for path in paths):
            self._heard.set()

    async def wait_for_change(self) -> None:
        """Waits for a change, or for POLL seconds, as another process may be the active supervisor."""
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_SECONDS):
                await self._heard.wait()
        self._heard.clear()

    def close(self) -> None:
        self._among.discard(self)


class Supervisor:
    """A backend (`domain.services.ports.Backend`): takes orders in any process; runs services where it has the lock."""

    def __init__(self, runner: InstanceRunner, ledger: BackendLedger, lock: Path) -> None:
        self.name = runner.name
        self.runner = runner
        self.ledger = ledger
        self._lock = lock
        self._services: dict[str, ServiceReconciler] = {}
        self._version = 0
        self._ordered = asyncio.Event()
        self._dirty: set[str] = set()
        self._touched = asyncio.Event()
        self._told: dict[str, bool] = {}  # health of each service at the last report
        self._listeners: set[_ChangeFeed] = set()
        self._log = structlog.get_logger("keeper")
        self.is_supervising = asyncio.Event()  # set while this process has the lock

    async def prepare_system(self, system: str, generation: int) -> None:
        await self.ledger.claim_generation(system, generation)
        await self.runner.prepare_system(system, generation)

    async def check_service(self, definition: Node) -> None:
        await asyncio.to_thread(self.runner.check_service, definition)

    async def clean_up_system(self, system: str, generation: int) -> None:
        await self.ledger.claim_generation(system, generation)
        await self.runner.clean_up_system(system, generation)

    async def apply_orders(self, orders: Sequence[ServiceOrder]) -> None:
        await self.ledger.record_service_orders(orders)
        self._ordered.set()

    async def remove_services(self, prefix: str, generation: int, keep: Sequence[str] = ()) -> None:
        await self.ledger.remove_services(prefix, generation, keep)
        self._ordered.set()

    async def describe_services(self, prefix: str = "") -> list[ServiceFacts]:
        return await self.ledger.read_service_facts(prefix)

    async def read_logs(self, path: str, lines: int) -> list[InstanceLog]:
        return await self.runner.read_logs(path, lines)

    async def list_existing_objects(self, prefix: str, after: str) -> list[ServiceFacts]:
        return await self.ledger.list_existing_objects(prefix, after)

    def subscribe_to_changes(self, prefix: str) -> _ChangeFeed:
        listening = _ChangeFeed(prefix, self._listeners)
        self._listeners.add(listening)
        return listening

    async def run(self, report: ReportFacts) -> None:
        """Runs services until cancelled. Instances keep running, and a successor finds them."""
        lock = await self._acquire_lock()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._write_loop(report))
                tasks.create_task(self._poll_orders())
        finally:
            self.is_supervising.clear()
            await self._stop_watching()
            lock.close()

    async def _acquire_lock(self) -> IO[str]:
        """Waits for the lock. A holder that was stopped, as by Ctrl-Z, is ended: its services would wait for ever."""
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        file, me, looks = self._lock.open("a+"), os.getpid(), 0
        try:
            while not _try_lock(file):
                pid, started = _read_holder(file)
                looks = looks + 1 if pids.is_stopped(pid, started) else 0
                if looks * POLL_SECONDS >= STOPPED_SECONDS and await self._has_services():
                    self._log.warning("worker %d was stopped and kept the services from running: it is ended", pid)
                    os.kill(pid, signal.SIGKILL)  # it must never go on: we run its services now
                    looks = 0
                await asyncio.sleep(POLL_SECONDS)
        except BaseException:
            file.close()
            raise
        file.truncate(0)
        file.write(f"{me} {pids.read_start_ticks(me)}")
        file.flush()
        return file

    async def _has_services(self) -> bool:
        with suppress(RatchetError):
            return bool(await self.ledger.list_service_orders_since(0))
        return False

    async def _stop_watching(self) -> None:
        """Stops watching services, without stopping them."""
        for service in self._services.values():
            service.stop_watching()
        await asyncio.gather(*(service.wait_until_stopped() for service in self._services.values()))
        self._services.clear()
        self._version = 0

    async def _poll_orders(self) -> None:
        """Adopts recorded instances, then follows orders."""
        orphans: set[str] = set()  # paths of instances without an order
        for unit in await self._retry_store(self.ledger.list_instances):
            orphans.add(unit.path)
            self._reconciler_for_path(unit.path).adopt_instance(unit)
        while True:
            self._ordered.clear()
            for wanted in await self._retry_store(lambda: self.ledger.list_service_orders_since(self._version)):
                self._version = max(self._version, wanted.version)
                self._reconciler_for_path(wanted.path).set_service_order(wanted)
                orphans.discard(wanted.path)
            for path in orphans:
                self._reconciler_for_path(path).remove_service_order()
            orphans.clear()
            self.is_supervising.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._ordered.wait()

    def _reconciler_for_path(self, path: str) -> ServiceReconciler:
        if path not in self._services:
            self._services[path] = ServiceReconciler(path, self.runner, self.ledger, self._mark_changed)
        return self._services[path]

    def _mark_changed(self, path: str) -> None:
        self._dirty.add(path)
        self._touched.set()

    async def _write_loop(self, report: ReportFacts) -> None:
        """Writes changes of many services at a time, and notifies listeners."""
        while True:
            await self._touched.wait()
            await asyncio.sleep(GROUP_SECONDS)
            self._touched.clear()
            dirty, self._dirty = self._dirty, set()
            try:
                await self._write_changes(dirty, report)
            except RatchetError as error:  # the store is unavailable: retried
                self._log.warning("cannot write what changed: %s", format_one_line(error))
                self._dirty |= dirty
                self._touched.set()
                await asyncio.sleep(POLL_SECONDS)

    async def _write_changes(self, dirty: Collection[str], report: ReportFacts) -> None:
        services = [self._services[path] for path in dirty if path in self._services]
        gone = [service.path for service in services if service.is_service_gone()]
        facts = [service.service_facts() for service in services if not service.is_service_gone()]
        await self.ledger.record_observations(
            facts, gone, [unit for service in services for unit in service.take_changed_instances()]
        )
        for path in gone:
            if self._services[path].is_service_gone():  # unless it was ordered again meanwhile
                del self._services[path]
                self._told.pop(path, None)
        for listener in self._listeners:
            listener.notify_changed(dirty)
        told = {fact.path: fact.is_rolled_out() for fact in facts}
        await report([fact for fact in facts if self._told.get(fact.path) != told[fact.path]], gone)
        self._told.update(told)

    async def _retry_store(self, ask: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await ask()
            except RatchetError as error:
                self._log.warning("cannot read the ledger: %s", format_one_line(error))
                await asyncio.sleep(POLL_SECONDS)
