"""Creating an MCI: prepare its places, hold if requested, create its VMs, and apply its failure policy."""

from __future__ import annotations

import asyncio

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.mci.records import RecordActivities
    from activities.refusals import refused
    from domain import wire
    from domain.errors import Category, one_line
    from domain.mci import MciPhase, MciSpec, VmStatus
    from domain.mci.messages import CONTINUE, HOLDING, WITHDRAW, Decision, needs_by_place, not_offered
    from domain.model import Done, Grant, Move, Refusal, Request
    from domain.statetable import NONE, Actor
    from workflows import calls
    from workflows.action import Failed, action_workflow
    from workflows.calls import run_local
    from workflows.mci.calls import join_problems, validate_place
    from workflows.mci.vms import OnVms


@action_workflow(wire.CREATE_MCI)
class CreateMci(OnVms):
    """Creates an MCI: prepares its places, holds if requested, then creates its VMs in every cloud."""

    def __init__(self) -> None:
        super().__init__()
        self._grant: Grant | None = None
        self._holding = False
        self._decision = ""
        self._decided_by = ""  # as text: who, and why

    @workflow.signal(name=CONTINUE, description="Go on with an MCI that holds: make its VMs.")
    async def hear_continue(self, decision: Decision) -> None:
        await self._decide(CONTINUE, decision)

    @workflow.signal(name=WITHDRAW, description="Give up an MCI that holds: undo its preparation.")
    async def hear_withdraw(self, decision: Decision) -> None:
        await self._decide(WITHDRAW, decision)

    @workflow.update(name=CONTINUE, description="As the signal, but refused if the MCI does not hold.")
    async def ask_continue(self, decision: Decision) -> str:
        return await self._decide(CONTINUE, decision)

    @workflow.update(name=WITHDRAW, description="As the signal, but refused if the MCI does not hold.")
    async def ask_withdraw(self, decision: Decision) -> str:
        return await self._decide(WITHDRAW, decision)

    @ask_continue.validator
    def _may_continue(self, decision: Decision) -> None:
        self._must_hold(CONTINUE)

    @ask_withdraw.validator
    def _may_withdraw(self, decision: Decision) -> None:
        self._must_hold(WITHDRAW)

    async def examine(self, request: Request) -> Request | Refusal:
        """Refuses a wrong spec, also if only a cloud can tell; resolves its connections."""
        examination = await run_local(RecordActivities.examine_mci, request)
        if examination.refusal:
            return examination.refusal
        answers = await asyncio.gather(*(validate_place(needs) for needs in examination.unknown))
        return not_offered(answers) or request.model_copy(update={"spec": examination.located(request.spec or {})})

    async def perform(self, request: Request, grant: Grant) -> Done:
        self._grant, spec = grant, self.spec(MciSpec)
        await self.prepare(grant, needs_by_place(spec))
        if spec.option and await self._wait_for_decision(grant) == WITHDRAW:
            if left := await self.release(grant):
                raise Failed(f"{self._decided_by}; but not everything could be undone: {join_problems(left)}", Done())
            return Done(to=NONE, message=f"{self._decided_by}; the preparation was undone")
        grant, _ = await self.enrol(grant, "create", message=self._decided_by)
        self.show(phase=VmStatus.CREATING, targets=grant.targets)
        await self.operate(grant)
        return await self._judge(spec, grant)

    async def settle(self, request: Request, grant: Grant) -> Done:
        if self._operated:
            return await super().settle(request, grant)
        if self._has_left:
            return Done()
        return Done(message=join_problems(await self.release(grant)))

    async def _wait_for_decision(self, grant: Grant) -> str:
        """Holds, for days if need be, until `continue` or `withdraw` comes."""
        await calls.advance(grant, MciPhase.PREPARED, Actor.CONTROLLER, "holding")
        self.show(phase=MciPhase.PREPARED, step=f"{HOLDING}: waits for {CONTINUE} or {WITHDRAW}")
        self._set_phase(0)
        self._holding = True
        await workflow.wait_condition(lambda: bool(self._decision))
        self._holding = False
        self.show(step="")
        return self._decision

    async def _judge(self, spec: MciSpec, grant: Grant) -> Done:
        """Applies the failure policy if some VMs could not be created."""
        if spec.policyOnPartialFailure == "continue":
            return Done()
        rollback = spec.policyOnPartialFailure == "rollback"
        doomed, enrolled = await self.enrol(grant, "delete" if rollback else "refine")
        if not enrolled.lost:
            return Done()
        self.show(step=f"{spec.policyOnPartialFailure}: removes {doomed.targets} VMs", done=0, failed=0)
        await self.operate(doomed)
        why = f"{enrolled.lost} of {grant.targets} VMs could not be made"
        if not rollback:
            return Done(message=f"{why} and were cleaned away", lost=enrolled.lost, troubles=enrolled.troubles)
        if left := await self.release(grant):
            raise Failed(f"{why}, and the rollback could not remove everything: {join_problems(left)}", Done())
        end = Done(to=NONE, lost=grant.targets, troubles=enrolled.troubles)
        raise Failed(f"{why}: everything was rolled back", end)

    async def _decide(self, word: str, decision: Decision) -> str:
        """Accepts the first `continue` or `withdraw` received while holding; later ones are recorded as ignored."""
        who = f"{word} by {decision.requested_by or 'nobody named'}"
        if self._holding and not self._decision:
            self._decision = word
            self._decided_by = one_line(f"{who}: {decision.reason}" if decision.reason else who)
            return f"{word} it is"
        if self._grant:
            to = VmStatus.CREATING if word == CONTINUE else NONE
            late = Move(path=self._grant.path, to=to, actor=Actor.USER, message=one_line(f"{who}: not holding"))
            await calls.move(self._grant, [late])
        return "ignored"

    def _must_hold(self, word: str) -> None:
        if not self._holding or self._decision:
            message = f"{word} is not allowed for MCI under {self.progress().phase}: it is not holding"
            raise refused(Refusal(category=Category.NOT_ALLOWED, message=message))
