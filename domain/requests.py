"""When two requests are the same one: a request id belongs to one action with one spec, by one requester."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any

from domain.errors import Category
from domain.message import CHILD_PROOF, ShortText, ShortWord, hash_value
from domain.model import AT_WRITE_TIME, ActionWord, BeginRequest, FrozenModel, Refusal, Request, SignedMessage
from domain.validation import ObjectPath


class EvictRun(SignedMessage):
    """The order to end a run for a request that takes over. The worker sets the grace period, not the requester."""

    request: Request
    run: str


class AboutRequest(FrozenModel):
    """Base of questions about a request: whoever sent that is judged before the question is answered."""

    request: Request | None = None


class CancelOrder(SignedMessage):
    """The order to cancel the action on an object. `workflow` names a hidden action's; empty: the path."""

    path: ObjectPath
    workflow: ShortText = ""
    run: ShortWord = ""

    @property
    def workflow_id(self) -> str:
        """Returns the ID of the workflow to cancel; empty if it acts on another object than this order names."""
        return self.workflow if self.workflow.startswith(f"{self.path}::") else self.path


class PromoteBuild(SignedMessage):
    """The order to let new actions begin on a build of versioned workers."""

    deployment: ShortText
    build: ShortText

    @property
    def audit_path(self) -> str:
        return f"build:{self.deployment}"


class SentMessage(SignedMessage):
    """A message to a workflow as it was signed: its sender, its proof, and the rest of it."""

    content: dict[str, Any] = {}

    def signed_content(self) -> dict[str, Any]:
        return self.content

    @classmethod
    def from_message(cls, message: SignedMessage) -> SentMessage:
        """Returns the message with everything that its proof covers."""
        return cls(requested_by=message.requested_by, proof=message.proof, content=message.signed_content())


def request_as_signed(claim: BeginRequest) -> SentMessage:
    """Returns a request as it was signed: begin has the spec as it was examined, and the hash of the one sent."""
    request = claim.request
    content = request.signed_content() | ({"spec": claim.spec_digest} if claim.spec_digest else {})
    return SentMessage(requested_by=request.requested_by, proof=request.proof, content=content)


def is_asked_by_parent(claim: BeginRequest) -> bool:
    """Tells whether a parent asks in its own name; any workflow may pass on what a person has signed."""
    return bool(claim.parent) and (not claim.request.proof or claim.request.proof.startswith(CHILD_PROOF))


class MessageCheck(FrozenModel):
    """The question whether the sender of a message may send it to the workflow of an object."""

    path: str
    verb: str
    at: datetime  # when the workflow got it
    message: SentMessage
    only_under: str = ""  # the status of the object in which the workflow takes it; empty: any
    places: list[str] = []  # in clouds, that the object will use because of the message
    number: int = 0  # of the message in its run, where each counts: its proof is good for that one; 0: for the run


class MessageChecks(FrozenModel):
    """The same question about several messages, in the order in which they came, until one may be sent, or of each."""

    checks: list[MessageCheck]
    each: bool = False


class CheckedMessages(FrozenModel):
    """Which of several messages is the first that may be sent, and which before it may be sent at another time; if
    each was asked about, all that may be sent."""

    allowed: int | None = None
    all_allowed: list[int] = []
    not_now: list[int] = []


class AccessQuery(SignedMessage):
    """Asks who the sender is and, with a verb, whether it may do that at a path."""

    verb: ActionWord = ""
    path: ShortText = ""
    force: bool = False


class AccessView(FrozenModel):
    """Who the sender is. `why` says why it may not do what it asked about; empty if it may."""

    name: str
    groups: list[str] = []
    roles: list[str] = []
    proven: bool = False
    has_policy: bool = False
    why: str = ""


class AccessAttempt(FrozenModel):
    """A cancel, or something that was refused to somebody: a line for the history of the object."""

    path: str
    verb: str
    message: str
    at: datetime = AT_WRITE_TIME


def spec_digest(request: Request) -> str:
    """Returns a hash of the spec as requested, whatever the order of its keys; no spec equals an empty one."""
    return hash_value(request.spec)


def is_same_request(request: Request, other: Request) -> bool:
    """Tells whether both ask for the same thing; force and reason may differ, as they say how, not what."""
    return _request_identity(request) == _request_identity(other)


def make_update_id(update: str, request: Request) -> str:
    """Returns a fixed ID for an update about a request: a repeated one uses up none of the run's 2,000 updates.

    Not for a start: Temporal would return the stored answer of a run that has ended, but a start is judged anew.
    """
    identity = "\n".join(_request_identity(request))
    return f"{update}-{hashlib.sha256(identity.encode()).hexdigest()[:32]}"


def reused_request_id_refusal(request: Request, action: str, requested_by: str) -> Refusal:
    """Returns the refusal of a request whose id belongs to another request."""
    was = action if action != request.action else f"{action} with another spec"
    if requested_by != request.requested_by:
        was = f"{action} by somebody else"
    return Refusal(
        category=Category.INVALID,
        message=f"this id was used for {was} on {request.path}: {request.request_id}",
        hint="ask with another --request-id, or with none",
    )


def _request_identity(request: Request) -> tuple[str, ...]:
    return (request.path, request.action, request.requested_by, spec_digest(request), request.request_id)
