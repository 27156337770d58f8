"""The inventory as the activities use it: every method is one transaction, run in a thread."""

from __future__ import annotations

from functools import partial

from domain.model import Admission, Claim
from store import audit, begin, events, finish, healing, land, queries, recovery, retention, steps
from store.engine import Database
from store.hooks import HooksByKind
from store.transaction import HookedStore, snapshot, transaction, with_hooks
from store.waitqueue import SqlWaitQueue


class SqlInventory(HookedStore, SqlWaitQueue):
    """The kernel's store: `domain.ports.Inventory` on SQLite or PostgreSQL."""

    def __init__(
        self, database: Database, hooks: HooksByKind, allowed: begin.AccessCheck = begin.allow_everybody
    ) -> None:
        super().__init__(database, hooks)
        self.allowed = allowed

    async def begin(self, claim: Claim) -> Admission:
        return await self.database.run(partial(begin.begin, hooks=self.hooks, claim=claim, allowed=self.allowed))

    async def check(self, claim: Claim) -> Admission:
        return await self.database.run(partial(begin.check, hooks=self.hooks, claim=claim, allowed=self.allowed))

    advance = with_hooks(steps.apply_step)
    targets = transaction(land.targets)
    land = with_hooks(land.land)
    finish = with_hooks(finish.finish)
    is_open = transaction(queries.is_open)

    suspects = transaction(healing.suspects)
    heal = with_hooks(healing.heal)
    abandon = with_hooks(recovery.abandon)
    leftovers = transaction(healing.leftovers)
    prune = transaction(retention.prune)
    save_report = transaction(healing.keep_report)
    reports = transaction(healing.read_reports)

    get = snapshot(queries.get)
    records = snapshot(queries.records)
    tree = snapshot(queries.tree)
    outcome = snapshot(queries.outcome)
    action_of_run = snapshot(queries.action_of_run)
    newest_event = snapshot(events.newest_event)
    events_after = snapshot(events.events_after)
    list_objects = snapshot(queries.list_objects)
    history = snapshot(queries.read_history)
    holds = snapshot(queries.holds)
    kept = snapshot(audit.check_kept)
    last_epoch = transaction(audit.last_epoch)
    begun_since = transaction(audit.begun_since)
