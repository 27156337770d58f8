"""Quotas in begin's transaction, and the counters behind them.

Counters are spread over shards, so that transactions of one tenant seldom wait for each other. A begin that decides by
them takes the tenant's turn first: of two begins at the last free place, the later one sees what the first one wrote.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import sqlalchemy as sa

from domain import registry
from domain.model import BeginRequest
from domain.paths import check_path
from domain.quotafile import Quotas
from domain.quotas import WINDOW_MICROS, Quota, QuotaQuery, QuotasView, QuotaUse, TenantQuota, check_room, next_turn
from domain.requests import is_asked_by_parent
from store.advisory import acquire_key_lock
from store.dbtime import read_database_micros
from store.hooks import GrantExtras
from store.once import is_done, mark_done
from store.schema import IS_OPEN, actions, tenant_rates, tenant_usage

SHARDS = 16
ReadQuotas = Callable[[], Quotas | None]

_ADD = (
    "INSERT INTO tenant_usage (tenant, shard, objects, vms) VALUES (:tenant, {shard}, :objects, :vms) "
    "ON CONFLICT (tenant, shard) DO UPDATE SET objects = tenant_usage.objects + excluded.objects, "
    "vms = tenant_usage.vms + excluded.vms"
)
_ADD_ON_POSTGRES = sa.text(_ADD.format(shard=f"pg_backend_pid() % {SHARDS}"))
_ADD_ON_SQLITE = sa.text(_ADD.format(shard="0"))  # one writer at a time
_SUMS = (sa.func.sum(tenant_usage.c.objects), sa.func.sum(tenant_usage.c.vms))
_SELECT_USAGE = sa.select(*_SUMS).where(tenant_usage.c.tenant == sa.bindparam("of_tenant"))
_SELECT_TENANTS = (  # a row for each shard: an index range, which grouping would not be
    sa.select(tenant_usage.c.tenant)
    .where(tenant_usage.c.tenant > sa.bindparam("after_tenant"))
    .order_by(tenant_usage.c.tenant, tenant_usage.c.shard)
    .limit(sa.bindparam("most"))
)
_SELECT_OPEN = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(actions.c.planned), 0)).where(
    (actions.c.path == sa.bindparam("root"))
    | ((actions.c.path > sa.bindparam("first")) & (actions.c.path < sa.bindparam("last"))),
    IS_OPEN,
)
_SELECT_RATE = sa.select(tenant_rates.c.until).where(tenant_rates.c.tenant == sa.bindparam("of_tenant"))
_TAKE_TURN = sa.text(
    "INSERT INTO tenant_rates (tenant, until) VALUES (:tenant, :until) "
    "ON CONFLICT (tenant) DO UPDATE SET until = excluded.until"
)


def count_objects(connection: sa.Connection, rows: Iterable[tuple[str, str]], sign: int) -> None:
    """Adds objects, given as path and kind, to the counters of their tenants, or takes them off."""
    objects: Counter[str] = Counter()
    vms: Counter[str] = Counter()
    for path, kind in rows:
        tenant = registry.tenant_of(path)
        objects[tenant] += sign
        vms[tenant] += sign * registry.find_kind(kind).counts_as_vm
    if objects:
        add = _ADD_ON_POSTGRES if connection.dialect.name == "postgresql" else _ADD_ON_SQLITE
        changes = [{"tenant": tenant, "objects": objects[tenant], "vms": vms[tenant]} for tenant in sorted(objects)]
        connection.execute(add, changes)


@dataclass(frozen=True)
class QuotaCheck:
    """The quotas of one begin, which holds its tenant's turn until its transaction ends."""

    tenant: str
    quota: Quota
    by_program: bool  # our programs, and children of our workflows, are not slowed down

    def check_grant(self, connection: sa.Connection, kind: registry.Kind, is_new: bool, extra: GrantExtras) -> None:
        """Raises Refused if what the action adds goes beyond a limit."""
        kinds = [*([kind] if is_new else []), *(registry.find_kind(each.kind) for each in extra.new_objects)]
        vms = sum(each.counts_as_vm for each in kinds) + extra.planned_vms
        used = read_use(connection, self.tenant)
        check_room(self.quota, used, len(kinds) + extra.planned_vms, vms, not self.by_program)


def start_check(
    connection: sa.Connection, claim: BeginRequest, asked: registry.ResolvedRequest, quotas: Quotas | None
) -> QuotaCheck | None:
    """Takes the tenant's turn and counts the request, once for each run; refuses one too many in a minute.

    None: there are no limits.
    """
    tenant = asked.tenant
    quota = quotas.quota_of(tenant) if quotas else None
    if quota is None:
        return None
    acquire_key_lock(connection, f"quota {tenant}")
    by_program = is_asked_by_parent(claim) or bool(asked.program)
    counted = f"rate {claim.run}"  # a run may ask again: its worker died, or what was in the way is gone
    if quota.requests_per_minute and not by_program and not is_done(connection, counted):
        before = connection.execute(_SELECT_RATE, {"of_tenant": tenant}).scalar_one_or_none() or 0
        until = next_turn(tenant, quota.requests_per_minute, before, read_database_micros(connection))
        connection.execute(_TAKE_TURN, {"tenant": tenant, "until": until})
        mark_done(connection, counted)  # not if it was refused for its rate: then it was not counted
    return QuotaCheck(tenant, quota, by_program)


def read_use(connection: sa.Connection, tenant: str) -> QuotaUse:
    """Returns what a tenant has: objects and VMs on record, VMs that open actions will add, and open actions."""
    objects, vms = connection.execute(_SELECT_USAGE, {"of_tenant": tenant}).one()
    below = {"root": check_path(tenant), "first": f"{tenant}:", "last": f"{tenant};"}
    running, planned = connection.execute(_SELECT_OPEN, below).one()
    return QuotaUse(
        tenant=tenant, objects=int(objects or 0) + planned, vms=int(vms or 0) + planned, open_actions=running
    )


def read_quotas(connection: sa.Connection, query: QuotaQuery, quotas: Quotas | None) -> QuotasView:
    """Returns what a page of tenants uses and may use."""
    page = {"after_tenant": query.after, "most": query.limit * SHARDS}
    seen = [query.tenant] if query.tenant else connection.execute(_SELECT_TENANTS, page).scalars()
    names = list(dict.fromkeys(seen))[: query.limit]
    now = read_database_micros(connection)
    found: list[TenantQuota] = []
    for name in names:
        if name == registry.INSTALLATION:
            continue
        allowed = (quotas.quota_of(name) if quotas else None) or Quota()
        used = read_use(connection, name)
        if allowed.requests_per_minute:
            until = connection.execute(_SELECT_RATE, {"of_tenant": name}).scalar_one_or_none() or 0
            taken = -(-max(until - now, 0) * allowed.requests_per_minute // WINDOW_MICROS)
            used = used.model_copy(update={"requests": taken})
        found.append(TenantQuota(used=used, allowed=allowed))
    return QuotasView(tenants=found, after=names[-1] if len(names) == query.limit and not query.tenant else "")
