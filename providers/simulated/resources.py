"""What a tenant's VMs share in a region of a simulated cloud: networks, security groups, keys."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

import sqlalchemy as sa

from domain.errors import Rejected
from domain.ports import SHARED_RESOURCE_TYPES, SharedResource
from providers.epochs import late_order_error
from providers.simulated.tables import resources


def prepare_resource(
    connection: sa.Connection, csp: str, region: str, resource: SharedResource, made: Mapping[str, str]
) -> str:
    """Creates a shared resource, unless it is there. Returns its cloud id."""
    cloud_id = cloud_id_for_resource(csp, resource)
    _refuse_foreign(connection, [cloud_id, *made.values()], resource.tenant)
    _refuse_late_hold(connection, cloud_id, resource)
    repeated = {"calls": resources.c.calls + 1, "epoch": resource.epoch}
    if connection.execute(sa.update(resources).where(resources.c.cloud_id == cloud_id).values(repeated)).rowcount:
        return cloud_id
    before = SHARED_RESOURCE_TYPES[: SHARED_RESOURCE_TYPES.index(resource.what)]
    if absent := [what for what in before if not _resource_exists(connection, made.get(what, ""))]:
        raise Rejected(f"no {absent[0]} in {csp}/{region} for the {resource.what}")
    row = {"cloud_id": cloud_id, "csp": csp, "region": region, "calls": 1, "created": time.time()}
    row |= {name: getattr(resource, name) for name in ("what", "token", "tenant", "epoch")}
    connection.execute(sa.insert(resources).values(row | {"beside": made[before[-1]] if before else ""}))
    return cloud_id


def release_resource(connection: sa.Connection, csp: str, resource: SharedResource) -> None:
    """Removes a shared resource."""
    cloud_id = resource.cloud_id or cloud_id_for_resource(csp, resource)
    _refuse_foreign(connection, [cloud_id], resource.tenant)
    _refuse_late_hold(connection, cloud_id, resource)
    needed = sa.select(resources.c.what).where(resources.c.beside == cloud_id)
    if other := connection.execute(needed).scalar():
        raise Rejected(f"{resource.what} {cloud_id} is in use by a {other}")
    connection.execute(sa.delete(resources).where(resources.c.cloud_id == cloud_id))


def cloud_id_for_resource(csp: str, resource: SharedResource) -> str:
    """Returns the cloud id that a token creates; the same token always gives the same id."""
    return f"{csp}-{resource.what}-{sha256(f'{csp} {resource.token}'.encode()).hexdigest()[:12]}"


def _refuse_late_hold(connection: sa.Connection, cloud_id: str, resource: SharedResource) -> None:
    """Refuses an order of an earlier hold than the last one seen: its giver has lost the hold."""
    seen = connection.execute(sa.select(resources.c.epoch).where(resources.c.cloud_id == cloud_id)).scalar()
    if late := late_order_error(f"the {resource.what}", resource.epoch, seen or 0, "hold", final=False):
        raise late


def tenants_of_resources(connection: sa.Connection, ids: Iterable[str]) -> dict[str, str]:
    """Returns the tenants of shared resources, by cloud id."""
    query = sa.select(resources.c.cloud_id, resources.c.tenant).where(resources.c.cloud_id.in_(sorted(set(ids))))
    return {str(row[0]): str(row[1]) for row in connection.execute(query)}


def foreign_resource_error(tenants: Mapping[str, str], ids: Iterable[str], tenant: str) -> Rejected | None:
    """Returns the error for a tenant that uses what belongs to another one; None if it does not."""
    for cloud_id in ids:
        if (owner := tenants.get(cloud_id, tenant)) != tenant:
            return Rejected(f"{cloud_id} belongs to {owner}, not to {tenant}: not touched")
    return None


def _refuse_foreign(connection: sa.Connection, ids: Sequence[str], tenant: str) -> None:
    if foreign := foreign_resource_error(tenants_of_resources(connection, ids), ids, tenant):
        raise foreign


def _resource_exists(connection: sa.Connection, cloud_id: str) -> bool:
    return bool(connection.execute(sa.select(resources.c.what).where(resources.c.cloud_id == cloud_id)).scalar())
