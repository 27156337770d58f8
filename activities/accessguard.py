"""The interceptor before every activity: closed to outsiders, judged, or open, as `domain/exposure.py` lists it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
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
from domain.model import Admission, BeginRequest, Refusal, Request
from domain.requests import AboutRequest, AccessAttempt

CALL_HEADER = "ratchet-call"
READING_VERBS = (READ, "verify")  # whoever repeats one learns what its sender learned, and changes nothing
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
            line = AccessAttempt(path=path, verb=verb, message=f"refused: {refused.message}")
            try:
                await self._record(line)
            except (StoreUnavailable, Refused) as error:  # Refused: a role that may only read
                _log.warning("%s, and that could not be recorded: %s", refused.message, error)


class ProofStore(Protocol):
    """The proofs that were used, in the store: each is good for one run."""

    async def use_proof(self, proof: ProofUse | None, run: str) -> None: ...

    async def is_proof_used(self, proof: str) -> bool: ...

    async def find_answer_of_run(self, run: str) -> Admission | None: ...


@dataclass(eq=False)
class AccessGuard(Interceptor):
    """Guards the activities of a worker. `own_types` are the names of its workflows."""

    authorizer: Authorizer
    own_types: frozenset[str]
    recorder: RefusalRecorder
    proofs: ProofStore

    def check_caller(self, info: activity.Info, headers: Mapping[str, Payload]) -> None:
        """Refuses a call of a workflow that only has the name of one of ours, if our workers have a key."""
        call = describe_call(info.workflow_id, info.workflow_run_id, info.activity_type)
        token = headers[CALL_HEADER].data if CALL_HEADER in headers else b""
        if self.authorizer.wants_tokens and not self.authorizer.identify.is_own_call(call, token):
            message = f"{info.activity_type} is not called by a worker of ours: {info.workflow_id}"
            raise Refused(Category.FORBIDDEN, message, CALLER_HINT)

    async def use_proof(self, name: str, subject: Subject | None, asked: object, call: str) -> None:
        """Refuses a proof that another run or call has used; this one uses it now. Reads do not tell each other."""
        if subject is None or subject.proof is None:
            return
        if isinstance(asked, BeginRequest):
            await self.proofs.use_proof(subject.proof, asked.proof_run or asked.run)
        elif isinstance(asked, AboutRequest):
            if await self.proofs.is_proof_used(subject.proof.id):
                raise used_proof_refusal(subject)
        elif isinstance(asked, SignedMessage):
            exposed = registry.activity_exposures().get(name, INTERNAL).verb
            if asked.verb_to_authorize(exposed) not in READING_VERBS:
                await self.proofs.use_proof(subject.proof, call)

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _GuardedActivity(next, self)


class _GuardedActivity(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, guard: AccessGuard) -> None:
        super().__init__(next)
        self._guard = guard

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info, authorizer = activity.info(), self._guard.authorizer
        asked = input.args[0] if input.args else None
        call = info.activity_run_id or info.workflow_run_id or info.activity_id
        try:
            check_calling_workflow(info.activity_type, info.workflow_type, self._guard.own_types, info.is_local)
            if info.workflow_type is not None and not info.is_local:
                self._guard.check_caller(info, input.headers)
            subject = await self._authorize_call(info, asked, call)
            proceed = super().execute_activity
            return await authorizer.answer(subject, lambda: proceed(input))
        except Refused as refused:
            await self._guard.recorder.record_refusal(info.activity_type, asked, refused)
            raise refusal_as_error(Refusal.from_error(refused)) from refused

    async def _authorize_call(self, info: activity.Info, asked: object, call: str) -> Subject | None:
        """Returns the sender, whose proof is used up by this call; raises Refused unless the sender may make it."""
        name, by_own_workflow = info.activity_type, info.workflow_type is not None
        try:
            authorize = self._guard.authorizer.authorize_call
            subject = authorize(name, asked, info.scheduled_time, call=call, by_own_workflow=by_own_workflow)
            await self._guard.use_proof(name, subject, asked, call)
        except Refused:
            # A reset makes a run ask again about its own request, which begin has admitted.
            if not isinstance(asked, BeginRequest) or not await self._guard.proofs.find_answer_of_run(asked.run):
                raise
            return None
        return subject
