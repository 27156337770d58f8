"""Checks the request for a new system before it is admitted: does a worker serve its backend?"""

from __future__ import annotations

from temporalio import activity

from activities.pollers import PollerCheck
from domain import registry
from domain.errors import Category, Refused
from domain.model import BeginRequest, Refusal, Request
from domain.systems.ports import backend_queue
from domain.systems.specs import SystemSpec


class SystemExaminer:
    """Refuses a system that would wait for a worker that is not there. `pollers` tells which queues are served."""

    def __init__(self, pollers: PollerCheck) -> None:
        self._pollers = pollers

    @activity.defn(name="examine_system")
    async def find_refusal(self, claim: BeginRequest) -> Refusal | None:
        """Returns why a system cannot be created on its backend, or None."""
        try:
            await self.examine_request(claim.request)
        except Refused as refused:
            return Refusal.from_error(refused)
        return None

    async def examine_request(self, request: Request) -> Request:
        """Returns the request, or raises Refused. Temporal forgets a worker that is gone after some minutes."""
        spec = registry.parse_spec(request)
        assert isinstance(spec, SystemSpec)
        queue = backend_queue(spec.backend)
        if await self._pollers.queues_without_workers([queue]):
            why = f"no worker serves the backend {spec.backend!r}: nothing was changed"
            hint = f"start one where RATCHET_BACKENDS has it: starter worker --queues {queue}"
            raise Refused(Category.NOT_ALLOWED, why, hint)
        return request
