"""Queries of the edge workflows: instances of a cloudlet, refuges for its apps, the state that a policy decides by."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from domain.edge.policies import PolicyFacts, PolicySite, cloudlet_of
from domain.edge.reports import (
    ExpectedInstance,
    ExpectedInstancesPage,
    FailoverPlan,
    PlannedFailover,
    PolicyFactsQuery,
    StoredPolicy,
)
from domain.edge.specs import AutoProvision, PolicySpec
from domain.edge.tables import S, why_changes_refused
from domain.paths import name_of, parent_of
from domain.statetable import NONE
from store.dbtime import read_database_micros
from store.edge.addresses import crm_address_of
from store.queries import below_condition
from store.rows import find_object
from store.schema import ObjectRow, objects

INSTANCES_PER_PAGE = 2_000


def list_expected_instances(connection: sa.Connection, cloudlet: str, after: str = "") -> ExpectedInstancesPage:
    """Returns a page of the Ready instances of a cloudlet, beginning after a path."""
    query = (
        sa.select(objects.c.path, objects.c.spec)
        .where(objects.c.path > (after or f"{cloudlet}:"), objects.c.path < f"{cloudlet};")
        .where(objects.c.status == S.READY.value)
        .order_by(objects.c.path)
    )
    at = read_database_micros(connection)  # before the rows: what they say is not older than that
    rows = connection.execute(query.limit(INSTANCES_PER_PAGE + 1)).all()
    items = [ExpectedInstance(path=row.path, spec=row.spec) for row in rows[:INSTANCES_PER_PAGE]]
    return ExpectedInstancesPage(items=items, more=len(rows) > INSTANCES_PER_PAGE, at=at)


def plan_failover(connection: sa.Connection, cloudlet: str) -> FailoverPlan:
    """Finds for each app of a cloudlet another cloudlet without that app and with a Ready cluster of the same name."""
    apps = connection.execute(
        sa.select(objects.c.path, objects.c.spec)
        .where(below_condition(objects.c.path, cloudlet), objects.c.kind == "app", objects.c.status == S.READY.value)
        .order_by(objects.c.path)
    ).all()
    org = str(parent_of(cloudlet))
    others = [row.path for row in _list_cloudlets_of_org(connection, org) if _is_usable_cloudlet(row)]
    of_org = sa.select(objects.c.path).where(below_condition(objects.c.path, org), objects.c.kind == "app")
    taken = {(cloudlet_of(path), name_of(path)) for path in connection.execute(of_org).scalars()}
    found = []
    for app in apps:
        free = [other for other in others if other != cloudlet and (other, name_of(app.path)) not in taken]
        found.append(_find_failover(connection, app.path, app.spec, free))
        taken |= {(cloudlet_of(found[-1].to), name_of(app.path))} if found[-1].to else set()
    return FailoverPlan(apps=found)


def _find_failover(connection: sa.Connection, app: str, spec: dict[str, Any], others: list[str]) -> PlannedFailover:
    """Returns the first of these cloudlets that has a Ready cluster for the app."""
    cluster, name = name_of(str(parent_of(app))), name_of(app)
    for other in others:
        target = f"{other}:cluster:{cluster}"
        row = find_object(connection, target)
        if row and row.status == S.READY:
            return PlannedFailover(path=app, to=f"{target}:app:{name}", spec=spec)
    return PlannedFailover(path=app)


def _list_cloudlets_of_org(connection: sa.Connection, org: str) -> list[ObjectRow]:
    query = (
        sa.select(objects)
        .where(objects.c.kind == "cloudlet", below_condition(objects.c.path, org))
        .order_by(objects.c.path)
    )
    return [ObjectRow(*row) for row in connection.execute(query)]


def _is_usable_cloudlet(cloudlet: ObjectRow) -> bool:
    return not why_changes_refused(cloudlet.status, crm_address_of(cloudlet) is not None)


def read_policy(connection: sa.Connection, path: str) -> StoredPolicy:
    """Returns a policy's spec if it is Active, and whether an action is changing it."""
    row = find_object(connection, path)
    if row is None:
        return StoredPolicy()
    if row.target_action != NONE:
        return StoredPolicy(changing=True)
    spec = PolicySpec.model_validate(row.spec) if row.status == S.ACTIVE else None
    return StoredPolicy(spec=spec, principal=row.principal_name)


def read_policy_facts(connection: sa.Connection, asked: PolicyFactsQuery) -> PolicyFacts:
    """Returns the state that a policy decides by: its sites and their apps, or the size of its cluster."""
    if asked.auto_provision:
        return PolicyFacts(places=_list_policy_sites(connection, asked.policy, asked.auto_provision))
    policy = asked.auto_scale
    assert policy
    path = f"{parent_of(asked.policy)}:cloudlet:{policy.cloudlet}:cluster:{policy.cluster}"
    cluster = find_object(connection, path)
    home = find_object(connection, str(parent_of(path)))
    able = home is not None and _is_usable_cloudlet(home)
    if cluster is None:
        return PolicyFacts()
    status = cluster.status if able else "unreachable"
    return PolicyFacts(nodes=int(cluster.spec.get("nodes", 1)), cluster=status)


def _list_policy_sites(connection: sa.Connection, path: str, policy: AutoProvision) -> list[PolicySite]:
    """Returns the policy's sites in their order, then the instances that it created on other cloudlets."""
    org = str(parent_of(path))
    cloudlets = {name_of(row.path): row for row in _list_cloudlets_of_org(connection, org)}
    places = []
    for site in policy.cloudlets:
        home = cloudlets.get(site.cloudlet)
        cluster = find_object(connection, f"{home.path}:cluster:{site.cluster}") if home else None
        reached = bool(home and _is_usable_cloudlet(home))
        usable = bool(reached and cluster and cluster.status == S.READY)
        app = find_object(connection, f"{cluster.path}:app:{policy.app}") if cluster else None
        status = app.status if app else ""
        places.append(
            PolicySite(cloudlet=site.cloudlet, cluster=site.cluster, usable=usable, reached=reached, app=status)
        )
    return places + _list_sites_outside_policy(connection, path, policy)


def _list_sites_outside_policy(connection: sa.Connection, path: str, policy: AutoProvision) -> list[PolicySite]:
    """Returns instances that the policy created on cloudlets that are no longer its sites."""
    sites = {site.cloudlet for site in policy.cloudlets}
    apps = connection.execute(
        sa.select(objects.c.path, objects.c.status, objects.c.info)
        .where(below_condition(objects.c.path, str(parent_of(path))), objects.c.kind == "app")
        .order_by(objects.c.path)
    ).all()
    found = []
    for app in apps:
        _, _, _, cloudlet, _, cluster, _, name = app.path.split(":")
        if name == policy.app and cloudlet not in sites and app.info.get("policy") == name_of(path):
            found.append(PolicySite(cloudlet=cloudlet, cluster=cluster, usable=True, app=app.status))
    return found
