"""Creating an MCI: prepare its places, hold if requested, create its VMs, and apply its failure policy."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.mci.records import MciRecordActivities
    from activities.refusals import refusal_as_error
    from domain import wire
    from domain.errors import Category, format_count, format_one_line
    from domain.limits import SIGNALS_PER_TASK
    from domain.mci.messages import (
        CONTINUE,
        HOLDING,
        WITHDRAW,
        HoldDecision,
        refusal_of_missing_offers,
        requirements_by_place,
    )
    from domain.mci.specs import MciSpec
    from domain.mci.tables import MciPhase, VmStatus
    from domain.model import Grant, Move, Refusal, Request, WorkReport
    from domain.statetable import NONE, Actor
    from domain.validation import describe_validation_errors
    from workflows import calls
    from workflows.action import MESSAGES_KEPT, WorkFailed, action_workflow
    from workflows.mci.calls import join_problems, validate_place_needs
    from workflows.mci.vms import VmsAction


UNNAMED = HoldDecision()  # of a message without data


@action_workflow(wire.CREATE_MCI)
class CreateMci(VmsAction):
    """Creates an MCI: prepares its places, holds if requested, then creates its VMs in every cloud."""

    def __init__(self) -> None:
        super().__init__()
        self._grant: Grant | None = None
        self._decision = ""
        self._decided_by = ""  # as text: who, and why
        self._signalled: list[tuple[str, HoldDecision]] = []
        self._deciding = False

    @workflow.signal(
        name=CONTINUE,
        description="Go on with an MCI that holds: make its VMs.",
        unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON,
    )
    async def continue_by_signal(self, raw: Any = None) -> None:
        await self._take_decision_signal(CONTINUE, raw)

    @workflow.signal(
        name=WITHDRAW,
        description="Give up an MCI that holds: undo its preparation.",
        unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON,
    )
    async def withdraw_by_signal(self, raw: Any = None) -> None:
        await self._take_decision_signal(WITHDRAW, raw)

    @workflow.update(name=CONTINUE, description="As the signal, but refused if the MCI does not hold.")
    async def continue_by_update(self, decision: HoldDecision = UNNAMED) -> str:
        return await self._take_decision(CONTINUE, decision)

    @workflow.update(name=WITHDRAW, description="As the signal, but refused if the MCI does not hold.")
    async def withdraw_by_update(self, decision: HoldDecision = UNNAMED) -> str:
        return await self._take_decision(WITHDRAW, decision)

    @continue_by_update.validator
    def _validate_continue(self, decision: HoldDecision = UNNAMED) -> None:
        self._check_undecided(CONTINUE)

    @withdraw_by_update.validator
    def _validate_withdraw(self, decision: HoldDecision = UNNAMED) -> None:
        self._check_undecided(WITHDRAW)

    async def examine_request(self, request: Request) -> Request | Refusal:
        """Refuses a wrong spec, also if only a cloud can tell; resolves its connections."""
        examination = await calls.examine_request(MciRecordActivities.examine_mci_request, request)
        if isinstance(examination, Refusal):
            return examination
        if examination.refusal:
            return examination.refusal
        answers = await asyncio.gather(*(validate_place_needs(needs) for needs in examination.unknown))
        return refusal_of_missing_offers(answers) or request.model_copy(
            update={"spec": examination.spec_with_places(request.spec or {})}
        )

    async def perform_work(self, request: Request, grant: Grant) -> WorkReport:
        self._grant, spec = grant, self.spec(MciSpec)
        await self.prepare_places(grant, requirements_by_place(spec))
        if spec.option and await self._wait_for_decision(grant) == WITHDRAW:
            if left := await self.release_places(grant):
                raise WorkFailed(
                    f"{self._decided_by}; but not everything could be undone: {join_problems(left)}", WorkReport()
                )
            done = f"{self._decided_by}; the preparation was undone"
            return WorkReport(to=NONE, message=done, withdrawn=True)
        grant, _ = await self.add_vms(grant, "create", message=self._decided_by)
        self.update_progress(phase=VmStatus.CREATING, targets=grant.targets)
        await self.operate_vms(grant)
        return await self._apply_failure_policy(spec, grant)

    async def settle_work(self, request: Request, grant: Grant) -> WorkReport:
        if self._operated:
            return await super().settle_work(request, grant)
        if self._has_left:
            return WorkReport()
        return WorkReport(message=join_problems(await self.release_places(grant)))

    async def _wait_for_decision(self, grant: Grant) -> str:
        """Holds, for days if need be, until `continue` or `withdraw` comes."""
        await calls.advance_object(grant, MciPhase.PREPARED, Actor.CONTROLLER, "holding")
        self.update_progress(phase=MciPhase.PREPARED, step=f"{HOLDING}: waits for {CONTINUE} or {WITHDRAW}")
        self._write_search_attributes(0)
        await workflow.wait_condition(lambda: bool(self._decision))
        # Ends the task. If a worker died in one that takes the decision and carries it out, the next one would find
        # that the record is not Prepared any more, and refuse the decision.
        await workflow.sleep(timedelta(milliseconds=1), summary="the decision is stored before it is carried out")
        self.update_progress(step="")
        return self._decision

    async def _apply_failure_policy(self, spec: MciSpec, grant: Grant) -> WorkReport:
        """Applies the failure policy if some VMs could not be created."""
        if spec.policyOnPartialFailure == "continue":
            return WorkReport()
        rollback = spec.policyOnPartialFailure == "rollback"
        doomed, enrolled = await self.add_vms(grant, "delete" if rollback else "refine")
        if not enrolled.lost:
            return WorkReport()
        self.update_progress(
            step=f"{spec.policyOnPartialFailure}: removes {format_count(doomed.targets, 'VM')}", done=0, failed=0
        )
        await self.operate_vms(doomed)
        why = f"{enrolled.lost} of {format_count(grant.targets, 'VM')} could not be made"
        if not rollback:
            return WorkReport(message=f"{why} and were cleaned away", lost=enrolled.lost, troubles=enrolled.troubles)
        if left := await self.release_places(grant):
            raise WorkFailed(
                f"{why}, and the rollback could not remove everything: {join_problems(left)}", WorkReport()
            )
        end = WorkReport(to=NONE, lost=grant.targets, troubles=enrolled.troubles)
        raise WorkFailed(f"{why}: everything was rolled back", end)

    async def _take_decision_signal(self, word: str, raw: Any) -> None:
        """Takes a signal, which may have no data; data of another shape is recorded as ignored, with the reason."""
        try:
            decision = HoldDecision.model_validate(raw or {})
        except ValidationError as error:
            why = describe_validation_errors(error, "data", HoldDecision)
            await self.record_ignored_signal(f"{word}: its data is not valid: {why}; send it again")
            return
        self._signalled.append((word, decision))
        if self._deciding:  # a flood is checked in bulk, by the handler of its first signal
            return
        self._deciding = True
        while self._signalled:
            signalled, self._signalled = self._signalled[:SIGNALS_PER_TASK], self._signalled[SIGNALS_PER_TASK:]
            await self._take_first(signalled)
        self._deciding = False

    async def _take_first(self, signalled: list[tuple[str, HoldDecision]]) -> None:
        """Takes the first decision that may be made now. The others have no effect, which a few lines record."""
        if not self._decision:
            checked = await calls.check_messages(signalled, MciPhase.PREPARED, await self._places_by_decision())
            late = [signalled[number] for number in checked.not_now]
            rest = signalled[checked.allowed :] if checked.allowed is not None else []
            if rest and not self._decision:
                self._decide(*rest.pop(0))
            late += rest
        else:
            late = signalled
        for word, decision in late:
            await self._record_late_decision(word, decision)

    async def _record_late_decision(self, word: str, decision: HoldDecision) -> None:
        self._ignored += 1
        if self._grant and not self._ended and self._ignored <= MESSAGES_KEPT:
            to = VmStatus.CREATING if word == CONTINUE else NONE
            message = format_one_line(f"{_describe_decision(word, decision)}: not holding")
            await calls.move_objects(
                self._grant, [Move(path=self._grant.path, to=to, actor=Actor.USER, message=message)]
            )

    async def _take_decision(self, word: str, decision: HoldDecision) -> str:
        """Takes the first `continue` or `withdraw` that comes while the record says Prepared; refuses any other.

        The record decides: a worker may die when it has written Prepared, and the next one may get the decision before
        it has come that far again.
        """
        places = (await self._places_by_decision()).get(word, [])
        if refusal := await calls.check_message(word, decision, MciPhase.PREPARED, places):
            not_now = refusal.category is Category.NOT_ALLOWED
            message = f"{refusal.message}: it is not holding" if not_now else refusal.message
            raise refusal_as_error(refusal.model_copy(update={"message": message}))
        self._check_undecided(word)
        self._decide(word, decision)
        return f"{word} it is"

    async def _places_by_decision(self) -> dict[str, list[str]]:
        """Returns the places that each decision uses: the policy may have changed since the MCI began to hold."""
        if self._examined is None:  # a worker died, and this one has not come as far again
            await workflow.wait_condition(lambda: self._examined is not None or self._ended)
        return {CONTINUE: sorted({group.place for group in self.spec(MciSpec).subGroups})} if self._examined else {}

    def _decide(self, word: str, decision: HoldDecision) -> None:
        who = _describe_decision(word, decision)
        self._decision = word
        self._decided_by = format_one_line(f"{who}: {decision.reason}" if decision.reason else who)

    def _check_undecided(self, word: str) -> None:
        if self._decision:
            message = f"{word} is not allowed for MCI under {self.progress().phase}: it is not holding"
            hint = f"see: starter explain {workflow.info().workflow_id}"
            raise refusal_as_error(Refusal(category=Category.NOT_ALLOWED, message=message, hint=hint))


def _describe_decision(word: str, decision: HoldDecision) -> str:
    return f"{word} by {decision.requested_by or 'nobody named'}"
