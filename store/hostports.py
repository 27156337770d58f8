"""Ports of a machine's loopback, each reserved by one service: of two begins at once, the second waits and is refused.

A reservation is written at begin, so what an action asks for is seen by all others before it is in any stored spec. One
that nothing needs any more counts as free, whatever became of the action that made it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from domain.services.ports import TakenPort
from store.queries import at_or_below_condition
from store.schema import Count, Path, actions, define_index, define_table, json_key_as_text, objects


class HostPortRow(NamedTuple):
    """A reserved port of a machine: for which service, and by which run."""

    host: Path
    port: Count
    path: Path
    run: str


host_ports = define_table("host_ports", HostPortRow, ("host", "port"), define_index("host_ports_of_path", "path"))

_INSERT_IF_FREE = {
    "sqlite": sqlite.insert(host_ports).on_conflict_do_nothing(),
    "postgresql": postgresql.insert(host_ports).on_conflict_do_nothing(),
}
_SPEC_PORT = json_key_as_text(objects.c.spec, "port")
_SELECT_HOLDERS = (  # with the open action that asks for the port, if there is one
    sa.select(host_ports.c.port, host_ports.c.path, host_ports.c.run, _SPEC_PORT, actions.c.action, actions.c.path)
    .outerjoin(objects, objects.c.path == host_ports.c.path)
    .outerjoin(actions, (actions.c.run == host_ports.c.run) & actions.c.ended_at.is_(None))
    .where(host_ports.c.host == sa.bindparam("at_host"), host_ports.c.port.in_(sa.bindparam("numbers", expanding=True)))
    .order_by(host_ports.c.port)
)
_ONE_PORT = (host_ports.c.host == sa.bindparam("at_host")) & (host_ports.c.port == sa.bindparam("number"))
_CHANGE_PORT = sa.update(host_ports).where(_ONE_PORT)
_TAKE_OVER = (
    sa.update(host_ports).where(_ONE_PORT, host_ports.c.run == sa.bindparam("of_run")).returning(host_ports.c.port)
)
_DELETE_PORT = sa.delete(host_ports).where(_ONE_PORT)


def reserve_ports(
    connection: sa.Connection, host: str, run: str, within: str, wanted: Mapping[int, str]
) -> list[TakenPort]:
    """Reserves ports of a machine, each for the service at its path. Returns those that others have.

    What is at or below `within` is the action's own: its services may pass ports to each other, and none of them is
    free before the action ends, as it may have to go back.
    """
    with connection.begin_nested() as savepoint:  # a refusal leaves nothing
        own = sa.update(host_ports).where(at_or_below_condition(host_ports.c.path, within)).values(run=run)
        connection.execute(own)
        taken = list(_reserve_or_find_taken(connection, host, run, wanted))
        if taken:
            savepoint.rollback()
    return taken


def _reserve_or_find_taken(
    connection: sa.Connection, host: str, run: str, wanted: Mapping[int, str]
) -> Iterator[TakenPort]:
    left = dict(sorted(wanted.items()))  # in one order: no deadlock
    while left:
        rows = [{"host": host, "port": port, "path": path, "run": run} for port, path in left.items()]
        connection.execute(_INSERT_IF_FREE[connection.dialect.name], rows)
        found = connection.execute(_SELECT_HOLDERS, {"at_host": host, "numbers": list(left)}).all()
        for port, holder, of_run, in_spec, action, owner in found:  # another one was released just now: ask again
            if of_run == run:
                del left[port]
            elif str(in_spec) == str(port):
                yield TakenPort(port, left.pop(port), holder)
            elif action:
                yield TakenPort(port, left.pop(port), holder, action, owner)
            else:  # nothing needs it any more, unless an action has begun since
                dead = {"at_host": host, "number": port, "of_run": of_run}
                if connection.execute(_TAKE_OVER, dead | {"path": left[port], "run": run}).first():
                    del left[port]


def release_ports(connection: sa.Connection, path: str) -> None:
    """Keeps, at and below a path at which an action ends, the ports that are in stored specs, and releases the rest."""
    reserved = connection.execute(
        sa.select(host_ports)
        .where(at_or_below_condition(host_ports.c.path, path))
        .order_by(host_ports.c.port)
        .with_for_update()
    ).all()
    if not reserved:
        return
    specs = sa.select(_SPEC_PORT, objects.c.path).where(
        at_or_below_condition(objects.c.path, path), _SPEC_PORT.is_not(None)
    )
    holders = {int(port): holder for port, holder in connection.execute(specs)}
    for host, port, holder, _ in reserved:
        which = {"at_host": host, "number": port}
        if port not in holders:
            connection.execute(_DELETE_PORT, which)
        elif holders[port] != holder:
            connection.execute(_CHANGE_PORT, which | {"path": holders[port]})
