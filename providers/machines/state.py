"""One order, carried out on the simulated hypervisor's books: what it changes, or why it is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import sqlalchemy as sa

from domain.errors import Rejected, Superseded
from domain.machines.ports import ABSENT, MOVES, HypervisorFacts, HypervisorOrder
from domain.machines.specs import MACHINE_MEMORY, NODE_MEMORY
from providers.machines.tables import orders, things
from providers.tables import below

PAGE = 1_000
USING_MEMORY = ("running", "paused")


@dataclass(frozen=True)
class HypervisorObject:
    """One object in the books."""

    path: str
    kind: str
    state: str = ABSENT
    node: str = ""
    machine: str = ""
    image: str = ""
    memory: int = 0
    effects: int = 0
    epoch: int = 0

    def facts(self) -> HypervisorFacts:
        return HypervisorFacts(self.path, self.state, self.node, self.machine)


_COLUMNS = [things.c[name] for name in HypervisorObject.__dataclass_fields__]
_BY_PATH = sa.select(*_COLUMNS).where(things.c.path == sa.bindparam("at_path"))
_CHANGE = sa.update(things).where(things.c.path == sa.bindparam("at_path"))
_DONE = sa.select(orders.c.number).where(orders.c.token == sa.bindparam("token")).limit(1)
_KEEP = sa.insert(orders)
_USED = sa.select(sa.func.coalesce(sa.func.sum(things.c.memory), 0)).where(
    things.c.node == sa.bindparam("node"),
    things.c.kind == "machine",
    things.c.state.in_(sa.bindparam("states", expanding=True)),
)


def find(connection: sa.Connection, path: str, kind: str = "") -> HypervisorObject:
    """An object, absent if there is none."""
    row = connection.execute(_BY_PATH, {"at_path": path}).one_or_none()
    return HypervisorObject(*row) if row else HypervisorObject(path, kind)


def carry_out(connection: sa.Connection, verb: str, order: HypervisorOrder) -> HypervisorFacts:
    """Do it, once for each token. Raises Rejected, or Superseded if a later action has ordered something there."""
    thing = find(connection, order.path, order.kind)
    if order.epoch < thing.epoch:
        late = f"the order of action {order.epoch} for {order.path} comes too late"
        raise Superseded(f"{late}: action {thing.epoch} has ordered since", final=True)
    if connection.execute(_DONE, {"token": order.token}).first():
        return thing.facts()
    after = MOVES.get(order.kind, {}).get(verb, {}).get(thing.state)
    if after is None:
        raise Rejected(f"cannot {verb} {order.path}: it is {_place(thing)}")
    changed = replace(thing, state=after, epoch=order.epoch)
    if special := _SPECIAL.get((order.kind, verb)):
        changed = special(connection, changed, thing, order)
    effect = changed != replace(thing, epoch=order.epoch) or verb in ("reboot", "reset")
    if effect or order.epoch > thing.epoch:
        _write(connection, replace(changed, effects=thing.effects + effect))
    told = {"path": order.path, "verb": verb, "token": order.token, "effect": effect}
    connection.execute(_KEEP, told)
    return changed.facts()


def machines_on(connection: sa.Connection, node: str) -> list[HypervisorObject]:
    """The machines that a node is home to."""
    on = sa.select(*_COLUMNS).where(things.c.node == node, things.c.kind == "machine", things.c.state != ABSENT)
    return [HypervisorObject(*row) for row in connection.execute(on.order_by(things.c.path))]


def everything(connection: sa.Connection, prefix: str, after: str) -> list[HypervisorObject]:
    """What is there at or below a path, in the order of the paths: a page, from after a path on."""
    start = things.c.path > after if after >= prefix else things.c.path >= prefix
    query = sa.select(*_COLUMNS).where(things.c.state != ABSENT, start, below(things.c.path, prefix))
    query = query.where(things.c.path < f"{prefix};") if prefix else query  # `below` alone would be read to the end
    return [HypervisorObject(*row) for row in connection.execute(query.order_by(things.c.path).limit(PAGE))]


def _write(connection: sa.Connection, thing: HypervisorObject) -> None:
    values = {**vars(thing)}
    if connection.execute(_CHANGE, {**values, "at_path": thing.path}).rowcount == 0:
        connection.execute(sa.insert(things).values(**values))


def _place(thing: HypervisorObject) -> str:
    return f"attached to {thing.machine}" if thing.state == "attached" else thing.state


def _create_machine(
    connection: sa.Connection, new: HypervisorObject, old: HypervisorObject, order: HypervisorOrder
) -> HypervisorObject:
    if old.state != ABSENT:
        return new
    image, memory = str(order.spec.get("image", "")), int(order.spec.get("memory", MACHINE_MEMORY))
    if find(connection, f"image:{image}").state != "ready":
        raise Rejected(f"image {image} is not ready to be used")
    network = order.path.rpartition(":machine:")[0]
    if find(connection, network).state != "up":
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
    if find(connection, machine).state in (ABSENT, "binned"):
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
    """The node that was wished for, or the one with most room. Raises Rejected."""
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
    rows = connection.execute(sa.select(*_COLUMNS).where(things.c.kind == "node", things.c.state != ABSENT))
    return [HypervisorObject(*row) for row in rows]


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
