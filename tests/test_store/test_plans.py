"""Every kernel statement of an action, a read or a sweep uses an index, on both databases, without ANALYZE.

The statements are those that the functions really send; the tables are large enough that a scan would be chosen if
there were no better way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from domain.errors import Refused
from domain.healing import StuckItem
from domain.invariants import HistoryPosition
from domain.model import ActionEnding, ActionResult, Grant, LockHolder, Move, Step, TargetLanding, WorkReport
from domain.waitqueue import QueueCommand
from store import begin as claims
from store import finish, healing, land, queries, recovery, retention, steps, waitqueue
from store.engine import Database
from store.schema import pruned
from tests.test_store.crowd import GROUPS, MEMBERS, Sent
from tests.test_store.driver import EVERYBODY, HOOKS, NOON, NS, claim

Work = Callable[[sa.Connection], Any]


def mci(number: int) -> str:
    return f"{NS}:mci:m{number}"


def scans(database: Database, work: Work) -> tuple[list[str], Any]:
    """What the statements of `work` would read from end to end."""
    sent = Sent()
    with sent.noted(database.engine):
        result = database.run_transaction_blocking(work)
    return sent.whole_reads(database), result


def begin(path: str, action: str, run: str, **more: Any) -> Work:
    return partial(
        claims.begin_action, hooks=HOOKS, access=EVERYBODY, claim=claim(path, action, run=run, started=NOON, **more)
    )


def reads() -> dict[str, Work]:
    vm = f"{mci(7)}:vm:front-1"
    holders = [LockHolder(owner=vm, action="suspend", run="old-7", since=NOON)]
    return {
        "one object": partial(queries.read_object, path=vm, members=False),
        "a group": partial(queries.read_object, path=mci(7), members=True),
        "a tree": partial(queries.read_tree, path=mci(7), troubles=10),
        "a list": partial(queries.list_objects, kind="vm", prefix="", after=vm, limit=100),
        "a list of one group": partial(queries.list_objects, kind="vm", prefix=mci(7), after="", limit=100),
        "history": partial(queries.read_history, path=vm, limit=100),
        "locks of one group": partial(queries.list_locks, prefix=mci(7)),
        "is it open": partial(queries.is_action_open, path=vm, epoch=7),
        "outcome of a run": partial(_outcome, run="run-nobody"),
        "who is still ahead": partial(waitqueue.filter_unreleased_holders, holders=holders),
        "leftovers": healing.list_leftovers,
    }


def _outcome(connection: sa.Connection, run: str) -> object:
    with pytest.raises(Refused):
        return queries.read_outcome(connection, run)
    return None


@pytest.mark.parametrize("what", reads())
def test_reads_use_an_index(crowded: Database, what: str) -> None:
    assert scans(crowded, reads()[what])[0] == []


def test_what_a_sweep_suspects_is_found_by_an_index(crowded: Database) -> None:
    """Every lock is looked at, as each is held by an action under way; nothing else is read as a whole."""
    found, _ = scans(crowded, partial(healing.list_stuck_items, before=NOON))
    assert [each for each in found if not each.startswith("healing.py _find_unowned_locks")] == []


def test_a_request_id_is_found_by_an_index_on_an_object_of_many_actions(crowded: Database) -> None:
    found, admission = scans(crowded, begin(mci(1), "suspend", "asks", request_id="q-nobody"))
    assert found == []
    assert admission.grant
    crowded.run_transaction_blocking(
        partial(recovery.abandon_run, hooks=HOOKS, owner=mci(1), run="asks", at=NOON, message="over")
    )


def test_retention_uses_indexes_however_many_actions_must_stay(crowded: Database) -> None:
    first = GROUPS * MEMBERS // 2
    begins = HistoryPosition(status="Running", came_from="Running")._asdict()
    paths = [f"{mci(first // MEMBERS)}:vm:front-{n + 1}" for n in range(MEMBERS)]

    def pruning(connection: sa.Connection) -> int:
        """As if each VM's history had begun before its one line."""
        with connection.begin_nested() as undone:
            connection.execute(sa.insert(pruned), [{"path": path, **begins} for path in paths])
            found = retention.prune_batch(connection, NOON, first, frozenset(), lambda rows: None)
            undone.rollback()
        return found.actions

    found, gone = scans(crowded, pruning)
    assert found == []
    assert gone == retention.ACTIONS_PER_BATCH


def finishing(grant: Grant) -> Work:
    return partial(
        finish.finish_action,
        hooks=HOOKS,
        ending=ActionEnding.from_grant(grant, ActionResult.SUCCEEDED, WorkReport(), NOON),
    )


@pytest.mark.parametrize("path", [mci(11), f"{mci(12)}:vm:front-1"], ids=["group", "member"])
def test_an_action_uses_indexes_from_begin_to_finish(crowded: Database, path: str) -> None:
    found, admission = scans(crowded, begin(path, "suspend", path))
    grant = admission.grant
    chunk = grant.chunks[0]
    targets, landed = scans(crowded, partial(land.list_targets, chunk=chunk))
    some = [TargetLanding(each.path, "Suspended") for each in landed]
    one = [TargetLanding(some[-1].path, "Suspended", error="told")]
    move = Move(path=path, to="Suspended", action="suspend", actor="Cloud")
    works: Sequence[Work] = (
        partial(land.land_targets, hooks=HOOKS, chunk=chunk, landings=some[:-1], at=NOON),
        partial(land.land_targets, hooks=HOOKS, chunk=chunk, landings=one, at=NOON),
        partial(steps.apply_step, hooks=HOOKS, step=Step(path=path, epoch=grant.epoch, at=NOON, moves=[move])),
        finishing(grant),
    )
    found += targets + [scan for work in works for scan in scans(crowded, work)[0]]
    assert found == []


def test_abandoning_uses_indexes(crowded: Database) -> None:
    path = mci(13)
    crowded.run_transaction_blocking(begin(path, "suspend", path))
    late = partial(
        claims.begin_action,
        hooks=HOOKS,
        access=EVERYBODY,
        claim=claim(path, "reboot", run="later", started=NOON + timedelta(seconds=1)),
    )
    assert scans(crowded, late)[0] == []
    assert (
        scans(crowded, partial(recovery.abandon_run, hooks=HOOKS, owner=path, run="later", at=NOON, message="gone"))[0]
        == []
    )
    left = StuckItem(path=path, owner="", run="", action="suspend", since=NOON, status="Suspending", epoch=7)
    assert scans(crowded, partial(healing.heal_stuck_item, hooks=HOOKS, suspect=left, at=NOON, message="gone"))[0] == []
    order = QueueCommand(path=path, run="drain", at=NOON)
    assert scans(crowded, partial(waitqueue.close_wait_queue, order=order))[0] == []
    assert scans(crowded, partial(waitqueue.open_wait_queue, order=order))[0] == []
