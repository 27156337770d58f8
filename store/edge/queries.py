"""Queries of the edge workflows: instances of a cloudlet, refuges for its apps, the state that a policy decides by."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from domain.edge.facts import ExpectedInstance, ExpectedPage, KeptPolicy, PolicyQuestion, Refuge, Refuges
from domain.edge.policies import PolicyFacts, PolicySite
from domain.edge.specs import AutoProvision, PolicySpec
from domain.edge.tables import S, refuses_changes
from domain.paths import name_of, parent_of
from domain.statetable import NONE
from store.edge.hooks import address_of, cloudlet_of
from store.queries import inside
from store.rows import find_object, read_all
from store.schema import ObjectRow, objects

ITEMS_AT_ONCE = 2_000


def everything(connection: sa.Connection, cloudlet: str, after: str = "") -> ExpectedPage:
    """Returns a page of the Ready instances of a cloudlet, beginning after a path."""
    query = (
        sa.select(objects.c.path, objects.c.spec)
        .where(objects.c.path > (after or f"{cloudlet}:"), objects.c.path < f"{cloudlet};")
        .where(objects.c.status == S.READY.value)
        .order_by(objects.c.path)
    )
    rows = connection.execute(query.limit(ITEMS_AT_ONCE + 1)).all()
    items = [ExpectedInstance(path=row.path, spec=row.spec) for row in rows[:ITEMS_AT_ONCE]]
    return ExpectedPage(items=items, more=len(rows) > ITEMS_AT_ONCE)


def refuges(connection: sa.Connection, cloudlet: str) -> Refuges:
    """Finds for each app of a cloudlet another cloudlet without that app and with a Ready cluster of the same name."""
    apps = connection.execute(
        sa.select(objects.c.path, objects.c.spec)
        .where(inside(objects.c.path, cloudlet), objects.c.kind == "app", objects.c.status == S.READY.value)
        .order_by(objects.c.path)
    ).all()
    others = [row.path for row in _cloudlets(connection, str(parent_of(cloudlet))) if _able(row)]
    taken = {(cloudlet_of(path), name_of(path)) for path in _apps_of(connection, str(parent_of(cloudlet)))}
    found = []
    for app in apps:
        free = [other for other in others if other != cloudlet and (other, name_of(app.path)) not in taken]
        found.append(_refuge(connection, app.path, app.spec, free))
        taken |= {(cloudlet_of(found[-1].to), name_of(app.path))} if found[-1].to else set()
    return Refuges(apps=found)


def _refuge(connection: sa.Connection, app: str, spec: dict[str, Any], others: list[str]) -> Refuge:
    """Returns the first of these cloudlets that has a Ready cluster for the app."""
    cluster, name = name_of(str(parent_of(app))), name_of(app)
    for other in others:
        target = f"{other}:cluster:{cluster}"
        found = find_object(connection, target)
        if found and found.status == S.READY:
            return Refuge(path=app, to=f"{target}:app:{name}", spec=spec)
    return Refuge(path=app)


def _apps_of(connection: sa.Connection, org: str) -> list[str]:
    query = sa.select(objects.c.path).where(inside(objects.c.path, org), objects.c.kind == "app")
    return list(connection.execute(query).scalars())


def _cloudlets(connection: sa.Connection, org: str) -> list[ObjectRow]:
    query = sa.select(objects).where(objects.c.kind == "cloudlet", inside(objects.c.path, org)).order_by(objects.c.path)
    return read_all(ObjectRow, connection.execute(query))


def _able(cloudlet: ObjectRow) -> bool:
    return not refuses_changes(cloudlet.status, address_of(cloudlet) is not None)


def policy(connection: sa.Connection, path: str) -> KeptPolicy:
    """Returns a policy's spec if it is Active, and whether an action is changing it."""
    row = find_object(connection, path)
    if row is None:
        return KeptPolicy()
    if row.target_action != NONE:
        return KeptPolicy(changing=True)
    return KeptPolicy(spec=PolicySpec.model_validate(row.spec) if row.status == S.ACTIVE else None)


def facts(connection: sa.Connection, asked: PolicyQuestion) -> PolicyFacts:
    """Returns the state that a policy decides by: its sites and their apps, or the size of its cluster."""
    if asked.auto_provision:
        return PolicyFacts(places=_places(connection, asked.policy, asked.auto_provision))
    policy = asked.auto_scale
    assert policy
    path = f"{parent_of(asked.policy)}:cloudlet:{policy.cloudlet}:cluster:{policy.cluster}"
    cluster = find_object(connection, path)
    home = find_object(connection, str(parent_of(path)))
    able = home is not None and _able(home)
    if cluster is None:
        return PolicyFacts()
    status = cluster.status if able else "unreachable"
    return PolicyFacts(nodes=int(cluster.spec.get("nodes", 1)), cluster=status)


def _places(connection: sa.Connection, path: str, policy: AutoProvision) -> list[PolicySite]:
    """Returns the policy's sites in their order, then the instances that it created on other cloudlets."""
    org = str(parent_of(path))
    cloudlets = {name_of(row.path): row for row in _cloudlets(connection, org)}
    places = []
    for site in policy.cloudlets:
        home = cloudlets.get(site.cloudlet)
        cluster = find_object(connection, f"{home.path}:cluster:{site.cluster}") if home else None
        reached = bool(home and _able(home))
        usable = bool(reached and cluster and cluster.status == S.READY)
        app = find_object(connection, f"{cluster.path}:app:{policy.app}") if cluster else None
        status = app.status if app else ""
        places.append(
            PolicySite(cloudlet=site.cloudlet, cluster=site.cluster, usable=usable, reached=reached, app=status)
        )
    return places + _elsewhere(connection, path, policy)


def _elsewhere(connection: sa.Connection, path: str, policy: AutoProvision) -> list[PolicySite]:
    """Returns instances that the policy created on cloudlets that are no longer its sites."""
    sites = {site.cloudlet for site in policy.cloudlets}
    apps = connection.execute(
        sa.select(objects.c.path, objects.c.status, objects.c.info)
        .where(inside(objects.c.path, str(parent_of(path))), objects.c.kind == "app")
        .order_by(objects.c.path)
    ).all()
    found = []
    for app in apps:
        _, _, _, cloudlet, _, cluster, _, name = app.path.split(":")
        if name == policy.app and cloudlet not in sites and app.info.get("policy") == name_of(path):
            found.append(PolicySite(cloudlet=cloudlet, cluster=cluster, usable=True, app=app.status))
    return found
