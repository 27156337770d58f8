"""A CRM's jobs on its instances: one at a time per instance, with progress, faults and answers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import structlog

from domain.edge.faults import CrmFault, CrmFaultKind
from domain.edge.messages import CrmRequest, CrmVerb, instance_spec_digest
from domain.edge.tables import APP
from domain.errors import RatchetError, Superseded, format_one_line
from domain.paths import kind_of
from providers.edge.apps import CloudletApps
from providers.edge.platform import CloudletPlatform

_log = structlog.get_logger("crm")

# States during the work, after success, and after failure.
STATES_OF_VERB = {
    CrmVerb.CREATE: ("Creating", "Ready", "CreateError"),
    CrmVerb.UPDATE: ("Updating", "Ready", "UpdateError"),
    CrmVerb.DELETE: ("Deleting", "NotPresent", "DeleteError"),
}
TASK_NAMES = ("allocating", "configuring", "checking")
CRASH_EXIT_CODE = 137

SendAnswer = Callable[[CrmRequest, dict[str, Any]], Awaitable[None]]


@dataclass
class _InstanceJob:
    request: CrmRequest
    task: asyncio.Task[None]
    progress: dict[str, Any] = field(default_factory=dict)

    def is_same_request(self, other: CrmRequest) -> bool:
        """Tells whether a request repeats this job, in this or a later attempt."""
        mine = self.request
        return (mine.verb, mine.epoch, mine.undo) == (other.verb, other.epoch, other.undo)


class InstanceJobs:
    """All jobs of a CRM. A new request for an instance first cancels the job that runs there."""

    def __init__(
        self,
        platform: CloudletPlatform,
        say: SendAnswer,
        latency: float,
        version: str,
        apps: CloudletApps | None = None,
    ) -> None:
        self.platform, self._send_answer, self._latency, self._version = platform, say, latency, version
        self._apps = apps  # without them, apps are simulated
        self._jobs: dict[str, _InstanceJob] = {}

    def start_request_job(self, request: CrmRequest) -> None:
        running = self._jobs.get(request.path)
        if running and not running.task.done():
            if running.is_same_request(request):
                running.request = request  # a newer connection may repeat the request
                return
            running.task.cancel()
        before = running.task if running else None
        job = _InstanceJob(request, asyncio.create_task(self._run_job_after(before, request)))
        self._jobs[request.path] = job

    async def report_progress(self, request: CrmRequest) -> None:
        """Answers with an instance's state and progress."""
        job = self._jobs.get(request.path)
        if job and not job.task.done():
            message = {"state": STATES_OF_VERB[job.request.verb][0], "progress": job.progress or None}
        else:
            message = {"state": "Ready" if self.platform.has_instance(request.path) else "NotPresent"}
        await self._send_answer(request, message)

    def list_instance_states(self) -> dict[str, dict[str, str]]:
        """Returns the states of all instances on the platform or in work."""
        found = {
            path: {"state": "Ready", "digest": instance_spec_digest(spec) if spec else ""}
            for path, spec in self.platform.list_instances().items()
        }
        for path, job in self._jobs.items():
            if not job.task.done():
                found[path] = {"state": STATES_OF_VERB[job.request.verb][0]}
        return found

    async def forget_lost_apps(self) -> None:
        """Drops the records of apps that are not on the machine, as after a death in the middle of a delete."""
        if self._apps:
            there = await self._apps.list_paths()
            for path in self.platform.list_instances():
                if kind_of(path) == APP.kind and path not in there:
                    self.platform.remove_instance(path)

    async def stop_unrecorded_apps(self) -> None:
        """Stops half-made apps that nobody waits for any more, as their action ended while no CRM was there."""
        if self._apps:
            in_work = [path for path, job in self._jobs.items() if not job.task.done()]
            for path in await self._apps.stop_unrecorded_apps([*self.platform.list_instances(), *in_work]):
                _log.info("stopped: its creation was given up", app=path)

    async def stop_jobs(self) -> None:
        for job in self._jobs.values():
            job.task.cancel()
        await asyncio.gather(*(job.task for job in self._jobs.values()), return_exceptions=True)

    async def _run_job_after(self, before: asyncio.Task[None] | None, request: CrmRequest) -> None:
        """Runs the job after the one before has ended: never two changes of one instance at a time."""
        if before:
            await asyncio.wait([before])
        fault = self.platform.take_matching_fault(request.verb, request.path, self._version)
        kind = fault.kind if fault else None
        doing, done, failed = STATES_OF_VERB[request.verb]
        if kind is CrmFaultKind.SILENT:
            return
        times = 2 if kind is CrmFaultKind.TWICE else 1
        await self._simulate_work(request, fault, doing, times)
        if kind is CrmFaultKind.FAIL and fault:
            errors = [fault.message or f"{request.verb} of {request.path} failed as the fault script says"]
            await self._send_report(request, {"state": failed, "errors": errors}, times)
            return
        if kind is CrmFaultKind.CRASH_BEFORE:
            crash_process()
        try:
            runtime = await self._apply_request(request)
        except Superseded as error:  # no answer, as the later action would receive it
            _log.warning("refused: of an action that is over", order=request.request_key, error=format_one_line(error))
            return
        except RatchetError as error:
            await self._send_report(request, {"state": failed, "errors": [format_one_line(error)]}, times)
            return
        if kind is CrmFaultKind.CRASH_AFTER:
            crash_process()
        await self._send_report(request, {"state": done, **({"runtime": runtime} if runtime else {})}, times)

    async def _simulate_work(self, request: CrmRequest, fault: CrmFault | None, doing: str, times: int) -> None:
        """Sleeps for the simulated duration of the work, with progress messages."""
        total = self._latency + (fault.seconds if fault and fault.kind is CrmFaultKind.SLOW else 0)
        if self._apps and not total:
            await self._send_report(request, {"state": doing}, times)
        quiet = fault is not None and fault.kind is CrmFaultKind.NO_ACK
        if total == 0 and not (fault and fault.kind is CrmFaultKind.TWICE):
            return
        for number, step in enumerate(TASK_NAMES, start=1):
            progress = {"task": number, "of": len(TASK_NAMES), "step": step}
            if not quiet:
                self._jobs[request.path].progress = progress
                await self._send_report(request, {"state": doing, "progress": progress}, times)
            await asyncio.sleep(total / len(TASK_NAMES))

    async def _apply_request(self, request: CrmRequest) -> dict[str, Any]:
        """Changes the instance, then its record: a death in between leaves a request that is repeated."""
        if request.verb is CrmVerb.DELETE:
            if self._apps:
                await self._apps.stop_apps(request)
            if self.platform.has_instance(request.path):
                self.platform.remove_instance(request.path, request.request_key)
            return {}
        runtime = {"endpoint": f"{request.path.rsplit(':', 1)[-1]}.edge.example"}
        if self._apps:
            runtime = await self._apps.run_app(request) if kind_of(request.path) == APP.kind else {}
        still_there = request.undo and request.verb is CrmVerb.CREATE and self.platform.has_instance(request.path)
        if not still_there and not self.platform.was_applied(request):
            self.platform.put_instance(request.path, request.spec, request.verb, request.request_key)
        return runtime

    async def _send_report(self, request: CrmRequest, message: dict[str, Any], times: int) -> None:
        job = self._jobs.get(request.path)
        current = job.request if job and job.is_same_request(request) else request
        for _ in range(times):
            await self._send_answer(current, message)


def crash_process() -> NoReturn:
    """Exits at once, as in a power cut."""
    _log.error("crashing, as the fault script says")
    os._exit(CRASH_EXIT_CODE)
