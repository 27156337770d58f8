"""begin: admits an action or refuses it. Admission writes locks, status, epoch and history in one transaction."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext

import sqlalchemy as sa
from pydantic import BaseModel

from domain import registry
from domain.access import Subject
from domain.errors import Category, Refused
from domain.kinds import Remedy
from domain.locks import EXCLUSIVE_MODES, HeldLock, LockMode, conflicting_locks, locks_needed_for, locks_to_wait_for
from domain.model import Admission, BeginRequest, Grant, Refusal, Request, Step
from domain.quotafile import Quotas
from domain.simulated import simulated_provider_refusal
from domain.statetable import NONE, Row, Ruling, StateTable
from store.advisory import acquire_advisory_locks
from store.conflicts import conflict_refusal, distinct_holders
from store.delegation import EVERYBODY, AccessCheck
from store.grants import AdmissionPlan, GrantWriter
from store.hooks import NO_HOOKS, GrantExtras, Hooks, HooksByKind, MaybeObjectRow
from store.idempotency import authorize_sender, find_earlier_answer
from store.identity import check_incarnation
from store.queries import lock_from_row, read_aggregated_status
from store.quotas import start_check
from store.recovery import CUT_OFF_MESSAGE, abandon_run
from store.rows import find_object, lock_object, parse_rows
from store.schema import LockRow, actions, locks, objects
from store.steps import apply_step

_SELECT_NEWER_RUNS = sa.select(actions.c.run).where(
    actions.c.run.in_(sa.bindparam("runs", expanding=True)), actions.c.started_at > sa.bindparam("started")
)
# Reads only conflicting locks and our own: a parent has one IX holder for each active child.
_SELECT_LOCKS_IN_THE_WAY = (
    sa.select(locks)
    .where(
        locks.c.path.in_(sa.bindparam("exclusive", expanding=True))
        | (locks.c.path.in_(sa.bindparam("shared", expanding=True)) & (locks.c.mode != LockMode.IX.value))
    )
    .order_by(locks.c.path, locks.c.owner)
)
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
    access: AccessCheck = EVERYBODY,
    sender: Subject | None = None,
    quotas: Quotas | None = None,
) -> Admission:
    """Admits or refuses an action. A second begin of the same run returns the stored grant.

    `sender`: who was identified already, before there was a transaction.
    """
    request = claim.request
    try:
        sender = sender or access.identify_requester(claim)
        kind = registry.kind_at(request.path)
        hook = hooks.get(kind.name, NO_HOOKS)
        spec = kind.parse_spec(request.action, request.spec)
        hidden = request.action in kind.table.hidden_actions
        _check_workflow_id(claim)
        want = locks_needed_for([request.path], hidden)
        acquire_advisory_locks(connection, want)
        if earlier := find_earlier_answer(connection, claim, access, sender):
            return earlier
        check_incarnation(connection, claim)
        mandate = authorize_sender(connection, claim, access, sender)  # not for a repeated begin: a grant stays valid
        want = _add_hook_locks(connection, hook, kind, request, want)
        quota = start_check(connection, claim, quotas)
        held = _read_locks_in_the_way(connection, want)
        if later := _find_locks_of_newer_runs(connection, claim, held):
            return Admission(refusal=conflict_refusal(connection, later))
        held = _find_conflicting_locks(connection, hooks, claim, held)
        if others := conflicting_locks(want, held):
            return Admission(refusal=conflict_refusal(connection, others))
        if _have_hook_locks_changed(connection, hook, kind, request, want):
            return begin_action(connection, hooks, claim, access, sender, quotas)
        # Locked, as not only actions change it: what a backend sees of a part at rest does too.
        found = lock_object(connection, request.path)
        row = _object_unless_vacant(kind, request, found)
        if claim.no_simulation:
            _check_not_simulated(connection, kind, claim, row, spec)
        behind = distinct_holders(locks_to_wait_for(want, held))
        plan = (
            _judge_request(connection, kind, request, row)
            if not (hidden and behind)
            else _plan_hidden_action(kind, request, row)
        )
        if claim.objection and plan.row:
            raise claim.objection.to_error()
        extra = GrantExtras()
        with quota.refusing_all(connection) if quota else nullcontext():
            if hook.admit and plan.row:
                extra = hook.admit(connection, claim, spec, row, plan.row)
                access.authorize_places(request.path, extra.new_places)
            if quota and plan.row:
                quota.check_grant(connection, kind, found is None, extra)
    except Refused as refused:
        return Admission(refusal=Refusal.from_error(refused))
    if plan.row is None:
        return Admission(
            grant=_grant_without_work(request, row, plan, read_aggregated_status(connection, request.path))
        )
    granting = GrantWriter(connection, claim, kind, plan, plan.row, extra, behind, mandate)
    grant = granting.write_new_object(want) if row is None else granting.write_existing_object(row, want)
    _apply_hook_moves(connection, hooks, grant, claim, extra)
    return Admission(grant=grant)


def _check_not_simulated(
    connection: sa.Connection, kind: registry.Kind, claim: BeginRequest, row: MaybeObjectRow, spec: BaseModel | None
) -> None:
    """Refuses an action on an object that exists, or would exist, only in a simulation."""
    path = kind.path_telling_simulation(claim.request.path)
    if path != claim.request.path:
        kind, row = registry.kind_at(path), find_object(connection, path)
        if row is None:  # refused for that reason
            return
    own, placement, info = (row.spec, row.placement, row.info) if row else (spec.model_dump() if spec else {}, "", {})
    if kind.has_simulated_provider(own, placement, claim.real_backends, info):
        raise simulated_provider_refusal(f"the provider of {path}")


def _check_workflow_id(claim: BeginRequest) -> None:
    """Refuses a wrong workflow ID: Temporal's mutual exclusion rests on it. Hidden actions have IDs of their own."""
    owner = registry.workflow_id_of(claim.request.path, claim.request.action)
    if claim.workflow and claim.workflow != owner:
        raise Refused(Category.INVALID, f"the workflow ID must be {owner}", "start it with that ID")


def refuse_dry_run_beside_action(connection: sa.Connection, claim: BeginRequest) -> Admission | None:
    """Refuses a dry run while an action on the object is open. A real begin takes that action for dead, because
    Temporal starts no second run of a workflow ID."""
    path, owner = claim.request.path, registry.workflow_id_of(claim.request.path, claim.request.action)
    mine = [hold for hold in _read_locks_in_the_way(connection, {path: LockMode.X}) if hold.owner == owner]
    return Admission(refusal=conflict_refusal(connection, mine)) if mine and not claim.request.force else None


def _add_hook_locks(
    connection: sa.Connection, hook: Hooks, kind: registry.Kind, request: Request, want: dict[str, LockMode]
) -> dict[str, LockMode]:
    """Adds the locks that the family's hook asks for."""
    more = hook.extra_locks(connection, request, find_object(connection, request.path)) if hook.extra_locks else ()
    if more:
        want = locks_needed_for([request.path, *more], request.action in kind.table.hidden_actions)
        acquire_advisory_locks(connection, want)
    return want


def _have_hook_locks_changed(
    connection: sa.Connection, hook: Hooks, kind: registry.Kind, request: Request, want: dict[str, LockMode]
) -> bool:
    """Tells whether the hook now asks for other locks, because an action that attaches or detaches parts ended
    meanwhile.
    That can happen only on PostgreSQL."""
    return connection.dialect.name == "postgresql" and _add_hook_locks(connection, hook, kind, request, want) != want


def _apply_hook_moves(
    connection: sa.Connection, hooks: HooksByKind, grant: Grant, claim: BeginRequest, extra: GrantExtras
) -> None:
    """Applies the hook's moves of parts in the same transaction as the action's own status."""
    if extra.moves:
        step = Step(path=grant.path, epoch=grant.epoch, at=claim.at, moves=list(extra.moves))
        taken = apply_step(connection, hooks, step)
        if not taken.made:  # a bug of the family, as the hook saw the same locked rows: roll back
            raise RuntimeError(f"{grant.path} cannot begin {grant.action}: {'; '.join(taken.refusals)}")


def _find_locks_of_newer_runs(connection: sa.Connection, claim: BeginRequest, held: list[HeldLock]) -> list[HeldLock]:
    """Returns locks of later runs of our own workflow ID. If there are any, this run is the dead one."""
    owner = registry.workflow_id_of(claim.request.path, claim.request.action)
    runs = [hold.run for hold in held if hold.owner == owner]
    if not runs or claim.started is None:
        return []
    later = set(connection.execute(_SELECT_NEWER_RUNS, {"runs": runs, "started": claim.started}).scalars())
    return [hold for hold in held if hold.run in later]


def _find_conflicting_locks(
    connection: sa.Connection, hooks: HooksByKind, claim: BeginRequest, held: list[HeldLock]
) -> list[HeldLock]:
    """Returns locks of other workflow IDs. Abandons older runs of our own ID: Temporal runs one at a time."""
    owner = registry.workflow_id_of(claim.request.path, claim.request.action)
    for run in dict.fromkeys(hold.run for hold in held if hold.owner == owner):
        abandon_run(connection, hooks, owner, run, claim.at, CUT_OFF_MESSAGE)
    return [hold for hold in held if hold.owner != owner]


def _plan_hidden_action(kind: registry.Kind, request: Request, object_row: MaybeObjectRow) -> AdmissionPlan:
    """Admits a hidden action that has to queue without checking the status, which may change before its turn."""
    if object_row is None:
        raise _not_allowed_refusal(kind.table, request, NONE, kind.table.judge(NONE, request.action).reason)
    row = next(row for row in kind.table.rows if row.action == request.action)
    return AdmissionPlan(row, object_row.status, {}, {})


def _read_locks_in_the_way(connection: sa.Connection, want: dict[str, LockMode]) -> list[HeldLock]:
    exclusive = [path for path, mode in want.items() if mode in EXCLUSIVE_MODES]
    shared = [path for path, mode in want.items() if mode not in EXCLUSIVE_MODES]
    rows = connection.execute(_SELECT_LOCKS_IN_THE_WAY, {"exclusive": exclusive, "shared": shared})
    return [lock_from_row(row) for row in parse_rows(LockRow, rows)]


def _object_unless_vacant(kind: registry.Kind, request: Request, object_row: MaybeObjectRow) -> MaybeObjectRow:
    """Treats an object in a vacant status as absent if the action may create a new one under its path."""
    if object_row is None or object_row.status not in kind.table.vacant_statuses:
        return object_row
    return None if kind.table.judge(NONE, request.action).row else object_row


def _judge_request(
    connection: sa.Connection, kind: registry.Kind, request: Request, object_row: MaybeObjectRow
) -> AdmissionPlan:
    """Judges the request by the object's state table and, for a group, by each member's."""
    status = object_row.status if object_row else NONE
    verdict = kind.table.judge(status, request.action, force=request.force)
    if verdict.ruling is Ruling.REFUSED:
        if kind.aggregate and kind.member and object_row:
            raise _group_not_allowed_refusal(connection, kind, request, status, verdict.reason)
        remedy = kind.find_remedy(request.path, status, object_row.spec) if object_row else None
        raise _not_allowed_refusal(kind.table, request, status, verdict.reason, remedy)
    if verdict.ruling is Ruling.ALREADY:
        return AdmissionPlan(None, status, {}, {})
    if kind.member is None or object_row is None or kind.find_verb(request.action).takes_no_members:
        return AdmissionPlan(verdict.row, status, {}, {})
    return _judge_members(connection, registry.find_kind(kind.member).table, request, status, verdict.row)


def _judge_members(
    connection: sa.Connection, table: StateTable, request: Request, status: str, row: Row | None
) -> AdmissionPlan:
    counts = _count_members(connection, request.path, table.kind)
    verdicts = {word: table.judge_member(word, request.action, request.force) for word in counts}
    going = {word: verdict.row for word, verdict in verdicts.items() if verdict.ruling is Ruling.GO and verdict.row}
    skipped = {word: counts[word] for word in counts if word not in going}
    if going or (row and row.then == NONE and not counts):  # an empty group can still be removed
        return AdmissionPlan(row, status, going, skipped)
    nothing_to_do = any(verdict.ruling is Ruling.ALREADY for verdict in verdicts.values())
    if nothing_to_do or (not counts and _is_never_refused(table, request)):
        return AdmissionPlan(None, status, {}, skipped)
    reasons = [f"{verdicts[word].reason} ({counts[word]} of them)" for word in counts]
    raise Refused(
        Category.NOT_ALLOWED,
        "; ".join(reasons) or f"{request.path} has no {table.label} to {request.action}",
        _describe_allowed_actions(table, counts),
    )


def _is_never_refused(table: StateTable, request: Request) -> bool:
    """Tells whether the action is refused for no stable member status; then an empty group has nothing to do."""
    verdicts = (table.judge_member(status, request.action) for status in table.stable_statuses)
    return all(verdict.ruling is not Ruling.REFUSED for verdict in verdicts)


def _count_members(connection: sa.Connection, parent: str, kind: str) -> dict[str, int]:
    return {
        status: int(count)
        for status, count in connection.execute(_COUNT_MEMBERS_BY_STATUS, {"parent": parent, "kind": kind})
    }


def _not_allowed_refusal(
    table: StateTable, request: Request, status: str, reason: str, remedy: Remedy | None = None
) -> Refused:
    if status == NONE:
        return Refused(Category.NOT_FOUND, f"{reason}: {request.path}", f"see what there is: starter list {table.kind}")
    allowed = _describe_allowed_actions(table, [status])
    hint = f"{_describe_taken_name(table, request)}{request.path} is {status}; {allowed}"
    return Refused(Category.NOT_ALLOWED, reason, f"{remedy}; {hint}" if remedy else hint)


def _group_not_allowed_refusal(
    connection: sa.Connection, kind: registry.Kind, request: Request, status: str, reason: str
) -> Refused:
    """Refuses with the status that readers see, and with what the members allow: the stored status is only a phase."""
    shown = read_aggregated_status(connection, request.path)
    members = registry.find_kind(str(kind.member)).table
    counts = _count_members(connection, request.path, members.kind)
    offered = [action for action in kind.table.allowed_actions(status) if action in kind.requestable_actions]
    allowed = [
        action
        for action in offered
        if not counts
        or kind.find_verb(action).takes_no_members
        or any(members.judge_member(word, action).ruling is Ruling.GO for word in counts)
    ]
    told = reason.removesuffix(status) + shown if reason.endswith(f"under {status}") else reason
    now = f"{request.path} is {shown}; allowed now: {', '.join(allowed) or 'nothing'}"
    return Refused(Category.NOT_ALLOWED, told, _describe_taken_name(kind.table, request) + now)


def _describe_taken_name(table: StateTable, request: Request) -> str:
    """Returns the beginning of the hint for a creation whose name is taken."""
    return "take another name, or act on this one: " if table.is_creation(request.action) else ""


def _describe_allowed_actions(table: StateTable, statuses: Iterable[str]) -> str:
    """Returns the hint of a refusal: the actions allowed in these statuses, and those that need --force."""
    words, offered = list(statuses), registry.find_kind(table.kind).requestable_actions
    plain = dict.fromkeys(action for word in words for action in table.allowed_actions(word) if action in offered)
    forced = dict.fromkeys(
        action for word in words for action in table.actions_needing_force(word) if action in offered
    )
    told = f"allowed now: {', '.join(plain) or 'nothing'}"
    return f"{told}; with --force: {', '.join(forced)}" if forced else told


def _grant_without_work(request: Request, object_row: MaybeObjectRow, plan: AdmissionPlan, shown: str) -> Grant:
    return Grant(
        epoch=object_row.epoch if object_row else 0,
        path=request.path,
        action=request.action,
        ruling=Ruling.ALREADY,
        came_from=plan.came_from,
        during=plan.came_from,
        then=shown,
        skipped=plan.skipped,
    )
