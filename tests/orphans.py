"""What every family's orphans go through: `verify` names one, the list shows it, an action removes it, once."""

from __future__ import annotations

from client.actions import ActionClient
from domain import registry
from domain.invariants import VerificationReport
from domain.model import ActionResult, Outcome, ReadQuery, Request
from domain.orphans import Orphan, OrphanQuery, OrphansPage
from domain.wire import READ_ORPHANS, VERIFY_ACTIVITY
from tests.patience import PATIENCE


async def listed(client: ActionClient, path: str, limit: int = 500) -> list[Orphan]:
    """All orphans at or below a path, page by page."""
    found: list[Orphan] = []
    after: Orphan | None = Orphan()
    while after is not None:
        page = await client.run_query(
            READ_ORPHANS, OrphanQuery(path=path, after=after, limit=limit), OrphansPage, seconds=PATIENCE
        )
        assert len(page.orphans) <= limit
        assert page.silent == []
        found, after = found + page.orphans, page.after
    return found


async def told(client: ActionClient, path: str) -> list[str]:
    """What `verify` says of a path."""
    found = await client.run_query(VERIFY_ACTIVITY, ReadQuery(path=path), VerificationReport, seconds=PATIENCE)
    return [f"{finding.path} {finding.what}" for finding in found.findings]


def removal(orphan: Orphan) -> Request:
    """What `starter orphans remove` requests."""
    action = registry.kind_at(orphan.target).table.orphan_removal_action
    return Request(path=orphan.target, action=action, spec={"place": orphan.provider}, requested_by="tester")


async def removed(client: ActionClient, orphan: Orphan) -> Outcome:
    ticket = await client.request_action(removal(orphan))
    assert ticket.admission.refusal is None, ticket.admission.refusal
    return await client.wait_for_outcome(ticket.path, ticket.run)


async def refused(client: ActionClient, orphan: Orphan) -> str:
    ticket = await client.request_action(removal(orphan))
    assert ticket.admission.refusal is not None, ticket.admission.grant
    return ticket.admission.refusal.message


async def found_and_removed(client: ActionClient, path: str, provider: str, state: str, record: str = "none") -> Orphan:
    """The way of the one orphan at a path, from the first look until there is none any more. Returns it."""
    (orphan,) = await listed(client, path)
    assert (orphan.path, orphan.provider, orphan.state, orphan.record) == (path, provider, state, record)
    (said,) = await told(client, path)
    known = "no record knows it" if record == "none" else f"its record is {record}"
    assert said.startswith(f"{path} is {state} in {provider} as {orphan.id}"), said
    assert said.endswith(f", but {known}; see: starter orphans list"), said
    assert (f"ordered as {orphan.token}" in said) is bool(orphan.token)
    assert (outcome := await removed(client, orphan)).result is ActionResult.SUCCEEDED, outcome
    assert (await listed(client, path), await told(client, path)) == ([], [])
    return orphan
