"""Cloudlet upgrade: CRMv1 starts CRMv2, CRMv2 connects, is acknowledged, gathers, ends CRMv1, and is Ready.

Only the controller's state decides. Whatever fails, CRMv1 cleans up and serves on, and the cloudlet stays in
UpdateError until an admin has repaired it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import FailureError

with workflow.unsafe.imports_passed_through():
    from domain.edge import messages as wire
    from domain.edge.interpret import CrmInterpreter, Effect
    from domain.edge.messages import CrmAddress, CrmResponse, CrmVerb, Reconnected
    from domain.edge.specs import UpgradeSpec
    from domain.edge.tables import CLOUDLET, CrmActor, S
    from domain.errors import one_line
    from domain.model import Done, Grant, Move, Request
    from workflows.action import Failed, action_workflow
    from workflows.calls import advance
    from workflows.edge import calls
    from workflows.edge.cloudlet import OnCloudlet, undo_upgrade

_BEFORE_V2 = (S.UPDATE_REQUESTED, S.UPDATING)


@action_workflow(wire.UPGRADE_CLOUDLET)
class UpgradeCloudlet(OnCloudlet):
    """Upgrades a cloudlet's CRM: a second CRM (CRMv2) is started, takes over, and ends the first (CRMv1)."""

    def __init__(self) -> None:
        super().__init__()
        self._next: CrmAddress | None = None
        self._target = ""

    async def converse(self, request: Request, grant: Grant) -> Done:
        await self._begin(grant, unasked=True)  # CRMv2 reports Ready unasked
        self._target = self.spec(UpgradeSpec).version
        cap = workflow.now() + timedelta(seconds=self._terms.patience.cap)
        await self._send_order(grant, CrmVerb.UPGRADE, version=self._target)
        while True:
            message = await self._next_of_either(grant, cap)
            if isinstance(message, Reconnected):
                await self._connected(grant, message)
            elif isinstance(message, CrmResponse) and await self._apply_message(grant, message):
                break
        assert self._next
        await calls.everything(self._next, grant)
        spec = {**self._terms.spec, "version": self._next.version}
        return Done(moves=[Move(path=grant.path, to=S.READY, actor=CrmActor.V2, spec=spec)])

    async def revert(self, request: Request, grant: Grant) -> Done:
        """Asks CRMv1 to clean up whatever there is of CRMv2; the cloudlet stays in UpdateError for an admin."""
        if self._status and self._status != S.UPDATE_ERROR:
            await self._step(grant, S.UPDATE_ERROR, "Controller", "cut off, or no answer in time")
        if self._address:
            try:
                await calls.send(self._address, undo_upgrade(grant, self._address, self._target))
            except FailureError as error:  # or the end was stored before, by a task that was replayed differently
                workflow.logger.warning("CRMv1 could not be told to clean up: %s", error)
        self._over = True  # later messages go to the link, after the action has ended
        await self._drain_messages(grant)
        return Done()  # the connection record says what is left of CRMv2

    async def _drain_messages(self, grant: Grant) -> None:
        """Handles unread messages. CRMv1 may report Ready: it keeps serving, but the upgrade has still failed."""
        box = self.inbox(grant.path)
        while box:
            message = box.popleft()
            if isinstance(message, CrmResponse):
                actor, _ = self._actor_of(message)
                if actor == CrmActor.V1 and message.status == S.READY:
                    await self.hand_over(message)  # the link sends it all data again, after the action has ended
                else:
                    await self.ignore(grant.path, message.state, f"under {self._status}", actor)

    async def _next_of_either(self, grant: Grant, cap: datetime) -> object:
        """Returns the next message of either CRM; each one extends the wait, up to the cap."""
        until = min(workflow.now() + timedelta(seconds=self._terms.patience.update), cap)
        message = await self.read(grant.path, until, "the CRMs hand over")
        if message is None:
            raise Failed(f"no answer in time under {self._status}; CRMv1 goes on")
        return message

    async def _connected(self, grant: Grant, said: Reconnected) -> None:
        if said.address.version != self._target:  # CRMv1 was restarted: it may have lost the request
            self._address = said.address
            if self._status in _BEFORE_V2 and self._next is None:
                await self._send_order(grant, CrmVerb.UPGRADE, version=self._target)
            return
        self._next = said.address
        if self._status in _BEFORE_V2:
            await self._step(grant, S.INIT_OK, "Controller", f"{self._target} has notify-id {self._next.notify_id}")

    async def _apply_message(self, grant: Grant, message: CrmResponse) -> bool:
        """Applies an answer by the rows of its sender, which the notify-id tells. Returns True when CRMv2 is Ready."""
        actor, notify_id = self._actor_of(message)
        meaning = CrmInterpreter(CLOUDLET, self._status, notify_id, actor=actor).interpret(message)
        if meaning.effect is Effect.IGNORED:
            await self.ignore(grant.path, message.state, meaning.why, actor)
        elif meaning.to == S.READY and actor == CrmActor.V2:
            return True
        elif meaning.effect is Effect.ERROR:
            await advance(grant, meaning.to, actor, one_line(message.reason()))
            self._status = meaning.to
            raise Failed(message.reason() or "CRMv1 says that CRMv2 failed")
        else:
            await self._step(grant, meaning.to, actor)
        return False

    def _actor_of(self, message: CrmResponse) -> tuple[str, int]:
        if self._next and message.notify_id == self._next.notify_id:
            return CrmActor.V2, self._next.notify_id
        return CrmActor.V1, self._address.notify_id if self._address else 0
