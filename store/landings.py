"""What happens between begin and finish: targets read and landed in bulk, objects moved step by step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from domain import registry
from domain.errors import brief
from domain.machine import NONE, Actor, Ruling
from domain.model import Chunk, Landing, Step, Target
from store.recording import line, record
from store.schema import history, objects

NO_ROW = "ignored: no row leads there"
NOT_OURS = "ignored: a newer action owns the object"


def targets(connection: sa.Connection, chunk: Chunk) -> list[Target]:
    """The targets of the chunk that are still to be done: a retry finds only what is left."""
    table = registry.kind_at(chunk.first).table
    query = (
        sa.select(objects.c.path, objects.c.status, objects.c.previous_status, objects.c.spec, objects.c.info)
        .where(
            objects.c.path.between(chunk.first, chunk.last),
            objects.c.kind == table.kind,
            objects.c.placement == chunk.placement,
            objects.c.epoch == chunk.epoch,
            objects.c.status.in_(table.transitional),
        )
        .order_by(objects.c.path)
    )
    return [Target(*row) for row in connection.execute(query)]


def land(connection: sa.Connection, chunk: Chunk, landings: Sequence[Landing], at: datetime) -> int:
    """Write where targets came out. Compare and set: the epoch must be ours, and a row must lead there."""
    plain: defaultdict[str, list[str]] = defaultdict(list)
    telling: list[Landing] = []
    for landing in landings:
        if landing.error or landing.info is not None:
            telling.append(landing)
        else:
            plain[landing.status].append(landing.path)
    landed = sum(_land_alike(connection, chunk, to, names, at) for to, names in plain.items())
    return landed + (_land_each(connection, chunk, telling, at) if telling else 0)


def _land_alike(connection: sa.Connection, chunk: Chunk, to: str, names: list[str], at: datetime) -> int:
    """Targets that came out alike and tell nothing new: a few statements, however many they are."""
    table = registry.kind_at(chunk.first).table
    mine = objects.c.path.in_(names) & (objects.c.epoch == chunk.epoch)
    pair = (objects.c.status, objects.c.previous_status)
    groups = connection.execute(sa.select(*pair, sa.func.count()).where(mine).group_by(*pair)).all()
    if sum(count for _, _, count in groups) < len(names):
        owned = set(connection.execute(sa.select(objects.c.path).where(mine)).scalars())
        _ignore(connection, chunk, [Landing(name, to) for name in names if name not in owned], at)
    landed = 0
    for status, came_from, count in groups:
        if status not in table.transitional:
            continue  # our own write, found again
        here = mine & (objects.c.status == status) & (objects.c.previous_status == came_from)
        if table.lands(chunk.action, status, came_from, to):
            record(connection, here, at, Actor.CLOUD, chunk.action, to)
            connection.execute(sa.update(objects).where(here).values(status=to, **_at_rest(at)))
            landed += count
        else:
            record(connection, here, at, Actor.CLOUD, chunk.action, to, NO_ROW)
    return landed


def _land_each(connection: sa.Connection, chunk: Chunk, landings: list[Landing], at: datetime) -> int:
    """Targets that each tell something of their own: one prepared statement for all of them."""
    table = registry.kind_at(chunk.first).table
    owned = _owned(connection, [landing.path for landing in landings], chunk.epoch)
    _ignore(connection, chunk, [landing for landing in landings if landing.path not in owned], at)
    changes, lines = [], []
    for landing in landings:
        status, came_from = owned.get(landing.path, (NONE, NONE))
        if status not in table.transitional:
            continue  # not ours, or our own write found again
        legal = table.lands(chunk.action, status, came_from, landing.status)
        message = landing.error if legal else NO_ROW
        lines.append(line(landing.path, at, Actor.CLOUD, chunk.action, status, landing.status, chunk.epoch, message))
        if legal:
            changes.append({"p": landing.path, "s": landing.status, "e": brief(landing.error), "i": landing.info})
    _update_each(connection, chunk.epoch, [change for change in changes if change["i"] is not None], at)
    _update_each(connection, chunk.epoch, [change for change in changes if change["i"] is None], at)
    if lines:
        connection.execute(sa.insert(history), lines)
    return len(changes)


def _update_each(connection: sa.Connection, epoch: int, changes: list[dict[str, Any]], at: datetime) -> None:
    if not changes:
        return
    which = (objects.c.path == sa.bindparam("p"), objects.c.epoch == epoch)
    told: dict[str, Any] = {"status": sa.bindparam("s"), "error": sa.bindparam("e"), **_at_rest(at)}
    if changes[0]["i"] is not None:
        told["info"] = sa.bindparam("i", type_=objects.c.info.type)
    connection.execute(sa.update(objects).where(*which).values(**told), changes)


def _ignore(connection: sa.Connection, chunk: Chunk, landings: list[Landing], at: datetime) -> None:
    """A write from an action that no longer owns the object changes nothing and is kept as ignored."""
    lines = [
        line(landing.path, at, Actor.CLOUD, chunk.action, NONE, landing.status, chunk.epoch, NOT_OURS)
        for landing in landings
    ]
    if lines:
        connection.execute(sa.insert(history), lines)


def _at_rest(at: datetime) -> dict[str, Any]:
    return {"target_action": NONE, "target_status": NONE, "changed_at": at}


def advance(connection: sa.Connection, step: Step) -> bool:
    """One step within an action. Found already made: success. Forbidden or stale: recorded as ignored."""
    owned = _owned(connection, [step.path], step.epoch)
    status, _ = owned.get(step.path, (NONE, NONE))
    if status == step.to:
        return True
    table = registry.kind_at(step.path).table
    legal = step.path in owned and table.step(status, step.to, step.actor).ruling is not Ruling.REFUSED
    if legal:
        which = (objects.c.path == step.path, objects.c.epoch == step.epoch)
        connection.execute(sa.update(objects).where(*which).values(status=step.to, changed_at=step.at))
    message = step.message if legal else NO_ROW if step.path in owned else NOT_OURS
    told = line(step.path, step.at, step.actor, "advance", status, step.to, step.epoch, message)
    connection.execute(sa.insert(history), [told])
    return legal


def _owned(connection: sa.Connection, names: list[str], epoch: int) -> dict[str, tuple[str, str]]:
    """Status and former status of those that this action still owns, locked until the transaction ends."""
    query = (
        sa.select(objects.c.path, objects.c.status, objects.c.previous_status)
        .where(objects.c.path.in_(names), objects.c.epoch == epoch)
        .order_by(objects.c.path)
        .with_for_update()
    )
    return {path: (status, came_from) for path, status, came_from in connection.execute(query)}
