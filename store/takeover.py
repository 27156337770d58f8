"""What a dead action left behind is put right: its objects brought back, its locks released, its end recorded."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from domain import registry
from domain.errors import brief
from domain.machine import NONE, Actor
from domain.model import Outcome, Result
from store.reading import shown_status
from store.recording import for_each
from store.schema import actions, locks, objects

CUT_OFF = "the action before was cut off; back to what it was, the cloud was not asked"


def bury(connection: sa.Connection, owner: str, run: str, at: datetime, message: str) -> int:
    """End the action of a run that the caller knows to be dead. Returns how many objects were brought back."""
    dead = sa.select(actions).where(actions.c.run == run, actions.c.path == owner, actions.c.ended_at.is_(None))
    healed, message = 0, brief(message)
    for action in connection.execute(dead.with_for_update()).mappings().all():  # or it ends itself, but not both
        healed += _bring_back(connection, action, at, message)
        outcome = Outcome(
            path=owner,
            action=action["action"],
            result=Result.FAILED,
            status=shown_status(connection, owner),
            message=f"abandoned: {message}",
        )
        connection.execute(
            sa.update(actions)
            .where(actions.c.epoch == action["epoch"])
            .values(ended_at=at, outcome=outcome.model_dump(mode="json"))
        )
    connection.execute(sa.delete(locks).where(locks.c.owner == owner, locks.c.run == run))
    return healed


def _bring_back(connection: sa.Connection, action: sa.RowMapping, at: datetime, message: str) -> int:
    """Objects that the dead action left transitional go back to the status they came from."""
    mine = ((objects.c.path == action["path"]) | (objects.c.parent == action["path"])) & (
        objects.c.epoch == action["epoch"]
    )
    groups = sa.select(objects.c.kind, objects.c.status, objects.c.previous_status).where(mine).distinct()
    healed = 0
    for kind, status, came_from in connection.execute(groups).all():
        table = registry.kind(kind).table
        if status not in table.transitional:
            continue
        here = mine & (objects.c.kind == kind) & (objects.c.status == status) & (objects.c.previous_status == came_from)
        to = table.abandoned(status, came_from)
        told = {"at": at, "actor": Actor.CONTROLLER.value, "action": "heal", "to": to, "message": message}
        connection.execute(for_each(here), told)
        changed = connection.execute(
            sa.update(objects)
            .where(here)
            .values(status=to, target_action=NONE, target_status=NONE, changed_at=at, error=message)
        )
        healed += changed.rowcount
    return healed
