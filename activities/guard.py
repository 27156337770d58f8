"""The interceptor before every activity: closed to outsiders, judged, or open, as `domain/exposure.py` lists it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities.access import Authorizer, check_caller
from activities.refusals import refusal_as_error
from domain.errors import Refused
from domain.model import Refusal


class AccessGuard(Interceptor):
    """Guards the activities of a worker. `own_types` are the names of its workflows."""

    def __init__(self, authorizer: Authorizer, own_types: Iterable[str]) -> None:
        self.authorizer = authorizer
        self.own_types = frozenset(own_types)

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _GuardedActivity(next, self)


class _GuardedActivity(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, guard: AccessGuard) -> None:
        super().__init__(next)
        self._guard = guard

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info, authorizer = activity.info(), self._guard.authorizer
        try:
            check_caller(info.activity_type, info.workflow_type, self._guard.own_types)
            asked = input.args[0] if input.args else None
            subject = authorizer.check_call(
                info.activity_type,
                asked,
                info.scheduled_time,
                call=info.activity_run_id or info.activity_id,
                by_own_workflow=info.workflow_type is not None,
            )
            answer = await super().execute_activity(input)
            return authorizer.prune_answer(subject, answer)
        except Refused as refused:
            raise refusal_as_error(Refusal.from_error(refused)) from refused
