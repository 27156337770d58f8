"""Actions on cloudlets: bring-up (create and repair), maintenance with failover, rekey, delete."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import FailureError

with workflow.unsafe.imports_passed_through():
    from activities.edge.crm import EdgeActivities
    from domain.edge import messages
    from domain.edge.interpretation import CrmInterpreter, MessageEffect
    from domain.edge.messages import (
        ConnectionLost,
        CrmAddress,
        CrmRequest,
        CrmResponse,
        CrmVerb,
        Reconnected,
        join_errors,
    )
    from domain.edge.reports import CloudletGrantDetails, PlannedFailover
    from domain.edge.specs import KeySpec, MaintenanceSpec, crm_command_line
    from domain.edge.tables import CLOUDLET, GONE_STATES, CrmActor, S
    from domain.errors import format_count
    from domain.model import ActionResult, Grant, Move, Outcome, Request, WorkReport
    from domain.paths import short_path
    from domain.wire import companion_id
    from workflows.action import WorkFailed, action_workflow
    from workflows.calls import advance_object, run_child_action, run_local_activity
    from workflows.edge import calls
    from workflows.edge.inbox import CrmInboxAction, CrmNews


class CloudletAction(CrmInboxAction):
    """Base of the actions on a cloudlet: which CRM is connected, and what it answers."""

    def __init__(self) -> None:
        super().__init__()
        self._terms = CloudletGrantDetails()
        self._address: CrmAddress | None = None
        self._status = ""

    async def _read_grant_details(self, grant: Grant, unasked: bool = False) -> None:
        self._terms = CloudletGrantDetails.model_validate(grant.details)
        self._address, self._status = self._terms.address, grant.during
        await self.require_proof(str(self._terms.spec.get("key", "")), grant.epoch, unasked)

    async def _send_order(self, grant: Grant, verb: CrmVerb, **spec: object) -> None:
        assert self._address
        await calls.send_requests(self._address, make_cloudlet_request(grant, self._address, verb, **spec))

    async def _next_message(self, grant: Grant, until: datetime, what: str) -> CrmNews:
        """Returns the next message; raises WorkFailed if none comes in time."""
        message = await self.wait_for_message(grant.path, until, what)
        if message is None:
            raise WorkFailed(f"{what}: nothing came in time")
        return message

    async def _advance_cloudlet(self, grant: Grant, to: str, actor: str, message: str = "") -> None:
        if await advance_object(grant, to, actor, message):
            self._status = to
            self.update_progress(phase=to)

    async def handle_late_answer(self, path: str, said: CrmResponse) -> None:
        """Passes a late answer about the cloudlet to the link, once the action has ended."""
        await workflow.wait_condition(lambda: self._ended)
        if not await self.forward_to_link(said):
            await super().handle_late_answer(path, said)

    async def forward_to_link(self, said: CrmResponse) -> bool:
        """Forwards an answer to the link: it returns the answer while the action runs, and applies it afterwards."""
        link = workflow.get_external_workflow_handle(companion_id(workflow.info().workflow_id, messages.LINK_ROLE))
        try:
            await link.signal(messages.CRM_RESPONSE, said.fields_as_received or said)
        except FailureError:
            return False
        return True

    async def _request_and_wait(self, grant: Grant, verb: CrmVerb, words: tuple[str, ...], what: str) -> CrmResponse:
        """Asks the CRM and waits for one of these states; asks again after a reconnection."""
        until = workflow.now() + timedelta(seconds=self._terms.patience.update)
        await self._send_order(grant, verb)
        while True:
            message = await self._next_message(grant, until, what)
            if isinstance(message, Reconnected):
                self._address = message.address
                await self._send_order(grant, verb)
            elif isinstance(message, CrmResponse):
                if self._address and message.notify_id == self._address.notify_id and message.state in words:
                    return message
                if self._address and message.notify_id == self._address.notify_id and message.errors:
                    raise WorkFailed(message.joined_errors())
                await self.ignore_message(grant.path, message.state, f"waiting for {' or '.join(words)}")


def make_cloudlet_request(grant: Grant, to: CrmAddress, verb: CrmVerb, **spec: object) -> CrmRequest:
    """Builds a request to a CRM about the cloudlet itself."""
    return CrmRequest(
        path=grant.path, verb=verb, spec=spec, epoch=grant.epoch, reply_to=grant.path, **to.connection_fields()
    )


def make_undo_upgrade_request(grant: Grant, to: CrmAddress, version: str) -> CrmRequest:
    """Builds a request to CRMv1 to clean up whatever there is of the CRM of this version."""
    return make_cloudlet_request(grant, to, CrmVerb.UPGRADE, version=version).model_copy(update={"undo": True})


@action_workflow(messages.BRING_UP_CLOUDLET)
class BringUpCloudlet(CloudletAction):
    """Creates or repairs a cloudlet: its CRM connects, is acknowledged, gathers its instances, and is Ready."""

    async def perform_with_crm(self, request: Request, grant: Grant) -> WorkReport:
        await self._read_grant_details(grant, unasked=True)  # the CRM connects unasked
        until = workflow.now() + timedelta(seconds=self._terms.patience.connect)
        what = f"waiting for its CRM ({crm_command_line(grant.path, self._terms.spec)})"
        self.update_progress(step=what)
        if self._address:  # a CRM is connected already: ask it to reconnect
            if other := self._terms.next:  # and to clean up after a failed upgrade
                await calls.send_requests(self._address, make_undo_upgrade_request(grant, self._address, other.version))
            await self._send_order(grant, CrmVerb.RECONNECT)
            self._address = None
        while True:
            message = await self._next_message(grant, until, what)
            if isinstance(message, Reconnected):
                await self._acknowledge_crm(grant, message)
            elif isinstance(message, CrmResponse) and await self._handle_gathering_answer(grant, message):
                break
            elif isinstance(message, ConnectionLost):
                await self._handle_disconnect(grant, message)
        assert self._address
        await calls.send_all_data(self._address, grant)
        return WorkReport(moves=[Move(path=grant.path, to=S.READY, actor=CrmActor.CRM)])

    async def _handle_disconnect(self, grant: Grant, said: ConnectionLost) -> None:
        """Moves the cloudlet to Offline at once; the next CRM that connects continues from there."""
        if self._address and said.notify_id == self._address.notify_id:
            self._address = None
            await self._advance_cloudlet(grant, S.OFFLINE, "Controller", "its CRM is gone")
        if (other := self._terms.next) and said.version != other.version:
            await calls.send_requests(
                other, make_cloudlet_request(grant, other, CrmVerb.RECONNECT)
            )  # it has taken over meanwhile

    async def _acknowledge_crm(self, grant: Grant, said: Reconnected) -> None:
        if self._status in (S.INIT_OK, S.OFFLINE):
            await self._advance_cloudlet(grant, S.INIT, CrmActor.CRM)
        self._address = said.address
        await self._advance_cloudlet(grant, S.INIT_OK, "Controller", f"notify-id {said.address.notify_id}")

    async def _handle_gathering_answer(self, grant: Grant, message: CrmResponse) -> bool:
        notify_id = self._address.notify_id if self._address else 0
        meaning = CrmInterpreter(CLOUDLET, self._status, notify_id, actor=CrmActor.CRM).interpret_message(message)
        if meaning.effect is MessageEffect.ENDS and meaning.to == S.READY:
            return True
        if self._address and message.notify_id == self._address.notify_id and message.errors:
            raise WorkFailed(f"gathering failed: {message.joined_errors()}")
        await self.ignore_message(grant.path, message.state, meaning.why or f"under {self._status}")
        return False


@action_workflow(messages.MAINTAIN_CLOUDLET)
class MaintainCloudlet(CloudletAction):
    """Begins maintenance, creating the apps elsewhere first if requested; or ends it."""

    async def perform_with_crm(self, request: Request, grant: Grant) -> WorkReport:
        await self._read_grant_details(grant)
        note = ""
        if request.action == "maintenance-start":
            note = await self._fail_over_apps(grant) if self.spec(MaintenanceSpec).failover else ""
            await self._request_and_wait(grant, CrmVerb.MAINTAIN, (S.UNDER_MAINTENANCE,), "the CRM stops its work")
        else:
            await self._request_and_wait(grant, CrmVerb.OPERATE, (S.READY,), "the CRM takes up its work")
        return WorkReport(message=note)

    async def settle_with_crm(self, request: Request, grant: Grant) -> WorkReport:
        """Asks the CRM to leave maintenance again, without waiting for it."""
        if self._address:
            await self._send_order(
                grant, CrmVerb.OPERATE if request.action == "maintenance-start" else CrmVerb.MAINTAIN
            )
        return WorkReport()

    async def _fail_over_apps(self, grant: Grant) -> str:
        """Creates every app elsewhere; if one cannot be, the cloudlet does not go into maintenance."""
        apps = (await run_local_activity(EdgeActivities.plan_failover, grant.path)).apps
        self.update_progress(step="failing over", targets=len(apps), done=0)
        ends = await asyncio.gather(*(self._recreate_app_elsewhere(grant, app) for app in apps))
        if errors := [why for why in ends if why]:
            raise WorkFailed(
                f"{len(errors)} of {format_count(len(apps), 'app')} could not fail over: {join_errors(errors)}"
            )
        return f"failed over: {', '.join(short_path(app.to) for app in apps[:10])}" if apps else ""

    async def _recreate_app_elsewhere(self, grant: Grant, app: PlannedFailover) -> str:
        """Creates the app elsewhere, by the action that a user would request. Returns the error, or an empty string."""
        if not app.to:
            return f"{app.path}: no other cloudlet that takes changes has a Ready cluster of that name without the app"
        by = {"requested_by": grant.path, "on_behalf_of": grant.principal, "reason": f"failover of {app.path}"}
        request = Request(path=app.to, action="create", spec=app.spec, **by)
        if why := await run_child_action(request):
            return f"{app.path}: {why}"
        self.update_progress(done=self._progress.done + 1)
        return ""


@action_workflow(messages.REKEY_CLOUDLET)
class RekeyCloudlet(CloudletAction):
    """Replaces the CRM's public key: the connected CRM has to reconnect, and prove itself with the new token."""

    async def perform_with_crm(self, request: Request, grant: Grant) -> WorkReport:
        self._terms = CloudletGrantDetails.model_validate(grant.details)
        self._address = self._terms.address
        key = self.spec(KeySpec).key
        note = "its CRM has to prove who it is" if key else "anybody may speak for its CRM"
        return WorkReport(spec={**self._terms.spec, "key": key}, message=note)

    async def notify_after_end(self, request: Request, outcome: Outcome) -> None:
        """Ask the CRM to reconnect, once its new key is stored."""
        if self._address is None or outcome.result is not ActionResult.SUCCEEDED:
            return
        try:
            again = CrmRequest(path=request.path, verb=CrmVerb.RECONNECT, **self._address.connection_fields())
            await calls.send_requests(self._address, again)
        except FailureError as error:
            workflow.logger.warning("its CRM could not be told: %s", error)


@action_workflow(messages.DELETE_CLOUDLET)
class DeleteCloudlet(CloudletAction):
    """Asks the CRM to shut down, then removes the cloudlet."""

    async def perform_with_crm(self, request: Request, grant: Grant) -> WorkReport:
        await self._read_grant_details(grant)
        if self._address is None:
            return WorkReport(message="no CRM was connected: nobody was told")
        await self._request_and_wait(grant, CrmVerb.SHUTDOWN, GONE_STATES, "the CRM shuts down")
        return WorkReport()
