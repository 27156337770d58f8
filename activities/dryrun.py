"""What begin would answer to a request, now or once others have made way for it. Changes nothing.

Force ends running actions, so it is asked first: a request that begin refuses must not have ended anything.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from activities.access import Authorizer
from activities.proofs import used_proof_refusal
from activities.workerfacts import WorkerFacts
from domain import registry
from domain.dryrun import DryRun
from domain.errors import Category
from domain.model import BeginRequest, LockHolder, Refusal, Request
from domain.ports import Inventory
from domain.requests import spec_digest

FindDeadHolders = Callable[[Sequence[LockHolder]], Awaitable[list[LockHolder]]]
ExamineRequest = Callable[
    [Request], Awaitable[Request]
]  # returns the request as it would be carried out, or raises Refused


@dataclass(eq=False)
class DryRunChecker:
    """Asks proof, policy, examination and begin about a request. `examinations`: by kind and action."""

    inventory: Inventory
    authorizer: Authorizer = field(default_factory=Authorizer)
    examinations: Mapping[tuple[str, str], ExamineRequest] = field(default_factory=dict)
    facts: WorkerFacts = field(default_factory=WorkerFacts)
    find_dead: FindDeadHolders | None = None  # None: every holder counts as alive

    async def check_request(self, request: Request) -> DryRun:
        """Returns what begin would answer now; raises Refused if it would not be asked."""
        claim = await self._examine_request(request, None)
        answer = await self.inventory.preview_admission(claim)
        holders = answer.refusal.holders if answer.refusal else []
        if holders and self.find_dead and (dead := await self.find_dead(holders)):
            return await self.inventory.preview_admission(claim, dead)  # as `request_admission` begins again
        return answer

    async def check_takeover(self, request: Request, at: datetime | None = None) -> None:
        """Raises Refused if begin would refuse a request although the actions at and below its object had ended.

        `at` is when Temporal received the request.
        """
        claim = await self._examine_request(request, at)
        if refusal := await foresee_refusal(self.inventory, claim):
            raise refusal.to_error()

    async def _examine_request(self, request: Request, at: datetime | None) -> BeginRequest:
        """Returns what begin is asked; raises Refused if proof, policy or examination refuse the request."""
        subject = self.authorizer.check_request(request, at)
        if subject.proof and await self.inventory.is_proof_used(subject.proof.id):
            raise used_proof_refusal(subject)
        digest = spec_digest(request)
        if examine := self.examinations.get((registry.kind_at(request.path).name, request.action)):
            request = await examine(request)
        run = f"check-{uuid.uuid4().hex[:12]}"
        claim = BeginRequest(request=request, run=run, at=at or datetime.now(UTC), spec_digest=digest)
        return await self.facts.add_to_claim(claim, lambda _: True)


async def foresee_refusal(inventory: Inventory, claim: BeginRequest) -> Refusal | None:
    """Returns why begin will refuse a request once the actions at and below its object have ended; None if it will not.

    What those leave is not known yet: they count as abandoned, which restores the status before them.
    """
    path = claim.request.path
    answer = await inventory.preview_admission(claim)
    if answer.refusal and _all_make_way(answer.refusal.holders, path):
        answer = await inventory.preview_admission(claim, answer.refusal.holders)
    if answer.outcome and not answer.grant:
        message = f"{claim.request.action} with this request ID has ended already: {answer.outcome.result}"
        return Refusal(category=Category.CONFLICT, message=message, hint=f"see: starter history {path}")
    if answer.refusal and _all_make_way(answer.refusal.holders, path):  # one that has begun since
        return None
    return answer.refusal


def _all_make_way(holders: Sequence[LockHolder], path: str) -> bool:
    """Tells whether a request conflicts only with actions at and below its object, which force ends."""
    return bool(holders) and all(holder.owner == path or holder.owner.startswith(f"{path}:") for holder in holders)
