"""Dry runs: begin inside a savepoint that is rolled back, and what the action would change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from domain import registry
from domain.dryrun import ActionPreview, DryRun, PlannedChange
from domain.locks import LockMode
from domain.model import BeginRequest, Grant, LockHolder
from domain.paths import kind_of
from domain.quotafile import Quotas
from domain.statetable import NONE, LineEffect, Ruling
from store.begin import begin_action
from store.conflicts import refuse_dry_run_beside_action
from store.delegation import AccessCheck
from store.hooks import NO_HOOKS, HooksByKind
from store.recovery import CUT_OFF_MESSAGE, abandon_run
from store.rows import find_object, find_objects
from store.schema import history, locks, objects

CHANGES_SHOWN = 100

_SELECT_CHANGES = (
    sa.select(
        history.c.path,
        history.c.action,
        history.c.source,
        history.c.to,
        objects.c.placement,
        objects.c.info,
        objects.c.target_status,
    )
    .select_from(sa.outerjoin(history, objects, objects.c.path == history.c.path))
    .where(history.c.epoch == sa.bindparam("mine"), history.c.effect == LineEffect.APPLIED.value)
    .order_by(history.c.path, history.c.seq)
)
_SELECT_LOCKED = (
    sa.select(locks.c.path)
    .where(locks.c.run == sa.bindparam("in_run"), locks.c.mode != LockMode.IX.value)
    .order_by(locks.c.path)
)


def preview_admission(
    connection: sa.Connection,
    hooks: HooksByKind,
    claim: BeginRequest,
    access: AccessCheck,
    quotas: Quotas | None,
    dead: Sequence[LockHolder],
) -> DryRun:
    """Runs begin inside a savepoint, and what the family writes next; rolls it back, and returns the answer.

    The actions of `dead` holders are abandoned first, as the workflow of a real action would do.
    """
    attempt = connection.begin_nested()
    try:
        for holder in dead:
            abandon_run(connection, hooks, holder.owner, holder.run, claim.at, CUT_OFF_MESSAGE)
        if refused := refuse_dry_run_beside_action(connection, claim):
            return DryRun(refusal=refused)
        before = find_object(connection, claim.request.path)
        answer = begin_action(connection, hooks, claim, access, quotas=quotas)
        found = DryRun(grant=answer.grant, refusal=answer.refusal, outcome=answer.outcome)
        if answer.grant is None or answer.outcome or answer.grant.ruling is not Ruling.GO:
            return found
        rehearse = hooks.get(kind_of(answer.grant.path), NO_HOOKS).rehearse
        requested = rehearse(connection, claim, answer.grant) if rehearse else ()
        preview = _preview_action(connection, answer.grant, claim, before.spec if before else None, requested)
        return found.model_copy(update={"preview": preview})
    finally:
        attempt.rollback()


def _preview_action(
    connection: sa.Connection,
    grant: Grant,
    claim: BeginRequest,
    before: dict[str, Any] | None,
    requested: Sequence[PlannedChange],
) -> ActionPreview:
    """Lists the objects that the action begins on or will act on, what each becomes, what is locked, and the spec's
    changes."""
    found: dict[str, PlannedChange] = {}
    changes = connection.execute(_SELECT_CHANGES, {"mine": grant.epoch})
    for path, action, source, to, placement, info, target in changes:
        first = found.get(path)
        found[path] = PlannedChange(
            path=path,
            action=action,
            placement=placement or str((info or {}).get(registry.kind_at(path).place_key) or ""),
            came_from=first.came_from if first else source,
            during=to,
            then=target if target and target != NONE else _status_after(path, action, source, to),
        )
    below = [change for change in found.values() if change.path != grant.path]
    targets = [change for change in below if registry.kind_at(change.path).verbs]  # the record of a deploy has none
    targets += requested
    found_after = find_object(connection, grant.path)
    changed = {}
    if before is not None and found_after and (after := found_after.spec):
        keys = dict.fromkeys([*before, *after])
        changed = {key: [before.get(key), after.get(key)] for key in keys if before.get(key) != after.get(key)}
    return ActionPreview(
        targets=len(targets),
        changes=_complete_changes(connection, targets[:CHANGES_SHOWN], claim.real_backends),
        locks=list(connection.execute(_SELECT_LOCKED, {"in_run": claim.run}).scalars()),
        spec_changes=changed,
    )


def _status_after(path: str, action: str, source: str, to: str) -> str:
    """Returns the status to which a step leads that has no target of its own."""
    row = registry.kind_at(path).table.find_entry_row(action, source, to)
    return row.success_status(source) if row else to


def _complete_changes(
    connection: sa.Connection, changes: Sequence[PlannedChange], real: Sequence[str]
) -> list[PlannedChange]:
    """Marks what exists, or would exist, only in a simulation, and writes statuses as the source systems do."""
    telling = {change.path: registry.kind_at(change.path).path_telling_simulation(change.path) for change in changes}
    rows = find_objects(connection, sorted(set(telling.values())))
    known = {row.path: (row.spec, row.placement, real, row.info) for row in rows}
    simulated = {
        path: registry.kind_at(path).has_simulated_provider(*known.get(path, ({}, "", real, {})))
        for path in telling.values()
    }
    return [
        change.model_copy(update={"simulated": simulated[telling[change.path]], **_shown_statuses(change)})
        for change in changes
    ]


def _shown_statuses(change: PlannedChange) -> dict[str, str]:
    shown = registry.kind_at(change.path).display_status
    return {"came_from": shown(change.came_from), "then": shown(change.then)}
