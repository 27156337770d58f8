"""The inventory as the activities use it: every method is one transaction, run in a thread."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from domain.dryrun import DryRun
from domain.errors import Refused
from domain.model import Admission, BeginRequest, LockHolder, Refusal
from domain.quotas import QuotaQuery, QuotasView
from store import (
    aliases,
    attempts,
    audit,
    begin,
    events,
    finish,
    healing,
    idempotency,
    land,
    preview,
    proofs,
    queries,
    quotas,
    recovery,
    retention,
    steps,
    waitqueue,
)
from store.delegation import AccessCheck
from store.engine import Database
from store.hooks import HooksByKind
from store.transaction import HookedStore, hooked_transaction, snapshot_read, transaction


class SqlInventory(HookedStore):
    """The kernel's store: `domain.ports.Inventory` on SQLite or PostgreSQL."""

    def __init__(
        self,
        database: Database,
        hooks: HooksByKind,
        access: AccessCheck,
        quotas: quotas.ReadQuotas = lambda: None,
    ) -> None:
        super().__init__(database, hooks)
        self.access = access
        self.current_quotas = quotas

    async def begin_action(self, claim: BeginRequest) -> Admission:
        """Admits an action, or returns the refusal; a run that was answered before gets that answer again.

        The sender is identified before the transaction, so that a wrong proof takes no lock.
        """
        try:
            sender = self.access.identify_requester(claim)
        except Refused as refused:
            earlier = await self.find_answer_of_run(claim.run)
            return earlier or Admission(refusal=Refusal.from_error(refused))
        begins = partial(
            begin.begin_action,
            hooks=self.hooks,
            claim=claim,
            access=self.access,
            sender=sender,
            quotas=self.current_quotas(),
        )
        return await self.database.run_transaction(begins)

    async def preview_admission(self, claim: BeginRequest, dead: Sequence[LockHolder] = ()) -> DryRun:
        return await self.database.run_transaction(
            partial(
                preview.preview_admission,
                hooks=self.hooks,
                claim=claim,
                access=self.access,
                quotas=self.current_quotas(),
                dead=dead,
            )
        )

    async def read_quotas(self, query: QuotaQuery) -> QuotasView:
        return await self.database.run_in_snapshot(
            partial(quotas.read_quotas, query=query, quotas=self.current_quotas())
        )

    find_answer_of_run = snapshot_read(idempotency.find_answer_of_run)
    record_access_attempt = transaction(attempts.record_access_attempt)
    use_proof = transaction(proofs.use_proof)
    is_proof_used = transaction(proofs.is_proof_used)
    forget_expired = transaction(proofs.forget_expired)
    apply_step = hooked_transaction(steps.apply_step)
    list_targets = transaction(land.list_targets)
    land_targets = hooked_transaction(land.land_targets)
    finish_action = hooked_transaction(finish.finish_action)
    is_action_open = transaction(queries.is_action_open)
    filter_unreleased_holders = transaction(waitqueue.filter_unreleased_holders)
    close_wait_queue = transaction(waitqueue.close_wait_queue)
    open_wait_queue = transaction(waitqueue.open_wait_queue)

    list_stuck_items = transaction(healing.list_stuck_items)
    filter_lost_runs = transaction(healing.filter_lost_runs)
    heal_stuck_item = hooked_transaction(healing.heal_stuck_item)
    abandon_run = hooked_transaction(recovery.abandon_run)
    list_leftovers = transaction(healing.list_leftovers)
    prune_batch = transaction(retention.prune_batch)
    save_heal_report = transaction(healing.save_heal_report)
    read_reports = transaction(healing.read_reports)

    read_object = snapshot_read(queries.read_object)
    read_objects = snapshot_read(queries.read_objects)
    read_tree = snapshot_read(queries.read_tree)
    read_outcome = snapshot_read(queries.read_outcome)
    read_action = snapshot_read(queries.read_action)
    read_last_action = snapshot_read(queries.read_last_action)
    find_aliases = snapshot_read(aliases.find_aliases)
    read_newest_position = snapshot_read(events.read_newest_position)
    list_events_after = snapshot_read(events.list_events_after)
    list_objects = snapshot_read(queries.list_objects)
    read_history = snapshot_read(queries.read_history)
    list_locks = snapshot_read(queries.list_locks)
    check_store_invariants = snapshot_read(audit.check_store_invariants)
    read_last_epoch = transaction(audit.read_last_epoch)
    list_paths_begun_since = transaction(audit.list_paths_begun_since)
