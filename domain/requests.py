"""When two requests are the same one: a request id belongs to one action with one spec, by one requester."""

from __future__ import annotations

import hashlib
import json

from domain.errors import Category
from domain.model import Model, Refusal, Request


class EvictRun(Model):
    """The order to end a run for a request that takes over. The worker sets the grace period, not the requester."""

    request: Request
    run: str


def spec_digest(request: Request) -> str:
    """Returns a hash of the spec as requested, whatever the order of its keys; no spec equals an empty one."""
    return hashlib.sha256(json.dumps(request.spec or {}, sort_keys=True, default=str).encode()).hexdigest()


def is_same_request(request: Request, other: Request) -> bool:
    """Tells whether both ask for the same thing; force and reason may differ, as they say how, not what."""
    return _request_identity(request) == _request_identity(other)


def update_id(update: str, request: Request) -> str:
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
