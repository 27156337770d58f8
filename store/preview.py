"""Dry runs: begin inside a savepoint that is rolled back, and what the action would change."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from domain.dryrun import ActionPreview, DryRun, PlannedChange
from domain.locks import LockMode
from domain.model import BeginRequest, Grant
from domain.paths import kind_of
from domain.quotafile import Quotas
from domain.statetable import NONE, LineEffect, Ruling
from store.begin import begin_action, refuse_beside_running_action
from store.delegation import EVERYBODY, AccessCheck
from store.hooks import NO_HOOKS, HooksByKind
from store.schema import history, locks, objects

CHANGES_SHOWN = 100

_SELECT_CHANGES = (
    sa.select(history.c.path, history.c.source, history.c.to, objects.c.placement, objects.c.target_status)
    .select_from(sa.outerjoin(history, objects, objects.c.path == history.c.path))
    .where(history.c.epoch == sa.bindparam("mine"), history.c.effect == LineEffect.APPLIED.value)
    .order_by(history.c.path, history.c.seq)
)
_SELECT_LOCKED = (
    sa.select(locks.c.path)
    .where(locks.c.run == sa.bindparam("in_run"), locks.c.mode != LockMode.IX.value)
    .order_by(locks.c.path)
)
_SELECT_SPEC = sa.select(objects.c.spec).where(objects.c.path == sa.bindparam("at_path"))


def preview_admission(
    connection: sa.Connection,
    hooks: HooksByKind,
    claim: BeginRequest,
    access: AccessCheck = EVERYBODY,
    quotas: Quotas | None = None,
) -> DryRun:
    """Runs begin inside a savepoint, and what the family writes next; rolls it back, and returns the answer."""
    attempt = connection.begin_nested()
    try:
        if refused := refuse_beside_running_action(connection, claim):
            return DryRun(refusal=refused.refusal)
        spec_before = _read_spec(connection, claim.request.path)
        answer = begin_action(connection, hooks, claim, access, quotas=quotas)
        found = DryRun(grant=answer.grant, refusal=answer.refusal, outcome=answer.outcome)
        if answer.grant is None or answer.outcome or answer.grant.ruling is not Ruling.GO:
            return found
        if rehearse := hooks.get(kind_of(answer.grant.path), NO_HOOKS).rehearse:
            rehearse(connection, claim, answer.grant)
        preview = _preview_action(connection, answer.grant, claim.run, spec_before)
        return found.model_copy(update={"preview": preview})
    finally:
        attempt.rollback()


def _read_spec(connection: sa.Connection, path: str) -> dict[str, Any] | None:
    """Returns an object's stored spec; None if there is no object."""
    spec: dict[str, Any] | None = connection.execute(_SELECT_SPEC, {"at_path": path}).scalar_one_or_none()
    return spec


def _preview_action(
    connection: sa.Connection, grant: Grant, run: str, spec_before: dict[str, Any] | None
) -> ActionPreview:
    """Lists the objects that the action begins on, what each will become, what is locked, and the spec's changes."""
    found: dict[str, PlannedChange] = {}
    for path, source, to, placement, target in connection.execute(_SELECT_CHANGES, {"mine": grant.epoch}):
        first = found.get(path)
        found[path] = PlannedChange(
            path=path,
            placement=placement or "",
            came_from=first.came_from if first else source,
            during=to,
            then=target if target and target != NONE else to,
        )
    targets = [change for change in found.values() if change.path != grant.path]
    before, after = spec_before, _read_spec(connection, grant.path)
    changed = (
        {
            key: [before.get(key), after.get(key)]
            for key in dict.fromkeys([*before, *after])
            if before.get(key) != after.get(key)
        }
        if before is not None and after
        else {}
    )
    return ActionPreview(
        targets=len(targets),
        changes=targets[:CHANGES_SHOWN],
        locks=list(connection.execute(_SELECT_LOCKED, {"in_run": run}).scalars()),
        spec_changes=changed,
    )
