"""begin, advance and finish as local activities: the only writers of an action's state. They may run twice."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from temporalio import activity

from activities.access import Authorizer, RefusalLineBudget
from activities.dryrun import DryRunChecker, foresee_refusal
from activities.measuring import time_block
from activities.workerfacts import WorkerFacts
from domain import metrics, registry
from domain.errors import Category, Refused
from domain.model import (
    ActionEnding,
    ActionResult,
    Admission,
    BeginRequest,
    Grant,
    Outcome,
    ReadQuery,
    Refusal,
    Request,
    Step,
    StepResult,
    WorkReport,
)
from domain.paths import kind_of
from domain.ports import Inventory, WorkAtBegin
from domain.requests import AccessAttempt, CheckedMessages, MessageCheck, MessageChecks
from domain.statetable import Ruling
from domain.waitqueue import LockHolders, QueueCommand

_log = logging.getLogger("ratchet.actions")


@dataclass(eq=False)
class ActionActivities:
    """The inventory writes of every action, whatever its family.

    `at_once`, by kind and action: work that is mostly short. It is tried right after begin; if it completes, finish
    runs in the same activity, and the workflow has nothing left to do.
    """

    inventory: Inventory
    dry_runs: DryRunChecker
    authorizer: Authorizer = field(default_factory=Authorizer)
    at_once: Mapping[tuple[str, str], WorkAtBegin] = field(default_factory=dict)
    facts: WorkerFacts = field(default_factory=WorkerFacts)
    lines: RefusalLineBudget = field(default_factory=RefusalLineBudget)
    note_admission: Callable[[timedelta], None] = lambda _waited: None  # is told how long each request waited

    @activity.defn(name="permit")
    async def check_access(self, request: Request) -> Refusal | None:
        """Returns why a request may not take over, or None: nothing is ended for one that begin will refuse."""
        try:
            await self.dry_runs.check_takeover(request, activity.info().scheduled_time)
        except Refused as refused:
            return await self._record_refusal(request.path, request.action, Refusal.from_error(refused))
        return None

    @activity.defn(name="permit_message")
    async def check_message(self, check: MessageCheck) -> Refusal | None:
        """Returns why the sender of a message may not send it to a workflow, or not now; None if it may."""
        try:
            proof = self.authorizer.check_message(check)
            if check.only_under:
                await self._check_status(check)
            run = activity.info().workflow_run_id or ""
            await self.inventory.use_proof(proof, f"{run}/{check.number}" if check.number else run)
        except Refused as refused:
            return await self._record_refusal(check.path, check.verb, Refusal.from_error(refused))
        return None

    @activity.defn(name="permit_messages")
    async def check_messages(self, messages: MessageChecks) -> CheckedMessages:
        """Returns the first of several messages that its sender may send to a workflow now, or each of them."""
        allowed, not_now = list[int](), list[int]()
        for number, check in enumerate(messages.checks):
            refusal = await self.check_message(check)
            if refusal is None:
                allowed.append(number)
                if not messages.each:
                    break
            elif refusal.category is Category.NOT_ALLOWED:
                not_now.append(number)
        return CheckedMessages(allowed=allowed[0] if allowed else None, all_allowed=allowed, not_now=not_now)

    async def _check_status(self, check: MessageCheck) -> None:
        status = (await self.inventory.read_object(check.path)).status
        if status != check.only_under:
            label = registry.kind_at(check.path).table.label
            message = f"{check.verb} is not allowed for {label} under {status}"
            raise Refused(Category.NOT_ALLOWED, message, f"see: starter explain {check.path}")

    async def _record_refusal(self, path: str, verb: str, refusal: Refusal) -> Refusal:
        """Keeps what was forbidden to somebody in the object's history."""
        if refusal.category is Category.FORBIDDEN and self.lines.try_spend_line(path):
            message = f"refused: {refusal.message}"
            await self.inventory.record_access_attempt(AccessAttempt(path=path, verb=verb, message=message))
        return refusal

    @activity.defn(name="begin")
    async def begin_action(self, claim: BeginRequest) -> Admission:
        """Admits an action or returns the refusal; runs its inline work if it has any."""
        began = time.monotonic()
        if claim.started:
            self.note_admission(claim.at - claim.started)
        claim = await self.facts.add_to_claim(claim, self.authorizer.is_request_allowed)
        with time_block(metrics.STORE_LATENCY, operation="begin"):
            admission = await self.inventory.begin_action(claim)
        if admission.refusal and admission.refusal.holders and registry.may_preempt(claim.request):
            # It ends those who hold the locks. If that is in vain, it is refused for another reason, and ends nothing.
            foreseen = await foresee_refusal(self.inventory, claim)
            admission = Admission(refusal=foreseen or admission.refusal)
        if admission.refusal:
            await self._record_refusal(claim.request.path, claim.request.action, admission.refusal)
        if admission.grant is None or admission.outcome:
            return admission
        done = await self._try_inline_work(admission.grant)
        if isinstance(done, Grant):
            return admission.model_copy(update={"grant": done})
        at = claim.at + timedelta(seconds=time.monotonic() - began)  # the server's clock plus the time spent here
        result = ActionResult.FAILED if done.failed else ActionResult.SUCCEEDED
        outcome = await self.finish_action(ActionEnding.from_grant(admission.grant, result, done, at))
        return admission.model_copy(update={"outcome": outcome})

    async def _try_inline_work(self, grant: Grant) -> WorkReport | Grant:
        """Runs the action's inline work. Returns its result, or the grant for the workflow to continue from."""
        work = self.at_once.get((kind_of(grant.path), grant.action))
        if work is None or grant.ruling is not Ruling.GO or grant.behind or grant.denied:
            return grant
        try:
            return await work(grant)
        except Exception:  # the workflow does the work then, with retries
            _log.warning("%s of %s cannot be done at once", grant.action, grant.path, exc_info=True)
            return grant

    @activity.defn(name="advance")
    async def apply_step(self, step: Step) -> StepResult:
        """Applies a step: all of its moves or none."""
        with time_block(metrics.STORE_LATENCY, operation="advance"):
            return await self.inventory.apply_step(step)

    @activity.defn(name="finish")
    async def finish_action(self, ending: ActionEnding) -> Outcome:
        """Ends an action and releases its locks."""
        with time_block(metrics.STORE_LATENCY, operation="finish"):
            return await self.inventory.finish_action(ending)

    @activity.defn(name="has_ended")
    async def has_run_ended(self, query: ReadQuery) -> bool:
        """Tells whether finish has committed for this run; Temporal may not know it yet."""
        try:
            await self.inventory.read_outcome(query.run)
        except Refused:
            return False
        return True

    @activity.defn(name="still_held")
    async def filter_unreleased_holders(self, behind: LockHolders) -> LockHolders:
        """Returns those holders that have not released their locks."""
        return LockHolders(holders=await self.inventory.filter_unreleased_holders(behind.holders))

    @activity.defn(name="close_line")
    async def close_wait_queue(self, order: QueueCommand) -> LockHolders:
        """Closes an object's wait queue to new requests. Returns who is in it."""
        return LockHolders(holders=await self.inventory.close_wait_queue(order))

    @activity.defn(name="open_line")
    async def open_wait_queue(self, order: QueueCommand) -> None:
        """Opens an object's wait queue to requests again."""
        await self.inventory.open_wait_queue(order)
