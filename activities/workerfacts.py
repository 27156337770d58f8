"""What only a worker knows and begin decides on: it is added to each request that a real or a dry run brings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from domain.errors import Refused
from domain.model import BeginRequest, Refusal, Request
from domain.paths import kind_of

RaiseObjection = Callable[[Request], Awaitable[None]]  # raises Refused


@dataclass(frozen=True)
class WorkerFacts:
    """What a worker reaches and allows. `objections`, by kind and action: why those who would do the work will not."""

    serves: list[str] | None = None  # the real places that this worker reaches
    no_simulation: bool = False  # this worker refuses simulated providers
    real_backends: list[str] = field(default_factory=list)  # their roles
    objections: Mapping[tuple[str, str], RaiseObjection] = field(default_factory=dict)

    async def add_to_claim(self, claim: BeginRequest, may_ask: Callable[[BeginRequest], bool]) -> BeginRequest:
        """Returns the claim with these facts. Nobody is asked about a request that its sender may not make."""
        request = claim.request
        ask = self.objections.get((kind_of(request.path), request.action))
        update = {
            "serves": self.serves,
            "no_simulation": self.no_simulation,
            "real_backends": self.real_backends,
            "objection": await _find_objection(ask, request) if ask and may_ask(claim) else None,
        }
        return claim.model_copy(update=update)


async def _find_objection(ask: RaiseObjection, request: Request) -> Refusal | None:
    try:
        await ask(request)
    except Refused as refused:
        return Refusal.from_error(refused)
    return None
