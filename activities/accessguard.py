"""The interceptor before every activity: closed to outsiders, judged, or open, as `domain/exposure.py` lists it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol

from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities.access import CALLER_HINT, Authorizer, RefusalLineBudget, check_calling_workflow, describe_call
from activities.proofs import used_proof_refusal
from activities.refusals import refusal_as_error
from domain import registry
from domain.access import Subject
from domain.errors import Category, Refused, StoreUnavailable
from domain.exposure import INTERNAL, READ
from domain.identities import ProofUse
from domain.message import SignedMessage
from domain.model import AT_WRITE_TIME, BeginRequest, Refusal, Request
from domain.requests import AboutRequest, AccessAttempt

CALL_HEADER = "ratchet-call"
_log = logging.getLogger("ratchet.access")


class RefusalRecorder:
    """Keeps what was forbidden to somebody in the history of the object; a RefusalLineBudget bounds how many lines."""

    def __init__(self, record: Callable[[AccessAttempt], Awaitable[None]]) -> None:
        self._record = record
        self._lines = RefusalLineBudget()

    async def record_refusal(self, name: str, asked: object, refused: Refused) -> None:
        """Writes the line of a refused call: under its object, or under what else the order names."""
        about = asked.request if isinstance(asked, AboutRequest | BeginRequest) else asked
        if refused.category is not Category.FORBIDDEN or not isinstance(about, SignedMessage):
            return
        exposed = registry.activity_exposures().get(name, INTERNAL).verb or READ
        verb, path = about.action if isinstance(about, Request) else exposed, about.path_to_authorize
        if not registry.is_object_path(path):
            path = about.audit_path or f"{registry.INSTALLATION}:{verb}"
        if self._lines.try_spend_line(path):
            line = AccessAttempt(path=path, verb=verb, message=f"refused: {refused.message}", at=AT_WRITE_TIME)
            try:
                await self._record(line)
            except (StoreUnavailable, Refused) as error:  # Refused: a role that may only read
                _log.warning("%s, and that could not be recorded: %s", refused.message, error)


class ProofStore(Protocol):
    """The proofs that were used, in the store: each is good for one run."""

    async def use_proof(self, proof: ProofUse | None, run: str) -> None: ...

    async def is_proof_used(self, proof: str) -> bool: ...


class AccessGuard(Interceptor):
    """Guards the activities of a worker. `own_types` are the names of its workflows."""

    def __init__(
        self,
        authorizer: Authorizer,
        own_types: Iterable[str],
        recorder: RefusalRecorder,
        proofs: ProofStore,
        wants_tokens: bool = False,
    ) -> None:
        self.authorizer = authorizer
        self.proofs = proofs
        self.wants_tokens = wants_tokens  # this worker has a key, so the others must have one too
        self.own_types = frozenset(own_types)
        self.recorder = recorder

    def check_caller(self, info: activity.Info, headers: Mapping[str, Payload]) -> None:
        """Refuses a call of a workflow that only has the name of one of ours, if our workers have a key."""
        call = describe_call(info.workflow_id, info.workflow_run_id, info.activity_type)
        token = headers[CALL_HEADER].data if CALL_HEADER in headers else b""
        if self.wants_tokens and not self.authorizer.identify.is_own_call(call, token):
            message = f"{info.activity_type} is not called by a worker of ours: {info.workflow_id}"
            raise Refused(Category.FORBIDDEN, message, CALLER_HINT)

    async def check_proof_of_request(self, subject: Subject | None, asked: object) -> None:
        """Refuses the proof of a request that another run has used; the run that carries it out uses it now."""
        if subject is None or subject.proof is None:
            return
        if isinstance(asked, BeginRequest):
            await self.proofs.use_proof(subject.proof, asked.run)
        elif isinstance(asked, AboutRequest) and await self.proofs.is_proof_used(subject.proof.id):
            raise used_proof_refusal(subject)

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
            check_calling_workflow(info.activity_type, info.workflow_type, self._guard.own_types, info.is_local)
            if info.workflow_type is not None and not info.is_local:
                self._guard.check_caller(info, input.headers)
            subject = authorizer.authorize_call(
                info.activity_type,
                asked,
                info.scheduled_time,
                call=info.activity_run_id or info.activity_id,
                by_own_workflow=info.workflow_type is not None,
            )
            await self._guard.check_proof_of_request(subject, asked)
            proceed = super().execute_activity
            return await authorizer.answer(subject, lambda: proceed(input))
        except Refused as refused:
            await self._guard.recorder.record_refusal(info.activity_type, asked, refused)
            raise refusal_as_error(Refusal.from_error(refused)) from refused
