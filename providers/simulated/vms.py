"""The VMs of a simulated cloud within one transaction: read together, changed in memory, written together."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from operator import attrgetter

import sqlalchemy as sa
from sqlalchemy.sql.compiler import SQLCompiler

from domain.errors import NoCapacity, ProviderError, Rejected
from domain.ports import VMS_PER_PAGE, VmAnswer, VmFacts, VmKey, VmOrder, VmState
from domain.registry import tenant_of
from providers.epochs import late_order_error
from providers.listings import split_sorted
from providers.simulated.resources import foreign_resource_error, tenants_of_resources
from providers.simulated.tables import quotas, vms
from providers.tables import at_or_below_condition

PAGE_SIZE = 1_000  # ids in one query: databases limit the number of parameters

# An order for the present state succeeds without effect; a stopped VM cannot be rebooted, and
# a terminated one can only be terminated again.
# fmt: off
STATE_AFTER_VERB: dict[tuple[str, str], VmState] = {
    ("suspend",   VmState.RUNNING):    VmState.STOPPED,
    ("suspend",   VmState.STOPPED):    VmState.STOPPED,
    ("resume",    VmState.STOPPED):    VmState.RUNNING,
    ("resume",    VmState.RUNNING):    VmState.RUNNING,
    ("reboot",    VmState.RUNNING):    VmState.RUNNING,
    ("terminate", VmState.RUNNING):    VmState.TERMINATED,
    ("terminate", VmState.STOPPED):    VmState.TERMINATED,
    ("terminate", VmState.TERMINATED): VmState.TERMINATED,
}
# fmt: on


@dataclass(slots=True)
class SimulatedVm:
    """One VM in the cloud's tables. It may get many `calls`; `effects` is one per action."""

    cloud_id: str
    csp: str
    region: str
    path: str
    token: str
    state: str  # a VmState
    address: str
    last_token: str
    calls: int
    effects: int
    created: float
    changed: float
    epoch: int

    @property
    def key(self) -> str:
        """The cloud id, under a name that does not clash with the column in a statement."""
        return self.cloud_id

    def to_facts(self, state: VmState | None = None) -> VmFacts:
        made = datetime.fromtimestamp(self.created, UTC)
        return VmFacts(self.path, self.cloud_id, state or VmState(self.state), self.address, self.token, made)


_COLUMNS = [vms.c[field.name] for field in fields(SimulatedVm)]
_INSERT_VM = sa.insert(vms)
_UPDATE_VM = (
    sa.update(vms)
    .where(vms.c.cloud_id == sa.bindparam("key"))
    .values({name: sa.bindparam(name) for name in ("state", "last_token", "calls", "effects", "changed", "epoch")})
)


class LockedVms:
    """The VMs that one transaction of a simulated cloud reads and changes."""

    def __init__(
        self, connection: sa.Connection, csp: str, ids: Iterable[str], born: dict[str, set[str]], used: set[str]
    ) -> None:
        """Reads the VMs of these ids. `born`: by region, the paths of new VMs; `used`: what the new VMs share."""
        self._csp = csp
        found = (read_vms(connection, vms.c.cloud_id.in_(page)) for page in split_sorted(PAGE_SIZE, ids))
        self._vms = {vm.cloud_id: vm for some in found for vm in some}
        self._free_quota = _free_quota_by_region(connection, csp) if born else {}  # region -> VMs left in its quota
        self._epochs = {  # path -> highest epoch of its orders, for paths where VMs are created
            path: epoch
            for region, paths in born.items()
            for path, epoch in _highest_epochs(connection, csp, region, paths)
        }
        # Of the shared resources that new VMs use, by cloud id.
        self._tenants = tenants_of_resources(connection, used) if used else {}
        self._new: dict[str, SimulatedVm] = {}
        self._touched: dict[str, SimulatedVm] = {}
        self._now = time.time()

    def describe_vm(self, region: str, order: VmOrder, state: VmState | None = None) -> VmFacts | None:
        """Returns a VM's facts, with this state if given; None if there is no such VM."""
        vm = self._find_vm(region, order)
        return vm.to_facts(state) if vm else None

    def change_vm(self, verb: str, region: str, order: VmOrder) -> VmAnswer:
        """Carries out a verb, unless a later action has given an order there."""
        if verb == "create":
            return late_order_error(order.path, order.epoch, self._epochs.get(order.path, 0)) or self._create_vm(
                region, order
            )
        vm = self._find_vm(region, order) if order.cloud_id else None  # the token is the action's
        if vm is None:
            return no_such_vm_error(region, order)
        return late_order_error(order.path, order.epoch, vm.epoch) or self._apply_verb_to_vm(verb, vm, order)

    def save_vms(self, connection: sa.Connection) -> None:
        _execute_many(connection, _INSERT_VM, self._new.values())
        _execute_many(connection, _UPDATE_VM, self._touched.values())

    def _find_vm(self, region: str, order: VmOrder) -> SimulatedVm | None:
        """Finds a VM of this region by cloud id or, without one, by its creation token."""
        vm = self._vms.get(cloud_id_of_order(self._csp, order))
        return vm if vm and vm.region == region and vm.csp == self._csp else None

    def _create_vm(self, region: str, order: VmOrder) -> VmFacts | ProviderError:
        cloud_id = cloud_id_from_token(self._csp, order.token)
        if known := self._vms.get(cloud_id):
            return self._answer_repeated_create(known, region, order)
        if foreign := foreign_resource_error(
            self._tenants, shared_resources_of_order(order).values(), tenant_of(order.path)
        ):
            return foreign
        if self._free_quota.get(region, 1) < 1:
            return NoCapacity(f"quota of VMs in {self._csp}/{region} is exceeded")
        if region in self._free_quota:
            self._free_quota[region] -= 1
        vm = self._new_vm(cloud_id, region, order)
        self._vms[cloud_id] = self._new[cloud_id] = vm
        return vm.to_facts()

    def _answer_repeated_create(self, vm: SimulatedVm, region: str, order: VmOrder) -> VmFacts | ProviderError:
        if (vm.region, vm.path) != (region, order.path):
            return Rejected(f"token of {order.path} was used before to create {vm.path} in {vm.csp}/{vm.region}")
        self._count_call(vm)
        return vm.to_facts()

    def _new_vm(self, cloud_id: str, region: str, order: VmOrder) -> SimulatedVm:
        return SimulatedVm(
            cloud_id=cloud_id,
            csp=self._csp,
            region=region,
            path=order.path,
            token=order.token,
            state=VmState.RUNNING,
            address=_simulated_address(cloud_id),
            last_token=order.token,
            calls=1,
            effects=1,
            created=self._now,
            changed=self._now,
            epoch=order.epoch,
        )

    def _apply_verb_to_vm(self, verb: str, vm: SimulatedVm, order: VmOrder) -> VmFacts | ProviderError:
        self._count_call(vm)
        vm.epoch = max(vm.epoch, order.epoch)
        if vm.last_token == order.token:
            return vm.to_facts()
        state = STATE_AFTER_VERB.get((verb, vm.state))
        if state is None:
            return Rejected(f"cannot {verb} {vm.cloud_id}: it is {vm.state}")
        vm.last_token = order.token
        if state != vm.state or verb == "reboot":
            vm.state, vm.changed = state, self._now
            vm.effects += 1
        return vm.to_facts()

    def _count_call(self, vm: SimulatedVm) -> None:
        vm.calls += 1
        if vm.cloud_id not in self._new:
            self._touched[vm.cloud_id] = vm


def _highest_epochs(
    connection: sa.Connection, csp: str, region: str, paths: Iterable[str]
) -> Iterator[tuple[str, int]]:
    for page in split_sorted(PAGE_SIZE, paths):
        here = (vms.c.csp == csp, vms.c.region == region, vms.c.path.in_(page))
        yield from _read_counts(
            connection, sa.select(vms.c.path, sa.func.max(vms.c.epoch)).where(*here).group_by(vms.c.path)
        ).items()


def read_vms(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> list[SimulatedVm]:
    """Returns the VMs that meet all conditions."""
    return [SimulatedVm(*row) for row in connection.execute(sa.select(*_COLUMNS).where(*where)).all()]


def read_vms_page(connection: sa.Connection, csp: str, region: str, prefix: str, after: VmKey) -> list[SimulatedVm]:
    """Returns the next living VMs of a region at or below a path, in the order of their keys."""
    key = (vms.c.path, vms.c.cloud_id)
    query = sa.select(*_COLUMNS).where(
        vms.c.csp == csp,
        vms.c.region == region,
        vms.c.state != VmState.TERMINATED,
        at_or_below_condition(vms.c.path, prefix),
        sa.tuple_(*key) > sa.tuple_(*map(sa.literal, after)),
    )
    # Bounds on the path alone: by them the index is entered and left.
    query = query.where(vms.c.path >= max(after[0], prefix), vms.c.path < f"{prefix};" if prefix else sa.true())
    return [SimulatedVm(*row) for row in connection.execute(query.order_by(*key).limit(VMS_PER_PAGE))]


def shared_resources_of_order(order: VmOrder) -> Mapping[str, str]:
    """Returns the shared resources that a new VM uses: what -> cloud id."""
    return order.spec.get("network") or {}


def no_such_vm_error(region: str, order: VmOrder) -> Rejected:
    """Returns the cloud's error for an unknown VM."""
    return Rejected(f"no such VM in {region}: {order.cloud_id or order.path}")


def cloud_id_of_order(csp: str, order: VmOrder) -> str:
    """Returns the cloud id of an order's VM: the given one, or the one that its token creates."""
    return order.cloud_id or cloud_id_from_token(csp, order.token)


def cloud_id_from_token(csp: str, token: str) -> str:
    """Returns the cloud id that a token creates; the same token always gives the same VM."""
    return f"{csp}-i-{sha256(f'{csp} {token}'.encode()).hexdigest()[:17]}"


def _simulated_address(cloud_id: str) -> str:
    a, b, c = bytes.fromhex(cloud_id[-6:])
    return f"10.{a}.{b}.{1 + c % 254}"


def _free_quota_by_region(connection: sa.Connection, csp: str) -> dict[str, int]:
    limits = _read_counts(connection, sa.select(quotas.c.region, quotas.c.vms).where(quotas.c.csp == csp))
    if not limits:
        return {}
    live = (vms.c.csp == csp) & vms.c.region.in_(limits) & (vms.c.state != VmState.TERMINATED)
    used = _read_counts(connection, sa.select(vms.c.region, sa.func.count()).where(live).group_by(vms.c.region))
    return {region: limit - used.get(region, 0) for region, limit in limits.items()}


def _read_counts(connection: sa.Connection, query: sa.Select[str, int]) -> dict[str, int]:
    return {region: number for region, number in connection.execute(query)}  # noqa: C416 - dict() wants a mapping


def _execute_many(
    connection: sa.Connection, statement: sa.Insert | sa.Update, changed: Collection[SimulatedVm]
) -> None:
    """Executes a statement for many rows by hand, as SQLAlchemy's preparation costs more than the database."""
    if not changed:
        return
    compiled = _compile_statement(statement, connection.dialect)
    names = compiled.positiontup or list(compiled.params)
    rows = map(attrgetter(*names), changed)
    as_driver_likes = list(rows) if compiled.positional else [dict(zip(names, row, strict=True)) for row in rows]
    connection.exec_driver_sql(compiled.string, as_driver_likes)


@cache
def _compile_statement(statement: sa.Insert | sa.Update, dialect: sa.Dialect) -> SQLCompiler:
    compiled = statement.compile(dialect=dialect)
    assert isinstance(compiled, SQLCompiler)
    return compiled
