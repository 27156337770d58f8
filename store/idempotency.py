"""Stored answers: what this run, or an earlier one with the same request ID, was told. And who may have one."""

from __future__ import annotations

import sqlalchemy as sa

from domain.access import Subject
from domain.model import Admission, BeginRequest, Outcome
from domain.registry import ResolvedRequest
from domain.requests import reused_request_id_refusal, spec_digest
from store.delegation import AccessCheck, PrincipalCheck, authorize_request
from store.grants import grant_of_action
from store.proofs import use_proof
from store.schema import HAS_REQUEST_ID, ActionRow, actions

UNKNOWN_SPEC = ""  # of actions that began before spec digests were stored

_SELECT_ACTION_OF_RUN = sa.select(actions).where(actions.c.run == sa.bindparam("run"))
_SELECT_ACTIONS_OF_REQUEST = (  # the latest first: an earlier one may have been abandoned
    sa.select(actions)
    .where(actions.c.path == sa.bindparam("path"), actions.c.request_id == sa.bindparam("request_id"), HAS_REQUEST_ID)
    .order_by(actions.c.epoch.desc())
)


def find_answer_of_run(connection: sa.Connection, run: str) -> Admission | None:
    """Returns the stored answer to this run. A reset must not repeat an action that has ended."""
    found = connection.execute(_SELECT_ACTION_OF_RUN, {"run": run}).one_or_none()
    if found is None:
        return None
    row = ActionRow(*found)
    return Admission(grant=grant_of_action(row), outcome=_stored_outcome(row))


def answer_or_authorize(
    connection: sa.Connection, claim: BeginRequest, asked: ResolvedRequest, access: AccessCheck, sender: Subject
) -> Admission | PrincipalCheck:
    """Returns the stored answer to this run, or to an earlier one with its request ID; else whom the action is for.

    An answer to another run is only for those who may request the action. A grant stays valid for its own run.
    """
    if own := find_answer_of_run(connection, claim.run):
        return own
    request = claim.request
    mandate = authorize_request(connection, access, asked, sender)
    use_proof(connection, sender.proof, claim.proof_run or claim.run)
    if not request.request_id:
        return mandate
    specs = (claim.spec_digest or spec_digest(request), UNKNOWN_SPEC)
    earlier = {"path": request.path, "request_id": request.request_id}
    for row in [ActionRow(*row) for row in connection.execute(_SELECT_ACTIONS_OF_REQUEST, earlier)]:
        if (row.action, row.requested_by) != (request.action, request.requested_by) or row.spec_digest not in specs:
            return Admission(refusal=reused_request_id_refusal(request, row.action, row.requested_by))
        if outcome := _stored_outcome(row):
            return Admission(outcome=outcome)
    return mandate


def _stored_outcome(row: ActionRow) -> Outcome | None:
    return Outcome.model_validate(row.outcome) if row.outcome else None
