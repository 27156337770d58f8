"""Cloudlet upgrade: CRMv1 starts CRMv2, CRMv2 connects, is acknowledged, gathers, ends CRMv1, and is Ready.

Only the controller's state decides. Whatever fails, CRMv1 cleans up and serves on, and the cloudlet stays in
UpdateError until an admin has repaired it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import FailureError

with workflow.unsafe.imports_passed_through():
    from domain.edge import messages
    from domain.edge.interpretation import CrmInterpreter, MessageEffect
    from domain.edge.messages import CrmAddress, CrmResponse, CrmVerb, Reconnected
    from domain.edge.specs import UpgradeSpec
    from domain.edge.tables import CLOUDLET, CrmActor, S
    from domain.errors import format_one_line
    from domain.model import Grant, Move, Request, WorkReport
    from workflows.action import WorkFailed, action_workflow
    from workflows.calls import advance_object
    from workflows.edge import calls
    from workflows.edge.cloudlet import CloudletAction, make_undo_upgrade_request

_STATUSES_BEFORE_V2 = (S.UPDATE_REQUESTED, S.UPDATING)


@action_workflow(messages.UPGRADE_CLOUDLET)
class UpgradeCloudlet(CloudletAction):
    """Upgrades a cloudlet's CRM: a second CRM (CRMv2) is started, takes over, and ends the first (CRMv1)."""

    def __init__(self) -> None:
        super().__init__()
        self._next: CrmAddress | None = None
        self._target = ""

    async def perform_with_crm(self, request: Request, grant: Grant) -> WorkReport:
        await self._read_grant_details(grant, unasked=True)  # CRMv2 reports Ready unasked
        self._target = self.spec(UpgradeSpec).version
        cap = workflow.now() + timedelta(seconds=self._terms.patience.cap)
        await self._send_order(grant, CrmVerb.UPGRADE, version=self._target)
        while True:
            message = await self._next_message_of_crms(grant, cap)
            if isinstance(message, Reconnected):
                await self._handle_connect(grant, message)
            elif isinstance(message, CrmResponse) and await self._apply_message(grant, message):
                break
        assert self._next
        await calls.send_all_data(self._next, grant)
        spec = {**self._terms.spec, "version": self._next.version}
        return WorkReport(moves=[Move(path=grant.path, to=S.READY, actor=CrmActor.V2, spec=spec)])

    async def settle_with_crm(self, request: Request, grant: Grant) -> WorkReport:
        """Asks CRMv1 to clean up whatever there is of CRMv2; the cloudlet stays in UpdateError for an admin."""
        if self._status and self._status != S.UPDATE_ERROR:
            await self._advance_cloudlet(grant, S.UPDATE_ERROR, "Controller", "cut off, or no answer in time")
        if self._address:
            try:
                await calls.send_requests(self._address, make_undo_upgrade_request(grant, self._address, self._target))
            except FailureError as error:  # or the end was stored before, by a task that was replayed differently
                workflow.logger.warning("CRMv1 could not be told to clean up: %s", error)
        self._over = True  # later messages go to the link, after the action has ended
        await self._handle_unread_messages(grant)
        return WorkReport()  # the connection record says what is left of CRMv2

    async def _handle_unread_messages(self, grant: Grant) -> None:
        """Handles unread messages. CRMv1 may report Ready: it keeps serving, but the upgrade has still failed."""
        box = self.unread_messages(grant.path)
        while box:
            message = box.popleft()
            if isinstance(message, CrmResponse):
                actor, _ = self._sending_actor(message)
                if actor == CrmActor.V1 and message.status == S.READY:
                    await self.forward_to_link(message)  # the link sends it all data again, after the action has ended
                else:
                    await self.ignore_message(grant.path, message.state, f"under {self._status}", actor)

    async def _next_message_of_crms(self, grant: Grant, cap: datetime) -> object:
        """Returns the next message of either CRM; each one extends the wait, up to the cap."""
        until = min(workflow.now() + timedelta(seconds=self._terms.patience.update), cap)
        message = await self.wait_for_message(grant.path, until, "the CRMs hand over")
        if message is None:
            raise WorkFailed(f"no answer in time under {self._status}; CRMv1 goes on")
        return message

    async def _handle_connect(self, grant: Grant, said: Reconnected) -> None:
        if said.address.version != self._target:  # CRMv1 was restarted: it may have lost the request
            self._address = said.address
            if self._status in _STATUSES_BEFORE_V2 and self._next is None:
                await self._send_order(grant, CrmVerb.UPGRADE, version=self._target)
            return
        self._next = said.address
        if self._status in _STATUSES_BEFORE_V2:
            await self._advance_cloudlet(
                grant, S.INIT_OK, "Controller", f"{self._target} has notify-id {self._next.notify_id}"
            )

    async def _apply_message(self, grant: Grant, message: CrmResponse) -> bool:
        """Applies an answer by the rows of its sender, which the notify-id tells. Returns True when CRMv2 is Ready."""
        actor, notify_id = self._sending_actor(message)
        meaning = CrmInterpreter(CLOUDLET, self._status, notify_id, actor=actor).interpret_message(message)
        if meaning.effect is MessageEffect.IGNORED:
            await self.ignore_message(grant.path, message.state, meaning.why, actor)
        elif meaning.to == S.READY and actor == CrmActor.V2:
            return True
        elif meaning.effect is MessageEffect.ERROR:
            await advance_object(grant, meaning.to, actor, format_one_line(message.joined_errors()))
            self._status = meaning.to
            raise WorkFailed(message.joined_errors() or "CRMv1 says that CRMv2 failed")
        else:
            await self._advance_cloudlet(grant, meaning.to, actor)
        return False

    def _sending_actor(self, message: CrmResponse) -> tuple[str, int]:
        if self._next and message.notify_id == self._next.notify_id:
            return CrmActor.V2, self._next.notify_id
        return CrmActor.V1, self._address.notify_id if self._address else 0
