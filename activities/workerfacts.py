"""What only a worker knows and begin decides on: it is added to each request that a real or a dry run brings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from domain.model import BeginRequest, Refusal, Request
from domain.paths import kind_of

FindObjection = Callable[[Request], Awaitable[Refusal | None]]


@dataclass(frozen=True)
class WorkerFacts:
    """What a worker reaches and allows. `objections`, by kind and action: why those who would do the work will not."""

    serves: list[str] | None = None  # the real places that this worker reaches
    no_simulation: bool = False  # this worker refuses simulated providers
    real_backends: list[str] = field(default_factory=list)  # their roles
    objections: Mapping[tuple[str, str], FindObjection] = field(default_factory=dict)

    async def add_to_claim(self, claim: BeginRequest, may_ask: Callable[[BeginRequest], bool]) -> BeginRequest:
        """Returns the claim with these facts. Nobody is asked about a request that its sender may not make."""
        request = claim.request
        find = self.objections.get((kind_of(request.path), request.action))
        update = {
            "serves": self.serves,
            "no_simulation": self.no_simulation,
            "real_backends": self.real_backends,
            "objection": await find(request) if find and may_ask(claim) else None,
        }
        return claim.model_copy(update=update)
