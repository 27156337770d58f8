"""Carries out one order on the simulated hypervisor's ledger, or refuses it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import sqlalchemy as sa

from domain.errors import Rejected
from domain.machines.ports import ABSENT, MOVES, HypervisorFacts, HypervisorOrder
from domain.machines.specs import MACHINE_MEMORY, NODE_MEMORY
from providers.machines.tables import orders, things
from providers.simulated.ledger import Ledger, LedgerOrder, LedgerRow

USING_MEMORY = ("running", "paused")


@dataclass(frozen=True, kw_only=True)
class HypervisorObject(LedgerRow):
    """One object in the hypervisor's ledger."""

    node: str = ""
    machine: str = ""
    image: str = ""
    memory: int = 0

    def facts(self) -> HypervisorFacts:
        return HypervisorFacts(self.path, self.state, self.node, self.machine, self.epoch)


LEDGER = Ledger(HypervisorObject, things, orders)
_USED = sa.select(sa.func.coalesce(sa.func.sum(things.c.memory), 0)).where(
    things.c.node == sa.bindparam("node"),
    things.c.kind == "machine",
    things.c.state.in_(sa.bindparam("states", expanding=True)),
)


def carry_out(connection: sa.Connection, verb: str, order: HypervisorOrder) -> HypervisorFacts:
    """Carries out an order, once per token. Raises Rejected, or Superseded if a later action has given an order."""

    def change(old: HypervisorObject) -> HypervisorObject:
        after = MOVES.get(order.kind, {}).get(verb, {}).get(old.state)
        if after is None:
            raise Rejected(f"cannot {verb} {order.path}: it is {_place(old)}")
        special = _SPECIAL.get((order.kind, verb))
        new = replace(old, state=after)
        return special(connection, new, old, order) if special else new

    entry = LedgerOrder(order.path, order.kind, verb, order.token, order.epoch, repeats=verb in ("reboot", "reset"))
    return LEDGER.record(connection, entry, change).facts()


def machines_on(connection: sa.Connection, node: str) -> list[HypervisorObject]:
    """Returns the machines that are on a node."""
    there = (things.c.node == node, things.c.kind == "machine", things.c.state != ABSENT)
    return LEDGER.rows(connection, LEDGER.select().where(*there).order_by(things.c.path))


def _place(thing: HypervisorObject) -> str:
    return f"attached to {thing.machine}" if thing.state == "attached" else thing.state


def _create_machine(
    connection: sa.Connection, new: HypervisorObject, old: HypervisorObject, order: HypervisorOrder
) -> HypervisorObject:
    if old.state != ABSENT:
        return new
    image, memory = str(order.spec.get("image", "")), int(order.spec.get("memory", MACHINE_MEMORY))
    if LEDGER.find(connection, f"image:{image}").state != "ready":
        raise Rejected(f"image {image} is not ready to be used")
    network = order.path.rpartition(":machine:")[0]
    if LEDGER.find(connection, network).state != "up":
        raise Rejected(f"the network of {network} is not up")
    return replace(new, node=_room(connection, memory, str(order.spec.get("node") or "")), image=image, memory=memory)


def _start(
    connection: sa.Connection, new: HypervisorObject, old: HypervisorObject, order: HypervisorOrder
) -> HypervisorObject:
    if old.state != "running":
        _room(connection, old.memory, old.node)
    return new


def _migrate(
    connection: sa.Connection, new: HypervisorObject, old: HypervisorObject, order: HypervisorOrder
) -> HypervisorObject:
    wish = str(order.spec.get("node") or "")
    if wish == old.node:
        raise Rejected(f"{order.path} is on {wish} already")
    needed = old.memory if old.state in USING_MEMORY else 0
    return replace(new, node=_room(connection, needed, wish, besides=old.node))


def _attach(
    connection: sa.Connection, new: HypervisorObject, old: HypervisorObject, order: HypervisorOrder
) -> HypervisorObject:
    machine = str(order.spec.get("machine", ""))
    if LEDGER.find(connection, machine).state in (ABSENT, "binned"):
        raise Rejected(f"there is no machine {machine} to attach to")
    return replace(new, machine=machine)


def _detach(
    connection: sa.Connection, new: HypervisorObject, old: HypervisorObject, order: HypervisorOrder
) -> HypervisorObject:
    return replace(new, machine="", node="")


def _power_off_at_home(
    connection: sa.Connection, new: HypervisorObject, old: HypervisorObject, order: HypervisorOrder
) -> HypervisorObject:
    return replace(new, node=old.node or _room(connection, 0, ""))


def _destroy_image(
    connection: sa.Connection, new: HypervisorObject, old: HypervisorObject, order: HypervisorOrder
) -> HypervisorObject:
    users = sa.select(things.c.path).where(things.c.image == order.path.partition(":")[2], things.c.state != ABSENT)
    if (user := connection.execute(users.where(things.c.kind == "machine").limit(1)).scalar()) is not None:
        raise Rejected(f"{order.path} is in use by {user}")
    return new


def _new_node(
    connection: sa.Connection, new: HypervisorObject, old: HypervisorObject, order: HypervisorOrder
) -> HypervisorObject:
    return replace(new, memory=int(order.spec.get("memory", NODE_MEMORY))) if old.state == ABSENT else new


def _decommission(
    connection: sa.Connection, new: HypervisorObject, old: HypervisorObject, order: HypervisorOrder
) -> HypervisorObject:
    if there := machines_on(connection, order.path.partition(":")[2]):
        raise Rejected(f"{order.path} is home to {len(there)} machines, such as {there[0].path}")
    return new


def _room(connection: sa.Connection, memory: int, wish: str, besides: str = "") -> str:
    """Returns the wanted node, or the enabled one with most free memory. Raises Rejected if there is too little."""
    nodes = {thing.path.partition(":")[2]: thing for thing in _nodes(connection)}
    if wish and wish not in nodes:
        raise Rejected(f"there is no node {wish}")
    if wish and nodes[wish].state != "enabled":
        raise Rejected(f"node {wish} is in {nodes[wish].state}")
    free = {
        name: node.memory - _used(connection, name)
        for name, node in nodes.items()
        if node.state == "enabled" and name != besides and wish in ("", name)
    }
    best = max(sorted(free), key=lambda name: free[name], default="")
    if not best or free[best] < memory:
        raise Rejected(f"{f'node {wish}' if wish else 'no enabled node'} has room for {memory} GiB")
    return best


def _nodes(connection: sa.Connection) -> list[HypervisorObject]:
    return LEDGER.rows(connection, LEDGER.select().where(things.c.kind == "node", things.c.state != ABSENT))


def _used(connection: sa.Connection, node: str) -> int:
    return int(connection.execute(_USED, {"node": node, "states": USING_MEMORY}).scalar_one())


_Special = Callable[[sa.Connection, HypervisorObject, HypervisorObject, HypervisorOrder], HypervisorObject]
_SPECIAL: dict[tuple[str, str], _Special] = {
    ("machine", "create"): _create_machine,
    ("machine", "start"): _start,
    ("machine", "migrate"): _migrate,
    ("machine", "delete"): _detach,
    ("machine", "restore"): _power_off_at_home,
    ("machine", "destroy"): _detach,
    ("disk", "attach"): _attach,
    ("disk", "detach"): _detach,
    ("disk", "destroy"): _detach,
    ("image", "destroy"): _destroy_image,
    ("node", "create"): _new_node,
    ("node", "decommission"): _decommission,
}
