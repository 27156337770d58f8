"""The ledger of a hypervisor: carries out one order on it, or refuses the order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import ip_network

import sqlalchemy as sa

from domain.errors import Rejected, format_count
from domain.machines.ports import ABSENT, STATE_AFTER_VERB, HypervisorFacts, HypervisorOrder
from domain.machines.specs import MACHINE_MEMORY, NODE_MEMORY
from providers.machines.snapshots import (
    NO_SNAPSHOTS,
    add_snapshot,
    check_rollback,
    parse_snapshots,
    remove_snapshot,
)
from providers.machines.tables import orders, things
from providers.simulated.ledger import Ledger, LedgerObject, LedgerOrder

_NETWORK_OF_KIND = {
    "machine": ip_network("10.0.0.0/8"),
    "cloudspace": ip_network("100.64.0.0/10"),  # shared address space: nobody's on the internet
}
MEMORY_STATES = ("running", "paused")
ATTACHED_STATES = {"attached": "detached", "attached in bin": "binned"}  # state of a disk -> state once detached


@dataclass(frozen=True, kw_only=True)
class HypervisorObject(LedgerObject):
    """One object in a hypervisor's ledger."""

    node: str = ""
    machine: str = ""
    image: str = ""
    address: str = ""
    memory: int = 0
    snapshots: str = NO_SNAPSHOTS

    def to_facts(self) -> HypervisorFacts:
        known = parse_snapshots(self.snapshots) if self.snapshots != NO_SNAPSHOTS else ()
        certain = tuple(snapshot.to_facts() for snapshot in known if not snapshot.in_doubt)
        return HypervisorFacts(self.path, self.state, self.node, self.machine, self.epoch, self.address, certain)


@dataclass(frozen=True)
class _Change:
    """What an order does to an object. `new` has the state and the address after it; an order may change more."""

    connection: sa.Connection
    order: HypervisorOrder
    old: HypervisorObject
    new: HypervisorObject


HYPERVISOR_LEDGER = Ledger(HypervisorObject, things, orders)
_IS_TAKEN = sa.select(sa.exists().where(things.c.address == sa.bindparam("address")))
_SELECT_ATTACHED = (
    sa.select(things.c.path)
    .where(
        things.c.machine == sa.bindparam("machine"),
        things.c.kind == "disk",
        things.c.state.in_(sa.bindparam("states", expanding=True)),
    )
    .order_by(things.c.path)
)
_SUM_USED_MEMORY = sa.select(sa.func.coalesce(sa.func.sum(things.c.memory), 0)).where(
    things.c.node == sa.bindparam("node"),
    things.c.kind == "machine",
    things.c.state.in_(sa.bindparam("states", expanding=True)),
)


def carry_out_order(connection: sa.Connection, verb: str, order: HypervisorOrder) -> HypervisorFacts:
    """Carries out an order, once per token. Raises Rejected, or Superseded if a later action has given an order."""
    entry = make_ledger_order(verb, order)
    change = partial(object_after_order, connection, verb, order)
    return HYPERVISOR_LEDGER.carry_out_order_once(connection, entry, change).to_facts()


def make_ledger_order(verb: str, order: HypervisorOrder) -> LedgerOrder:
    """Returns the order as the ledger stores it."""
    always = verb in ("reboot", "reset", "rollback")
    return LedgerOrder(order.path, order.kind, verb, order.token, order.epoch, always_has_effect=always)


def object_after_order(
    connection: sa.Connection, verb: str, order: HypervisorOrder, old: HypervisorObject
) -> HypervisorObject:
    """Returns the object as it is after the order. Raises Rejected if the order does not fit its state."""
    after = STATE_AFTER_VERB.get(order.kind, {}).get(verb, {}).get(old.state)
    if after is None:
        state = f"attached to {old.machine}" if old.state == "attached" else old.state
        raise Rejected(f"cannot {verb} {order.path}: it is {state}")
    special = _SPECIAL_CHANGES.get((order.kind, verb))
    address = old.address if old.state != ABSENT else _new_address(connection, order)
    new = replace(old, state=after, address=address)
    return special(_Change(connection, order, old, new)) if special else new


def _new_address(connection: sa.Connection, order: HypervisorOrder) -> str:
    """Returns an address that no other object has, from a place in the network that depends on the epoch."""
    network = _NETWORK_OF_KIND.get(order.kind)
    if network is None:
        return ""
    room = network.num_addresses - 2
    found = (str(network[1 + (order.epoch + step) % room]) for step in range(room))
    return next(address for address in found if not connection.execute(_IS_TAKEN, {"address": address}).scalar())


def read_machines_on(connection: sa.Connection, node: str) -> list[HypervisorObject]:
    """Returns the machines that are on a node."""
    there = (things.c.node == node, things.c.kind == "machine", things.c.state != ABSENT)
    return HYPERVISOR_LEDGER.read_rows(
        connection, HYPERVISOR_LEDGER.build_rows_query().where(*there).order_by(things.c.path)
    )


def read_attached_disks(connection: sa.Connection, machine: str) -> list[str]:
    """Returns the paths of the disks that are attached to a machine."""
    return list(connection.execute(_SELECT_ATTACHED, {"machine": machine, "states": list(ATTACHED_STATES)}).scalars())


def _create_machine(change: _Change) -> HypervisorObject:
    if change.old.state != ABSENT:
        return change.new
    image, memory = str(change.order.spec.get("image", "")), int(change.order.spec.get("memory", MACHINE_MEMORY))
    if HYPERVISOR_LEDGER.find_object(change.connection, f"image:{image}").state != "ready":
        raise Rejected(f"image {image} is not ready to be used")
    network = change.order.path.rpartition(":machine:")[0]
    if HYPERVISOR_LEDGER.find_object(change.connection, network).state != "up":
        raise Rejected(f"the network of {network} is not up")
    node = _choose_node(change.connection, memory, str(change.order.spec.get("node") or ""))
    return replace(change.new, node=node, image=image, memory=memory)


def _start_machine(change: _Change) -> HypervisorObject:
    if change.old.state != "running":
        _choose_node(change.connection, change.old.memory, change.old.node)
    return change.new


def _migrate_machine(change: _Change) -> HypervisorObject:
    wish = str(change.order.spec.get("node") or "")
    if wish == change.old.node:
        raise Rejected(f"{change.order.path} is on {wish} already")
    needed = change.old.memory if change.old.state in MEMORY_STATES else 0
    return replace(change.new, node=_choose_node(change.connection, needed, wish, besides=change.old.node))


def _take_snapshot(change: _Change) -> HypervisorObject:
    disks = read_attached_disks(change.connection, change.order.path)
    with_memory = change.old.state in MEMORY_STATES
    return replace(change.new, snapshots=add_snapshot(change.old.snapshots, change.order, with_memory, disks))


def _roll_back(change: _Change) -> HypervisorObject:
    disks = read_attached_disks(change.connection, change.order.path)
    check_rollback(change.old.snapshots, change.order, change.old.state in MEMORY_STATES, disks)
    return change.new


def _delete_snapshot(change: _Change) -> HypervisorObject:
    name = str(change.order.spec.get("snapshot", ""))
    return replace(change.new, snapshots=remove_snapshot(change.old.snapshots, name))


def _attach_disk(change: _Change) -> HypervisorObject:
    machine = str(change.order.spec.get("machine", ""))
    if HYPERVISOR_LEDGER.find_object(change.connection, machine).state in (ABSENT, "binned"):
        raise Rejected(f"there is no machine {machine} to attach to")
    return replace(change.new, machine=machine)


def _detach_disk(change: _Change) -> HypervisorObject:
    return replace(change.new, machine="", node="")


def _power_off_machine(change: _Change) -> HypervisorObject:
    return replace(change.new, node=change.old.node or _choose_node(change.connection, 0, ""))


def _destroy_image(change: _Change) -> HypervisorObject:
    image = change.order.path.partition(":")[2]
    users = sa.select(things.c.path).where(things.c.image == image, things.c.state != ABSENT)
    if (user := change.connection.execute(users.where(things.c.kind == "machine").limit(1)).scalar()) is not None:
        raise Rejected(f"{change.order.path} is in use by {user}")
    return change.new


def _create_node(change: _Change) -> HypervisorObject:
    if change.old.state != ABSENT:
        return change.new
    return replace(change.new, memory=int(change.order.spec.get("memory", NODE_MEMORY)))


def _decommission_node(change: _Change) -> HypervisorObject:
    if there := read_machines_on(change.connection, change.order.path.partition(":")[2]):
        raise Rejected(f"{change.order.path} is home to {format_count(len(there), 'machine')}, such as {there[0].path}")
    return change.new


def _choose_node(connection: sa.Connection, memory: int, wish: str, besides: str = "") -> str:
    """Returns the wanted node, or the enabled one with most free memory. Raises Rejected if there is too little."""
    there = HYPERVISOR_LEDGER.build_rows_query().where(things.c.kind == "node", things.c.state != ABSENT)
    nodes = {thing.path.partition(":")[2]: thing for thing in HYPERVISOR_LEDGER.read_rows(connection, there)}
    if wish and wish not in nodes:
        raise Rejected(f"there is no node {wish}")
    if wish and nodes[wish].state != "enabled":
        raise Rejected(f"node {wish} is in {nodes[wish].state}")
    free = {
        name: node.memory - _used_memory(connection, name)
        for name, node in nodes.items()
        if node.state == "enabled" and name != besides and wish in ("", name)
    }
    best = max(sorted(free), key=lambda name: free[name], default="")
    if not best or free[best] < memory:
        who = f"node {wish}" if wish else "no enabled node"
        raise Rejected(f"{who} has room for {memory} GiB; to take one into use: starter node create NAME")
    return best


def _used_memory(connection: sa.Connection, node: str) -> int:
    return int(connection.execute(_SUM_USED_MEMORY, {"node": node, "states": MEMORY_STATES}).scalar_one())


_SPECIAL_CHANGES: dict[tuple[str, str], Callable[[_Change], HypervisorObject]] = {
    ("machine", "create"): _create_machine,
    ("machine", "start"): _start_machine,
    ("machine", "migrate"): _migrate_machine,
    ("machine", "delete"): _detach_disk,
    ("machine", "restore"): _power_off_machine,
    ("machine", "destroy"): lambda change: replace(change.new, node="", snapshots=NO_SNAPSHOTS),
    ("machine", "snapshot"): _take_snapshot,
    ("machine", "rollback"): _roll_back,
    ("machine", "delete-snapshot"): _delete_snapshot,
    ("disk", "attach"): _attach_disk,
    ("disk", "detach"): _detach_disk,
    ("disk", "destroy"): _detach_disk,
    ("image", "destroy"): _destroy_image,
    ("node", "create"): _create_node,
    ("node", "decommission"): _decommission_node,
}
