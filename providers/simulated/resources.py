"""What a tenant's VMs share in a region of a simulated cloud: networks, security groups, keys."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import sqlalchemy as sa

from domain.errors import Rejected
from domain.ports import SHARED_RESOURCE_TYPES, SharedResource
from providers.epochs import late_order_error
from providers.simulated.catalogue import list_missing_offers
from providers.simulated.tables import resources

CallResult = str | list[str] | None


@dataclass(frozen=True)
class ValidateCall:
    """A call that checks whether the region offers specs and images."""

    region: str
    specs: tuple[str, ...]
    images: tuple[str, ...]
    verb = "validate"
    path = ""

    def carry_out(self, _connection: sa.Connection, csp: str) -> CallResult:
        return list_missing_offers(csp, self.region, self.specs, self.images)


@dataclass(frozen=True)
class PrepareCall:
    """A call that creates a shared resource."""

    region: str
    resource: SharedResource
    made: Mapping[str, str]
    verb = "prepare"

    @property
    def path(self) -> str:
        return fault_path_of_resource(self.region, self.resource)

    def carry_out(self, connection: sa.Connection, csp: str) -> CallResult:
        cloud_id = cloud_id_for_resource(csp, self.resource)
        _refuse_foreign(connection, [cloud_id, *self.made.values()], self.resource.tenant)
        _refuse_late_hold(connection, cloud_id, self.resource)
        if connection.execute(_repeated_prepare_statement(cloud_id, self.resource.epoch)).rowcount:
            return cloud_id
        before = SHARED_RESOURCE_TYPES[: SHARED_RESOURCE_TYPES.index(self.resource.what)]
        if absent := [what for what in before if not _resource_exists(connection, self.made.get(what, ""))]:
            raise Rejected(f"no {absent[0]} in {csp}/{self.region} for the {self.resource.what}")
        row = {"cloud_id": cloud_id, "csp": csp, "region": self.region, "calls": 1, "created": time.time()}
        beside = self.made[before[-1]] if before else ""
        told = {"what": self.resource.what, "token": self.resource.token, "beside": beside}
        row["tenant"] = self.resource.tenant
        row["epoch"] = self.resource.epoch
        connection.execute(sa.insert(resources).values(row | told))
        return cloud_id


@dataclass(frozen=True)
class ReleaseCall:
    """A call that removes a shared resource."""

    region: str
    resource: SharedResource
    verb = "release"

    @property
    def path(self) -> str:
        return fault_path_of_resource(self.region, self.resource)

    def carry_out(self, connection: sa.Connection, csp: str) -> CallResult:
        cloud_id = self.resource.cloud_id or cloud_id_for_resource(csp, self.resource)
        _refuse_foreign(connection, [cloud_id], self.resource.tenant)
        _refuse_late_hold(connection, cloud_id, self.resource)
        needed = sa.select(resources.c.what).where(resources.c.beside == cloud_id)
        if other := connection.execute(needed).scalar():
            raise Rejected(f"{self.resource.what} {cloud_id} is in use by a {other}")
        connection.execute(sa.delete(resources).where(resources.c.cloud_id == cloud_id))
        return None


ResourceCall = ValidateCall | PrepareCall | ReleaseCall


def fault_path_of_resource(region: str, resource: SharedResource) -> str:
    """Returns the resource's path in the fault script."""
    return f"region:{region}:shared:{resource.what}"


def cloud_id_for_resource(csp: str, resource: SharedResource) -> str:
    """Returns the cloud id that a token creates; the same token always gives the same id."""
    return f"{csp}-{resource.what}-{sha256(f'{csp} {resource.token}'.encode()).hexdigest()[:12]}"


def _repeated_prepare_statement(cloud_id: str, epoch: int) -> sa.Update:
    told = {"calls": resources.c.calls + 1, "epoch": epoch}
    return sa.update(resources).where(resources.c.cloud_id == cloud_id).values(told)


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
