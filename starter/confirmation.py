"""One rule for the command line, pipes and the full screen: what cannot be undone is asked for, or needs --yes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from domain import registry
from domain.model import Grant, Request
from domain.paths import short_path
from domain.statetable import NONE, Ruling
from starter import terminal
from starter.errors import NotConfirmed

if TYPE_CHECKING:
    from client.actions import ActionClient


async def confirmation_question(client: ActionClient, kind: registry.Kind, request: Request) -> str:
    """Returns the question to ask before this request; empty if it can be undone or does nothing.

    The worker decides as for the action itself, so a request that would be refused is refused here.
    """
    if not may_destroy(kind, request.action):
        return ""
    admission = await client.check_request(request)
    if admission.refusal:
        raise admission.refusal.to_error()
    grant = admission.grant
    if grant is None or not _grant_destroys(kind, grant):
        return ""
    parts = ""
    if grant.targets and kind.member:
        parts = f" with {grant.targets} {registry.find_kind(kind.member).table.label}{'s' if grant.targets > 1 else ''}"
    return f"{request.action} {short_path(request.path)}{parts}? This cannot be undone."


async def confirm_request(client: ActionClient, kind: registry.Kind, request: Request) -> bool:
    """Asks the person at the terminal before what cannot be undone; refuses it if nobody can be asked."""
    question = await confirmation_question(client, kind, request)
    if not question:
        return True
    if terminal.is_interactive():
        return terminal.ask_confirmation(question)
    message = f"{request.action} of {short_path(request.path)} cannot be undone, and nobody can be asked here"
    raise NotConfirmed(message)


def may_destroy(kind: registry.Kind, action: str) -> bool:
    """Tells whether a row of this action leads to a final status or removes an object, a member's rows included."""
    tables = [kind.table, *([registry.find_kind(kind.member).table] if kind.member else [])]
    rows = [(row, table) for table in tables for row in table.rows if row.action == action and row.during]
    return any(row.then in (*table.final_statuses, NONE) for row, table in rows)


def _grant_destroys(kind: registry.Kind, grant: Grant) -> bool:
    """Tells whether what was admitted leads there from today's status: a recycle bin, for one, does not."""
    if grant.ruling is Ruling.ALREADY:
        return False
    gone = (*kind.table.final_statuses, NONE, kind.absent_word)
    return grant.then in gone or (
        kind.member is not None and may_destroy(registry.find_kind(kind.member), grant.action)
    )
