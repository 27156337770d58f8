"""finish: the end of an action is written and its locks are released, in one transaction, exactly once."""

from __future__ import annotations

import sqlalchemy as sa

from domain import registry
from domain.errors import brief
from domain.limits import FAILURES_SHOWN
from domain.machine import NONE, Actor
from domain.model import Chunk, Ending, Grant, Landing, Outcome, Result, Trouble
from store.landings import land, targets
from store.reading import shown_status
from store.recording import line
from store.schema import actions, history, locks, objects

UNANSWERED = "no clear answer from the cloud before the action ended"


def finish(connection: sa.Connection, ending: Ending) -> Outcome:
    """The whole of finish. A second one gives the first one's outcome; one that lost the object writes nothing."""
    action = (
        connection.execute(sa.select(actions).where(actions.c.epoch == ending.epoch).with_for_update()).mappings().one()
    )
    if action["outcome"]:
        return Outcome.model_validate(action["outcome"])
    grant = Grant.model_validate(action["grant"])
    for chunk in grant.chunks:
        _land_the_rest(connection, chunk, ending)
    outcome = _outcome(connection, grant, ending)
    _end_object(connection, grant, ending, outcome)
    outcome = outcome.model_copy(update={"status": shown_status(connection, ending.path)})
    connection.execute(sa.delete(locks).where(locks.c.owner == ending.path, locks.c.run == action["run"]))
    connection.execute(
        sa.update(actions)
        .where(actions.c.epoch == ending.epoch)
        .values(ended_at=ending.at, outcome=outcome.model_dump(mode="json"))
    )
    return outcome


def _land_the_rest(connection: sa.Connection, chunk: Chunk, ending: Ending) -> None:
    """Targets that nobody landed have failed: nothing is left transitional by an action that has ended."""
    table = registry.kind_at(chunk.first).table
    error = f"{UNANSWERED}: {ending.message}" if ending.message else UNANSWERED
    failures = {row.during: row.failure for row in reversed(table.rows) if row.action == chunk.action and row.during}
    landings = [
        Landing(path=left.path, status=failures[left.status](left.previous_status), error=error)
        for left in targets(connection, chunk)
    ]
    if landings:
        land(connection, chunk, landings, ending.at)


def _outcome(connection: sa.Connection, grant: Grant, ending: Ending) -> Outcome:
    """Counted from the records, not from what the workflow remembers."""
    failed, troubles = _troubles(connection, grant)
    done = grant.targets - failed
    result = ending.result
    if grant.targets and result is not Result.CANCELLED:
        result = Result.SUCCEEDED if not failed else Result.PARTIAL if done else Result.FAILED
    return Outcome(
        path=grant.path,
        action=grant.action,
        result=result,
        status="",
        done=done,
        failed=failed,
        skipped=grant.skipped,
        troubles=troubles,
        message=ending.message,
    )


def _troubles(connection: sa.Connection, grant: Grant) -> tuple[int, list[Trouble]]:
    mine = (
        ((objects.c.path == grant.path) | (objects.c.parent == grant.path))
        & (objects.c.epoch == grant.epoch)
        & (objects.c.placement != "")
        & (objects.c.error != "")
    )
    failed = connection.execute(sa.select(sa.func.count()).select_from(objects).where(mine)).scalar_one()
    if not failed:
        return 0, []
    rows = connection.execute(
        sa.select(objects.c.path, objects.c.status, objects.c.error, objects.c.changed_at)
        .where(mine)
        .order_by(objects.c.path)
        .limit(FAILURES_SHOWN)
    )
    return failed, [
        Trouble(path=path, status=status, error=brief(error, 200), at=at) for path, status, error, at in rows
    ]


def _end_object(connection: sa.Connection, grant: Grant, ending: Ending, outcome: Outcome) -> None:
    """The object itself, if it was not one of the targets, goes where its row leads."""
    table = registry.kind_at(grant.path).table
    good = outcome.result in (Result.SUCCEEDED, Result.PARTIAL)
    row = next(row for row in table.rows if row.action == grant.action and row.during == grant.during)
    to = grant.then if good else row.failure(grant.came_from)
    changed = connection.execute(
        sa.update(objects)
        .where(objects.c.path == grant.path, objects.c.epoch == grant.epoch, objects.c.status.in_(table.transitional))
        .values(
            status=to,
            target_action=NONE,
            target_status=NONE,
            changed_at=ending.at,
            error="" if good else brief(outcome.message or outcome.result.value),
        )
        .returning(objects.c.path)
    ).all()
    if changed:
        message = f"{outcome.result}: {ending.message}" if ending.message else outcome.result.value
        told = line(grant.path, ending.at, Actor.CONTROLLER, grant.action, grant.during, to, grant.epoch, message)
        connection.execute(sa.insert(history), [told])
