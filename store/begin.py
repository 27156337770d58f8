"""begin: admits an action or refuses it. Admission writes locks, status, epoch and history in one transaction."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

import sqlalchemy as sa

from domain import registry
from domain.access import Subject
from domain.errors import Category, Refused
from domain.judging import ObjectFacts, plan_action
from domain.locks import LockMode, locks_needed_for
from domain.model import Admission, BeginRequest, Grant, Refusal, Step
from domain.quotafile import Quotas
from domain.statetable import NONE, Ruling
from store.advisory import acquire_advisory_locks
from store.conflicts import clear_way
from store.delegation import AccessCheck
from store.engine import LostRace
from store.grants import GrantWriter
from store.hooks import NO_HOOKS, AdmissionFacts, GrantExtras, HooksByKind
from store.idempotency import answer_or_authorize
from store.queries import read_aggregated_status
from store.quotas import start_check
from store.rows import find_object, lock_object
from store.schema import objects
from store.simulation import check_not_simulated
from store.steps import apply_moves

_LOCKED_MEMBERS = (  # locked before they are counted: surveys change members at rest, too
    sa.select(objects.c.status)
    .where(objects.c.parent == sa.bindparam("parent"), objects.c.kind == sa.bindparam("kind"))
    .order_by(objects.c.path)
    .with_for_update()
    .subquery()
)
_COUNT_MEMBERS_BY_STATUS = (
    sa.select(_LOCKED_MEMBERS.c.status, sa.func.count())
    .group_by(_LOCKED_MEMBERS.c.status)
    .order_by(_LOCKED_MEMBERS.c.status)
)


def begin_action(
    connection: sa.Connection,
    hooks: HooksByKind,
    claim: BeginRequest,
    access: AccessCheck,
    sender: Subject | None = None,
    quotas: Quotas | None = None,
) -> Admission:
    """Admits or refuses an action. A second begin of the same run returns the stored grant.

    `sender`: who was identified already, before there was a transaction.
    """
    request = claim.request
    try:
        sender = sender or access.identify_requester(claim)
        asked = registry.resolve_request(request)
        kind, hook = asked.kind, hooks.get(asked.kind.name, NO_HOOKS)
        if claim.workflow and claim.workflow != asked.workflow_id:  # Temporal's mutual exclusion rests on it
            message = f"the workflow ID must be {asked.workflow_id}"
            raise Refused(Category.INVALID, message, "start it with that ID")
        more = hook.extra_locks(connection, request, find_object(connection, request.path)) if hook.extra_locks else ()
        want = locks_needed_for([request.path, *more], asked.is_hidden)
        acquire_advisory_locks(connection, want)
        mandate = answer_or_authorize(connection, claim, asked, access, sender)
        if isinstance(mandate, Admission):
            return mandate
        quota = start_check(connection, claim, asked, quotas)
        behind = clear_way(connection, hooks, claim, asked.workflow_id, want)
        if isinstance(behind, Refusal):
            return Admission(refusal=behind)
        # Locked, as not only actions change it: what a backend sees of a part at rest does too.
        found = lock_object(connection, request.path)
        # On PostgreSQL an action that attaches or detaches parts may have ended before the locks were taken.
        again = hook.extra_locks if connection.dialect.name == "postgresql" else None
        if again and {*again(connection, request, found)} != {*more}:
            raise LostRace(f"what {request.action} of {request.path} must lock has changed meanwhile")
        is_vacant = found and found.status in kind.table.vacant_statuses
        row = None if is_vacant and request.action in kind.table.actions_on_nothing else found
        if claim.no_simulation:
            check_not_simulated(connection, claim, asked, row)
        counting = partial(_count_members, connection, request.path, str(kind.member))
        facts = ObjectFacts(row.status, row.spec, counting) if row else ObjectFacts(NONE, {}, counting)
        plan = plan_action(asked, facts, must_queue=bool(behind))
        if claim.objection and plan.row:
            return Admission(refusal=claim.objection)
        extra = GrantExtras()
        with connection.begin_nested() if quota else nullcontext():  # a family writes before the quota is checked
            if hook.admit and plan.row:
                extra = hook.admit(connection, AdmissionFacts(claim, asked.spec, row, plan.row))
                access.authorize_places(request.path, extra.new_places)
            if quota and plan.row:
                quota.check_grant(connection, kind, found is None, extra)
    except Refused as refused:
        return Admission(refusal=Refusal.from_error(refused))
    if plan.row is None:
        return Admission(
            grant=Grant(
                epoch=row.epoch if row else 0,
                path=request.path,
                action=request.action,
                ruling=Ruling.ALREADY,
                came_from=plan.came_from,
                during=plan.came_from,
                then=read_aggregated_status(connection, request.path),
                skipped=plan.skipped,
            )
        )
    granting = GrantWriter(connection, claim, asked, plan, plan.row, extra, behind, mandate, want)
    grant = granting.write_new_object() if row is None else granting.write_existing_object(row)
    if extra.moves:  # of parts: in the same transaction as the action's own status
        held = [path for path, mode in want.items() if mode is LockMode.X]
        taken = apply_moves(
            connection,
            hooks,
            Step(path=grant.path, epoch=grant.epoch, at=claim.at, moves=[*extra.moves]),
            grant.action,
            held,
        )
        if not taken.made:  # a bug of the family, as the hook saw the same locked rows: roll back
            raise RuntimeError(f"{grant.path} cannot begin {grant.action}: {'; '.join(taken.refusals)}")
    return Admission(grant=grant)


def _count_members(connection: sa.Connection, parent: str, kind: str) -> dict[str, int]:
    """Returns how many members of a group have each status, and locks them."""
    counted = connection.execute(_COUNT_MEMBERS_BY_STATUS, {"parent": parent, "kind": kind})
    return {status: int(count) for status, count in counted}
