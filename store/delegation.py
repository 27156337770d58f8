"""For whom an action is done. Programs of ours act on behalf of whoever made what they serve: a lease, a policy, a
maintenance. The store says who that is; a request that names somebody else is refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import sqlalchemy as sa

from domain.access import Subject
from domain.errors import Category, Refused
from domain.identities import Principal
from domain.model import BeginRequest, Request
from domain.paths import ancestor_paths
from domain.registry import ResolvedRequest
from store.schema import actions, objects

_LAST_ACTIONS = 10  # of an object; those that are open are among them
_SELECT_LAST_PRINCIPALS = (
    sa.select(actions.c.principal, actions.c.ended_at)
    .where(actions.c.path == sa.bindparam("at_path"))
    .order_by(actions.c.epoch.desc())
    .limit(_LAST_ACTIONS)
)
_SELECT_PRINCIPALS = sa.select(objects.c.path, objects.c.principal).where(
    objects.c.path.in_(sa.bindparam("paths", expanding=True))
)


class AccessCheck(Protocol):
    """Who sends a request, and whether they may: each raises Refused if not."""

    def identify_requester(self, claim: BeginRequest) -> Subject: ...

    def authorize_sender(self, request: Request, sender: Subject) -> None: ...

    def authorize_principal(self, request: Request, principal: Principal) -> None: ...

    def authorize_places(self, path: str, places: Iterable[str]) -> None: ...


@dataclass(frozen=True)
class PrincipalCheck:
    """Whom an action is for, and why they may not have it done any more; empty if they may."""

    principal: Principal | None = None
    denied: str = ""


def authorize_request(
    connection: sa.Connection, access: AccessCheck, asked: ResolvedRequest, sender: Subject
) -> PrincipalCheck:
    """Judges the sender and, if it is a program of ours, the one for whom it acts. Raises Refused if one may not.

    What a program does to the very object whose maker may not have it done is admitted, and fails: so the object comes
    to the status that it has after a failure, instead of being asked for again and again.
    """
    request = asked.request
    # A program that is an object gives its path, and serves it; any other serves what it acts on.
    served = request.requested_by if ":" in request.requested_by else request.path
    access.authorize_sender(request, sender)
    principal = _find_principal(connection, asked, served) if asked.program else sender.as_principal()
    if asked.program and asked.verb.on_behalf and principal:
        try:
            access.authorize_principal(request, principal)
        except Refused as refused:
            if served != request.path:
                raise
            return PrincipalCheck(principal, refused.message)
    return PrincipalCheck(principal)


def _find_principal(connection: sa.Connection, asked: ResolvedRequest, served: str) -> Principal | None:
    """Returns who has asked for what the program does: by an open action of the object it serves, or by making it."""
    request = asked.request
    found = connection.execute(_SELECT_PRINCIPALS, {"paths": [served, *ancestor_paths(served)]}).all()
    nearest = sorted((row for row in found if row.principal), key=lambda row: len(row.path))[-1:]  # a part has none
    known = [row.principal for row in nearest]
    if served != request.path:
        rows = connection.execute(_SELECT_LAST_PRINCIPALS, {"at_path": served}).all()
        known = [*(row.principal for row in rows if row.principal and row.ended_at is None), *known]
    for stored in known:
        if stored["name"] == request.on_behalf_of:
            return Principal.model_validate(stored)
    if request.on_behalf_of or asked.verb.on_behalf:
        who = request.on_behalf_of or "somebody without a name"
        raise Refused(
            Category.FORBIDDEN,
            f"{request.requested_by} may not {request.action} {request.path} on behalf of {who}, who has not asked "
            f"for it: {served}",
            f"see who has: starter history {served}",
        )
    return None
