"""The open connections of a cloudlet's CRMs, each watched by its own task.

A CRM on a queue has a session: an activity on its own queue that runs as long as the CRM does. Its start is the
controller's ack, its missed heartbeat the disconnect. A webhook CRM is acknowledged, and then pinged periodically.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.retry import ONCE
    from domain.edge import messages
    from domain.edge.messages import CrmAddress, CrmDisconnect, CrmVerb
    from domain.errors import format_one_line
    from workflows.edge import calls

HEARTBEAT_TIMEOUT = timedelta(seconds=10)  # the heartbeat timeout of a session
TAKE_UP_TIMEOUT = timedelta(seconds=30)  # for the CRM to start its session
SESSION_TIMEOUT = timedelta(days=3650)
FAILED_PROBES_TO_LOSE = 3  # failures in a row after which the connection is lost


class CrmSessions:
    """The open connections. `notice` is called when one is lost."""

    def __init__(self, cloudlet: str, notice: Callable[[CrmDisconnect], None]) -> None:
        self._cloudlet, self._notice = cloudlet, notice
        self._open: dict[int, CrmAddress] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    @property
    def addresses(self) -> list[CrmAddress]:
        return list(self._open.values())

    def address_of(self, notify_id: int) -> CrmAddress | None:
        return self._open.get(notify_id)

    def open_session(self, address: CrmAddress, acked: bool = False) -> None:
        """Watches a connection. An older one of the same version is closed, as the CRM was restarted."""
        for old in self.addresses:
            if old.version == address.version and old.notify_id < address.notify_id:
                self.close_session(old.notify_id)
        self._open[address.notify_id] = address
        self._tasks[address.notify_id] = asyncio.create_task(self._watch_connection(address, acked))

    def close_session(self, notify_id: int) -> None:
        self._open.pop(notify_id, None)
        if task := self._tasks.pop(notify_id, None):
            task.cancel()

    async def _watch_connection(self, address: CrmAddress, acked: bool) -> None:
        queue = address.transport == "queue"
        reason = await self._run_session(address) if queue else await self._probe_loop(address, acked)
        self._notice(CrmDisconnect(notify_id=address.notify_id, reason=reason))

    async def _run_session(self, address: CrmAddress) -> str:
        try:
            reason: str = await workflow.execute_activity(
                messages.CRM_SESSION,
                address.notify_id,
                result_type=str,
                task_queue=messages.crm_queue(self._cloudlet, address.version),
                schedule_to_start_timeout=TAKE_UP_TIMEOUT,
                start_to_close_timeout=SESSION_TIMEOUT,
                heartbeat_timeout=HEARTBEAT_TIMEOUT,
                retry_policy=ONCE,
                cancellation_type=workflow.ActivityCancellationType.TRY_CANCEL,
                summary=f"connection {address.notify_id} of {address.version}",
            )
        except ActivityError as error:
            return f"its CRM is gone: {format_one_line(error.cause or error, 100)}"
        return reason

    async def _probe_loop(self, address: CrmAddress, acked: bool) -> str:
        """Acknowledges the CRM, then pings it; after several failures in a row its connection counts as lost."""
        failures = 0
        while True:
            why = await calls.probe_crm(address, CrmVerb.PING if acked else CrmVerb.ACK)
            acked, failures = acked or not why, failures + 1 if why else 0
            if failures == FAILED_PROBES_TO_LOSE:
                return f"its CRM is gone: {FAILED_PROBES_TO_LOSE} posts failed, the last one: {why}"
            await workflow.sleep(address.probe, summary="until the next ping")
