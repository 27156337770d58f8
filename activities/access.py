"""The authorizer: tells who sends a message, whether they may, and leaves out of answers what they may not see."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field, is_dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel

from activities.proofs import ReplayMemory
from domain import registry
from domain.access import AccessPolicy, Subject, judge_sender
from domain.errors import Category, Refused
from domain.exposure import INTERNAL, OWN_ACTION, READ, CallAccess
from domain.identities import Login, Principal, ProofUse, message_digest
from domain.kinds import InternalProgram
from domain.message import CHILD_PROOF, SignedMessage
from domain.model import BeginRequest, Request
from domain.requests import AboutRequest, AccessQuery, AccessView, MessageCheck, is_asked_by_parent, request_as_signed
from domain.wire import READ_ACCESS, object_path_of

T = TypeVar("T")

LINES_PER_MINUTE = 5  # about refusals on one object
CALLER_HINT = "give every worker a key of the identities file: RATCHET_KEY_FILE; see docs/security.md"
STANDALONE_HINT = "it is a step of our workflows, and runs only within one"


class SenderVerifier(Protocol):
    """Returns who sent a message; raises Refused if its proof is wrong. `at` is when Temporal received it."""

    def __call__(self, message: SignedMessage, purpose: str, at: datetime | None) -> Subject: ...

    def look_up_principal(self, principal: Principal) -> Subject:
        """Returns somebody who asked for something earlier, with their groups of now; Refused if not known any more."""
        ...

    def look_up_caller(self, name: str, login: Login | None, key: str) -> Subject:
        """Returns somebody whom this process has authenticated, with their groups of now. `key`: its own public key."""
        ...

    def is_own_call(self, call: str, token: bytes) -> bool:
        """Tells whether a worker of ours made the call of an activity (`describe_call`), or of a child."""
        ...


class TrustingVerifier:
    """Takes the name that the sender gives: for workers without RATCHET_IDENTITIES."""

    def __call__(self, message: SignedMessage, purpose: str, at: datetime | None) -> Subject:
        return Subject(message.requested_by)

    def look_up_principal(self, principal: Principal) -> Subject:
        return Subject(principal.name)

    def look_up_caller(self, name: str, login: Login | None, key: str) -> Subject:
        return Subject(name, proven=True)

    def is_own_call(self, call: str, token: bytes) -> bool:
        return True


claimed_sender = TrustingVerifier()


@dataclass(eq=False)
class Authorizer:
    """Asks the policy at every action, read and message. `policy` returns the current one; None: everybody may."""

    policy: Callable[[], AccessPolicy | None] = lambda: None
    identify: SenderVerifier = claimed_sender
    wants_tokens: bool = False  # this worker has a key, so the others must have one too
    replays: ReplayMemory = field(default_factory=ReplayMemory)
    _reader: ContextVar[Subject | None] = field(default_factory=lambda: ContextVar("reader", default=None))

    def authorize(self, subject: Subject, verb: str, path: str, force: bool = False) -> None:
        """Raises Refused unless the subject may do this."""
        if policy := self.policy():
            policy.authorize(subject, verb, path, force)

    def check_request(self, request: Request, at: datetime | None = None) -> Subject:
        """Raises Refused unless its sender may make this request. Returns the sender."""
        subject = self.identify(request, OWN_ACTION, at)
        self.authorize_sender(request, subject)
        return subject

    def identify_requester(self, claim: BeginRequest) -> Subject:
        """Returns who sends a request; raises Refused if that is not proven where it must be.

        What a workflow of ours asks of its child has a token of its worker instead. Temporal says whose child it is,
        but not whether that parent is ours.
        """
        request, sent = claim.request, request_as_signed(claim)
        if self.identify is claimed_sender or not is_asked_by_parent(claim):
            return self.identify(sent, OWN_ACTION, claim.started or claim.at)
        if request.requested_by not in (*InternalProgram, object_path_of(claim.parent)):
            raise Refused(Category.FORBIDDEN, f"{request.requested_by} is not proven: it is no program of ours")
        child = describe_child(claim.parent, claim.parent_run, claim.workflow or request.path, sent)
        token = request.proof.removeprefix(CHILD_PROOF).encode()
        if self.wants_tokens and not self.identify.is_own_call(child, token):
            message = f"{request.requested_by} is not proven: {claim.parent} is not run by a worker of ours"
            raise Refused(Category.FORBIDDEN, message, CALLER_HINT)
        return Subject(request.requested_by)

    def authorize_sender(self, request: Request, sender: Subject) -> None:
        """Raises Refused unless the sender may make this request, for itself or on behalf of others."""
        judge_sender(self.policy(), request, sender)

    def authorize_places(self, path: str, places: Iterable[str]) -> None:
        """Raises Refused unless the policy lets the object at this path use these places in clouds."""
        if policy := self.policy():
            policy.authorize_places(path, places)

    def authorize_principal(self, request: Request, principal: Principal) -> None:
        """Raises Refused unless the principal for whom a program acts is still known and may request this."""
        subject = self.identify.look_up_principal(principal)
        if policy := self.policy():
            policy.authorize_principal(request, subject)

    def check_message(self, check: MessageCheck) -> ProofUse | None:
        """Raises Refused unless its sender may send this message to the workflow of an object. Returns its proof."""
        subject = self.identify(check.message, f"{check.verb} {check.path}", check.at)
        self.authorize(subject, check.verb, check.path)
        self.authorize_places(check.path, check.places)
        return subject.proof

    def describe_access(self, query: AccessQuery, at: datetime | None = None) -> AccessView:
        """Tells its sender who it is, which roles it has and, if asked, whether it may do something."""
        subject, policy, why = self.identify(query, READ_ACCESS, at), self.policy(), ""
        if query.verb:
            try:
                self.authorize(subject, query.verb, query.path, query.force)
            except Refused as refused:
                why = refused.message
        return AccessView(
            name=subject.name,
            groups=list((policy.with_groups(subject) if policy else subject).groups),
            roles=policy.role_names(subject) if policy else [],
            proven=subject.proven,
            has_policy=policy is not None,
            why=why,
        )

    def authorize_call(
        self,
        name: str,
        asked: object,
        at: datetime | None = None,
        known: Subject | None = None,
        call: str = "",
        by_own_workflow: bool = False,
    ) -> Subject | None:
        """Raises Refused unless the sender may call this activity. Returns the sender; None if nobody is asked for.

        `known` is a sender whom this process itself has authenticated. What a workflow of ours reads for itself has no
        sender; what it does for somebody else has one, and is judged.
        """
        exposure = registry.activity_exposures().get(name, INTERNAL)
        judged = (CallAccess.RELAYED,) if by_own_workflow else (CallAccess.JUDGED, CallAccess.RELAYED)
        if exposure.access not in judged:
            return None
        if isinstance(asked, AboutRequest | BeginRequest):
            return self._judge_request(asked, name, at)
        if not isinstance(asked, SignedMessage) or isinstance(asked, Request):  # the activity itself judges a request
            return None
        verb = asked.verb_to_authorize(exposure.verb)
        if not verb:
            return None
        subject = known or self.identify(asked, name, at)
        self.replays.check_single_use(subject, call)
        if exposure.verb == OWN_ACTION:
            return None
        policy, path = self.policy(), asked.path_to_authorize
        if policy and exposure.verb == READ:
            policy.authorize_read(subject, path)
        elif policy:
            policy.authorize(subject, verb, path)
        return subject

    def _judge_request(self, asked: AboutRequest | BeginRequest, name: str, at: datetime | None) -> Subject:
        """Judges the sender of the request that a call is about; in a workflow of ours that may be a program."""
        if asked.request is None:
            raise Refused(Category.FORBIDDEN, f"{name} is called for a request, and there is none", STANDALONE_HINT)
        if isinstance(asked, BeginRequest):
            sender = self.identify_requester(asked)
        else:
            sender = self.identify(asked.request, OWN_ACTION, at)
        self.authorize_sender(asked.request, sender)
        return sender

    def is_request_allowed(self, claim: BeginRequest) -> bool:
        """Tells whether proof and policy allow a request, before anybody is asked about it. begin says why not."""
        try:
            self._judge_request(claim, "begin", None)
        except Refused:
            return False
        return True

    async def answer(self, subject: Subject | None, read: Callable[[], Awaitable[T]]) -> T:
        """Returns what a read answers to the subject, without what the subject may not see."""
        self._reader.set(subject)
        return self.prune_answer(subject, await read())

    def readable_paths(self, below: str) -> list[str]:
        """Returns the paths at or below one in which whoever is answered now may find something to read."""
        policy, subject = self.policy(), self._reader.get()
        return policy.readable_paths(subject, below) if policy and subject else [below]

    def prune_answer(self, subject: Subject | None, answer: T) -> T:
        """Leaves out what the subject may not see; raises Refused if that is all of it."""
        may_see = self.make_path_filter(subject)
        if may_see is None:
            return answer
        pruned = _prune_invisible(answer, may_see)
        if pruned is None and answer is not None:
            message = f"{subject.name if subject else 'nobody'} may not {READ} it"
            raise Refused(Category.FORBIDDEN, message, "ask for a role that allows it: docs/security.md")
        return pruned  # type: ignore[no-any-return]

    def make_path_filter(self, subject: Subject | None) -> Callable[[str], bool] | None:
        """Returns a function that tells whether the subject may see a path; None if it may see everything."""
        policy = self.policy()
        if policy is None or subject is None or policy.can_read_everything(subject):
            return None
        return lambda path: policy.is_allowed(subject, READ, path)


class RefusalLineBudget:
    """Limits the lines about refusals, so that nobody can fill the history with them."""

    def __init__(self, lines: int = LINES_PER_MINUTE, paths: int = 100, seconds: float = 60) -> None:
        self._lines, self._paths, self._seconds = lines, paths, seconds
        self._written: dict[str, int] = {}
        self._until = 0.0

    def try_spend_line(self, path: str) -> bool:
        """Tells whether one more line about this path may be written in this minute, and counts it."""
        if (now := time.monotonic()) > self._until:
            self._written, self._until = {}, now + self._seconds
        count = self._written.get(path, 0)
        if count >= self._lines or (not count and len(self._written) >= self._paths):
            return False
        self._written[path] = count + 1
        return True


def describe_call(workflow_id: str | None, run_id: str | None, name: str) -> str:
    """Returns what the token of a call covers: whatever else calls this activity has another run."""
    return f"{workflow_id}\n{run_id}\n{name}"


def describe_child(parent: str, parent_run: str, child: str, message: SignedMessage) -> str:
    """Returns what the token of a child covers: no other run can use it, nor ask for anything else with it."""
    return json.dumps(["child", parent, parent_run, child, message_digest(message, OWN_ACTION)[1]])


def check_calling_workflow(name: str, workflow_type: str | None, own_types: frozenset[str], is_local: bool) -> None:
    """Raises Refused if an activity is called by nobody, or by a foreign workflow, although only ours may call it.

    A workflow that only has the name of one of ours, on a worker of somebody else, can call it only over a queue.
    """
    access = registry.activity_exposures().get(name, INTERNAL).access
    if workflow_type is None and access not in (CallAccess.PUBLIC, CallAccess.JUDGED, CallAccess.TOKEN):
        raise Refused(Category.FORBIDDEN, f"{name} cannot be called from outside", STANDALONE_HINT)
    if workflow_type is not None and workflow_type not in own_types:
        raise Refused(Category.FORBIDDEN, f"{workflow_type[:80]!a} is no workflow of ours: {name}", STANDALONE_HINT)
    if access is CallAccess.LOCAL and not is_local:
        raise Refused(Category.FORBIDDEN, f"{name} is called over no queue by a worker of ours", CALLER_HINT)


def _prune_invisible(value: Any, may_see: Callable[[str], bool]) -> Any:
    """Returns the value without what has a path that must not be seen; None if the value itself has one."""
    if isinstance(value, list):
        pruned = [_prune_invisible(part, may_see) for part in value]
        return [part for part in pruned if part is not None]
    if not isinstance(value, BaseModel) and not is_dataclass(value):
        return value
    path = getattr(value, "path", "")
    if isinstance(path, str) and path and not may_see(path):
        return None
    if not isinstance(value, BaseModel):
        return value
    parts = {name: getattr(value, name) for name in type(value).model_fields}
    return value.model_copy(
        update={
            name: _prune_invisible(part, may_see) for name, part in parts.items() if isinstance(part, list | BaseModel)
        }
    )
