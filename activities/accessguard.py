"""The interceptor before every activity: closed to outsiders, judged, or open, as `domain/exposure.py` lists it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities.access import Authorizer, RefusalLineBudget, check_calling_workflow
from activities.refusals import refusal_as_error
from domain import registry
from domain.errors import Category, Refused, StoreUnavailable
from domain.exposure import INTERNAL, READ
from domain.message import SignedMessage
from domain.model import AT_WRITE_TIME, Refusal
from domain.requests import AccessAttempt

_log = logging.getLogger("ratchet.access")


class RefusalRecorder:
    """Keeps what was forbidden to somebody in the history of the object; a RefusalLineBudget bounds how many lines."""

    def __init__(self, record: Callable[[AccessAttempt], Awaitable[None]]) -> None:
        self._record = record
        self._lines = RefusalLineBudget()

    async def record_refusal(self, name: str, asked: object, refused: Refused) -> None:
        """Writes the line of a refused call, if it was about an object. Calls without an object have none."""
        path = asked.path_to_authorize if isinstance(asked, SignedMessage) else ""
        if refused.category is not Category.FORBIDDEN or not registry.is_object_path(path):
            return
        if self._lines.try_spend_line(path):
            verb = registry.ACTIVITY_EXPOSURES.get(name, INTERNAL).verb or READ
            line = AccessAttempt(path=path, verb=verb, message=f"refused: {refused.message}", at=AT_WRITE_TIME)
            try:
                await self._record(line)
            except StoreUnavailable as error:
                _log.warning("%s, and that could not be recorded: %s", refused.message, error)


class AccessGuard(Interceptor):
    """Guards the activities of a worker. `own_types` are the names of its workflows."""

    def __init__(self, authorizer: Authorizer, own_types: Iterable[str], recorder: RefusalRecorder) -> None:
        self.authorizer = authorizer
        self.own_types = frozenset(own_types)
        self.recorder = recorder

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _GuardedActivity(next, self)


class _GuardedActivity(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, guard: AccessGuard) -> None:
        super().__init__(next)
        self._guard = guard

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info, authorizer = activity.info(), self._guard.authorizer
        asked = input.args[0] if input.args else None
        try:
            check_calling_workflow(info.activity_type, info.workflow_type, self._guard.own_types)
            subject = authorizer.authorize_call(
                info.activity_type,
                asked,
                info.scheduled_time,
                call=info.activity_run_id or info.activity_id,
                by_own_workflow=info.workflow_type is not None,
            )
            answer = await super().execute_activity(input)
            return authorizer.prune_answer(subject, answer)
        except Refused as refused:
            await self._guard.recorder.record_refusal(info.activity_type, asked, refused)
            raise refusal_as_error(Refusal.from_error(refused)) from refused
