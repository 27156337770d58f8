"""Stored answers: what this run, or an earlier one with the same request ID, was told. And who may have one."""

from __future__ import annotations

import sqlalchemy as sa

from domain.access import Subject
from domain.model import Admission, BeginRequest, Outcome
from domain.requests import reused_request_id_refusal, spec_digest
from store.delegation import AccessCheck, PrincipalCheck, authorize_request
from store.grants import grant_of_action
from store.proofs import use_proof
from store.rows import parse_row, parse_rows
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
    row = parse_row(ActionRow, connection.execute(_SELECT_ACTION_OF_RUN, {"run": run}))
    return Admission(grant=grant_of_action(row), outcome=_stored_outcome(row)) if row else None


def authorize_sender(
    connection: sa.Connection, claim: BeginRequest, access: AccessCheck, sender: Subject
) -> PrincipalCheck:
    """Judges a request and takes its proof, which is good for one run. Returns whom it is for."""
    mandate = authorize_request(connection, access, claim.request, sender)
    use_proof(connection, sender.proof, claim.proof_run or claim.run)
    return mandate


def find_earlier_answer(
    connection: sa.Connection, claim: BeginRequest, access: AccessCheck, sender: Subject
) -> Admission | None:
    """Returns the stored answer to this run, or to an earlier run with the same request ID."""
    request = claim.request
    if own := find_answer_of_run(connection, claim.run):
        return own
    if not request.request_id:
        return None
    asked = {"path": request.path, "request_id": request.request_id}
    for row in parse_rows(ActionRow, connection.execute(_SELECT_ACTIONS_OF_REQUEST, asked)):
        authorize_sender(
            connection, claim, access, sender
        )  # an outcome is shown only to those who may request the action
        if not _is_same_request(row, claim):
            return Admission(refusal=reused_request_id_refusal(request, row.action, row.requested_by))
        if outcome := _stored_outcome(row):
            return Admission(outcome=outcome)
    return None


def _stored_outcome(row: ActionRow) -> Outcome | None:
    return Outcome.model_validate(row.outcome) if row.outcome else None


def _is_same_request(row: ActionRow, claim: BeginRequest) -> bool:
    request = claim.request
    specs = (claim.spec_digest or spec_digest(request), UNKNOWN_SPEC)
    same = (row.action, row.requested_by) == (request.action, request.requested_by)
    return same and row.spec_digest in specs
