"""The reference CRM: connects, carries out requests on its platform, answers by signal, and survives a kill.

After a crash it knows only what is on the platform. It connects with a new notify-id and reports that; the controller
repeats requests that were not carried out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import structlog
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import PollerBehaviorAutoscaling, Worker

from domain.edge import messages
from domain.edge.faults import CrmFaultKind
from domain.edge.messages import CrmRequest, CrmRequests, CrmVerb
from domain.paths import is_at_or_below
from domain.wire import SIMULATED
from providers.edge.apps import CloudletApps
from providers.edge.controller import ControllerClient
from providers.edge.handover import CrmHandover
from providers.edge.jobs import InstanceJobs, crash_process
from providers.edge.platform import BACKEND_VALUE, CloudletPlatform
from providers.edge.token import ControllerKeys, CrmToken

# How long to wait for an acknowledgement before connecting again: a cloudlet may be created after its CRM.
FIRST_ACK_TIMEOUT, ACK_TIMEOUT = 0.5, 5.0
ACK_TIMEOUT_WHEN_HEARD = 10.0  # for a controller that has received the connect, however busy
HEARTBEAT_SECONDS = 1.0
RESUME_TIMEOUT = 4.0  # for a restarted link to open another session


class CloudletReadFailed(Exception):
    """The CRM cannot read what is on the cloudlet, so it cannot serve it."""


class ReferenceCrm:
    """The reference CRM of one cloudlet: its connection, its jobs, its answers."""

    def __init__(
        self,
        client: Client | None,
        cloudlet: str,
        version: str,
        platform: CloudletPlatform,
        handover: CrmHandover,
        token: CrmToken,
        latency: float = 0.3,
        voice: ControllerClient | None = None,
        apps: CloudletApps | None = None,
        controllers: ControllerKeys | None = None,
    ) -> None:
        self._client, self._cloudlet, self._version = client, cloudlet, version
        self._platform, self._latency = platform, latency
        self._controller = voice or self._connect_controller(token)
        self._jobs = InstanceJobs(platform, self._send_answer, latency, version, apps)
        self._handover = handover
        self._controllers = controllers or ControllerKeys()
        self._log = structlog.get_logger("crm").bind(cloudlet=cloudlet, version=version)
        self._side: set[asyncio.Task[None]] = set()
        self._acked, self._lost, self._stop = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._sessions = 0
        self._pages: dict[str, dict[int, dict[str, Any]]] = {}  # pages of `_all_data`, by sending
        self._data_at = 0  # when the newest `_all_data` of this connection was read
        self.notify_id = 0

    def request_stop(self) -> None:
        self._stop.set()
        self._lost.set()

    def _connect_controller(self, token: CrmToken) -> ControllerClient:
        assert self._client, "without Temporal, a CRM needs another controller"
        return ControllerClient(self._client, self._cloudlet, token)

    def _receive_requests(self) -> AbstractAsyncContextManager[object]:
        """Receives requests and sessions while the block lasts."""
        assert self._client
        return Worker(
            self._client,
            task_queue=messages.crm_queue(self._cloudlet, self._version),
            activities=[self.crm_requests, self.crm_session],
            build_id="crm",
            graceful_shutdown_timeout=timedelta(0),
            max_heartbeat_throttle_interval=timedelta(seconds=3),
            activity_task_poller_behavior=PollerBehaviorAutoscaling(initial=1),  # requests come in batches
        )

    async def serve_until_stopped(self) -> None:
        """Serves until stopped. Raises CloudletReadFailed if the cloudlet's data cannot be gathered."""
        async with self._receive_requests():
            try:
                await self._jobs.forget_lost_apps()
                while not self._stop.is_set():
                    await self._serve_one_connection()
                await self._controller.send_disconnect(self.notify_id)
            finally:
                self.notify_id = 0
                await self._jobs.stop_jobs()
                for task in self._side:
                    task.cancel()

    async def _serve_one_connection(self) -> None:
        await self._connect()
        if self._stop.is_set():
            return
        await self._simulate_gathering()
        if self._stop.is_set():  # stopped meanwhile: the predecessor must stay
            return
        await self._handover.end_predecessor()
        await self._send_state({"state": "Ready"})
        self._log.info("ready", notify_id=self.notify_id, instances=len(self._platform.list_instances()))
        await self._lost.wait()

    async def _connect(self) -> None:
        """Connects, with a new notify-id each time, until the controller acknowledges."""
        patience = FIRST_ACK_TIMEOUT
        while not self._stop.is_set():
            self.notify_id = self._platform.next_notify_id(await self._controller.read_known_notify_id())
            self._data_at = 0
            self._acked.clear()
            self._lost.clear()
            pages = messages.split_into_pages(self._jobs.list_instance_states())
            backend = self._platform.read_crm_value(BACKEND_VALUE, SIMULATED)
            who = {"notify_id": self.notify_id, "version": self._version, "backend": backend}
            for number, page in enumerate(pages, start=1):
                count = {"page": number, "of": len(pages)} if len(pages) > 1 else {}
                await self._controller.send_connect({**who, **count, "instances": page})
            if await self._wait_for_ack(patience):
                return
            patience = min(patience * 2, ACK_TIMEOUT)
            self._log.info("not acknowledged: is there such a cloudlet, of this version?", notify_id=self.notify_id)

    async def _wait_for_ack(self, seconds: float) -> bool:
        """Waits for the acknowledgement; longer if the controller has the connect, as a new one would end it."""
        if await self._wait_for_event_or_stop(self._acked, seconds):
            return True
        heard = await self._controller.read_known_notify_id() == self.notify_id
        return heard and await self._wait_for_event_or_stop(self._acked, ACK_TIMEOUT_WHEN_HEARD)

    async def _wait_for_event_or_stop(self, event: asyncio.Event, seconds: float) -> bool:
        stop, wanted = asyncio.create_task(self._stop.wait()), asyncio.create_task(event.wait())
        await asyncio.wait({stop, wanted}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in (stop, wanted):
            task.cancel()
        return event.is_set()

    async def _simulate_gathering(self) -> None:
        fault = self._platform.take_matching_fault("gather", self._cloudlet, self._version)
        await asyncio.sleep(self._latency + (fault.seconds if fault and fault.kind is CrmFaultKind.SLOW else 0))
        if fault and fault.kind in (CrmFaultKind.CRASH_BEFORE, CrmFaultKind.CRASH_AFTER):
            crash_process()
        if fault and fault.kind is CrmFaultKind.FAIL:
            why = fault.message or "the platform did not answer"
            await self._send_state({"state": "Offline", "errors": [why]})
            raise CloudletReadFailed(why)

    async def _send_state(self, message: dict[str, Any]) -> None:
        """Tells the cloudlet's state, which nobody has asked for."""
        who = {"notify_id": self.notify_id, "version": self._version}
        await self._controller.send_answer(self._cloudlet, message | who)

    @activity.defn
    async def crm_session(self, notify_id: int) -> str:
        """Keeps the connection open as an activity: its start is the controller's acknowledgement."""
        if notify_id != self.notify_id:
            return "another connection has taken its place"
        self._acked.set()
        self._sessions += 1
        try:
            while notify_id == self.notify_id and not self._stop.is_set():
                activity.heartbeat()
                await asyncio.sleep(HEARTBEAT_SECONDS)
        except asyncio.CancelledError:
            self._start_background_task(self._reconnect_unless_resumed(notify_id))
            raise
        finally:
            self._sessions -= 1
        return "the CRM stopped" if self._stop.is_set() else "another connection has taken its place"

    async def _reconnect_unless_resumed(self, notify_id: int) -> None:
        """Reconnects if the link opens no new session in time: by then the controller has marked this CRM as lost."""
        await asyncio.sleep(RESUME_TIMEOUT)
        if notify_id == self.notify_id and not self._sessions:
            self._lost.set()

    def _start_background_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._side.add(task)
        task.add_done_callback(self._side.discard)

    @activity.defn
    async def crm_requests(self, batch: CrmRequests) -> int:
        """Accepts requests. Drops those for an earlier connection: the controller repeats them."""
        here = (self.notify_id, self._version)
        mine = [request for request in batch.requests if (request.notify_id, request.version) == here]
        signed = [request for request in mine if self._is_signed(request)]
        for request in signed:
            self._dispatch_request(request)
        return len(signed)

    def _is_signed(self, request: CrmRequest) -> bool:
        """Tells whether our controller has signed an order for this cloudlet. Nobody answers one that it has not."""
        if is_at_or_below(request.path, self._cloudlet) and self._controllers.has_signed(request):
            return True
        self._log.warning("refused: not an order of our controller", order=request.request_key)
        return False

    def _dispatch_request(self, request: CrmRequest) -> None:
        if not self._platform.record_epoch_unless_late(request.path, request.epoch):
            # No answer, as the later action would receive it.
            self._log.warning("refused: of an action that is over", order=request.request_key)
            return
        if request.verb in (CrmVerb.CREATE, CrmVerb.UPDATE, CrmVerb.DELETE):
            self._jobs.start_request_job(request)
            return
        job: Callable[[CrmRequest], Coroutine[Any, Any, None]] | None = {
            CrmVerb.REPORT: self._jobs.report_progress,
            CrmVerb.UPGRADE: self._handle_upgrade,
            CrmVerb.RECONNECT: self._handle_reconnect,
            CrmVerb.MAINTAIN: self._handle_maintain,
            CrmVerb.OPERATE: self._handle_maintain,
            CrmVerb.SHUTDOWN: self._handle_shutdown,
            CrmVerb.ALL_DATA: self._handle_all_data,
        }.get(request.verb)
        deaf = self._platform.take_matching_fault(request.verb, request.path, self._version, (CrmFaultKind.SILENT,))
        if job and not deaf:
            self._start_background_task(job(request))

    async def _send_answer(self, request: CrmRequest, message: dict[str, Any]) -> None:
        told = {key: value for key, value in message.items() if value is not None}
        about = {"path": request.path} if request.reply_to and request.reply_to != request.path else {}
        to = request.reply_to or request.path
        who = {"notify_id": request.notify_id, "version": self._version, "epoch": request.epoch}
        await self._controller.send_answer(to, {**about, **told, **who})

    async def _handle_reconnect(self, request: CrmRequest) -> None:
        self._lost.set()

    async def _handle_maintain(self, request: CrmRequest) -> None:
        away = request.verb is CrmVerb.MAINTAIN
        fault = self._platform.take_matching_fault(request.verb, request.path, self._version)
        if fault and fault.kind is CrmFaultKind.FAIL:
            errors = [fault.message or f"cannot {request.verb}"]
            return await self._send_answer(request, {"state": "Offline", "errors": errors})
        self._platform.write_crm_value("maintenance", away)
        await self._send_answer(request, {"state": "UnderMaintenance" if away else "Ready"})

    async def _handle_shutdown(self, request: CrmRequest) -> None:
        await self._send_answer(request, {"state": "NotPresent"})
        self.request_stop()

    async def _handle_all_data(self, request: CrmRequest) -> None:
        """Collects the pages of expected instances, in any order, and stores them when complete.

        An older one than the last is dropped: whoever may write to the namespace can send what was signed once more.
        """
        sending, of = str(request.spec.get("sending", "")), int(request.spec.get("of", 1))
        at = int(request.spec.get("at", 0))
        if at < self._data_at:
            self._log.warning("refused: older than what is known", order=request.request_key)
            return
        pages = self._pages.setdefault(sending, {})
        pages[int(request.spec.get("page", 1))] = request.spec.get("instances", {})
        if len(pages) == of:
            self._pages.clear()
            self._data_at = at
            self._platform.set_expected_specs({path: spec for page in pages.values() for path, spec in page.items()})
            await self._jobs.stop_unrecorded_apps()

    async def _handle_upgrade(self, request: CrmRequest) -> None:
        """Starts the CRM of another version; if it does not take over, cleans up and continues to serve."""
        version = str(request.spec.get("version", ""))
        if request.undo:
            if not self._stop.is_set():  # else the new CRM has taken over
                await self._handover.end_failed_successor(version)
            return
        await self._send_answer(request, {"state": "Updating"})
        why = await self._handover.start_successor(version)
        if why is None:  # the new CRM takes over, or is being watched already
            return
        await self._handover.end_failed_successor(version)
        await self._send_answer(request, {"state": "UpdateError", "errors": [why]})
        await self._send_state({"state": "Ready"})
