"""Stored answers: what this run, or an earlier one with the same request ID, was told. And who may have one."""

from __future__ import annotations

import sqlalchemy as sa

from domain.access import Subject
from domain.model import Admission, BeginRequest, Outcome
from domain.registry import ResolvedRequest
from domain.requests import reused_request_id_refusal, spec_digest
from store.delegation import AccessCheck, PrincipalCheck, authorize_request
from store.grants import grant_of_action
from store.identity import check_incarnation
from store.proofs import use_proof
from store.schema import HAS_REQUEST_ID, ActionRow, StoreIdentityRow, actions, store_identity

UNKNOWN_SPEC = ""  # of actions that began before spec digests were stored

_SELECT_IDENTITY_AND_RUN = sa.select(store_identity, actions).select_from(  # every begin needs both
    sa.outerjoin(store_identity, actions, actions.c.run == sa.bindparam("of_run"))
)
_IDENTITY_COLUMNS = len(StoreIdentityRow._fields)
_SELECT_ACTIONS_OF_REQUEST = (  # the latest first: an earlier one may have been abandoned
    sa.select(actions)
    .where(actions.c.path == sa.bindparam("path"), actions.c.request_id == sa.bindparam("request_id"), HAS_REQUEST_ID)
    .order_by(actions.c.epoch.desc())
)


def find_answer_of_run(connection: sa.Connection, run: str) -> Admission | None:
    """Returns the stored answer to this run. A reset must not repeat an action that has ended."""
    return _read_identity_and_answer(connection, run)[1]


def answer_or_authorize(
    connection: sa.Connection, claim: BeginRequest, asked: ResolvedRequest, access: AccessCheck, sender: Subject
) -> Admission | PrincipalCheck:
    """Returns the stored answer to this run, or to an earlier one with its request ID; else whom the action is for.

    An answer to another run is only for those who may request the action. A grant stays valid for its own run.
    Refuses a run from before the store was restored: last, as only those who may ask hear of it.
    """
    identity, own = _read_identity_and_answer(connection, claim.run)
    if own:
        return own
    request = claim.request
    mandate = authorize_request(connection, access, asked, sender)
    use_proof(connection, sender.proof, claim.proof_run or claim.run, identity)
    earlier = {"path": request.path, "request_id": request.request_id}
    rows = connection.execute(_SELECT_ACTIONS_OF_REQUEST, earlier) if request.request_id else ()
    for row in [ActionRow(*row) for row in rows]:
        specs = (claim.spec_digest or spec_digest(request), UNKNOWN_SPEC)
        if (row.action, row.requested_by) != (request.action, request.requested_by) or row.spec_digest not in specs:
            return Admission(refusal=reused_request_id_refusal(request, row.action, row.requested_by))
        if row.outcome:
            return Admission(outcome=Outcome.model_validate(row.outcome))
    check_incarnation(connection, claim, identity)
    return mandate


def _read_identity_and_answer(connection: sa.Connection, run: str) -> tuple[StoreIdentityRow, Admission | None]:
    """Returns the store's identity, and the stored answer to this run."""
    found = connection.execute(_SELECT_IDENTITY_AND_RUN, {"of_run": run}).one()
    identity, row = StoreIdentityRow(*found[:_IDENTITY_COLUMNS]), ActionRow(*found[_IDENTITY_COLUMNS:])
    if row.run is None:
        return identity, None
    outcome = Outcome.model_validate(row.outcome) if row.outcome else None
    return identity, Admission(grant=grant_of_action(row), outcome=outcome)
