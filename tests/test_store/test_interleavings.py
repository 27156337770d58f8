"""Every kernel transaction on PostgreSQL, held after each of its statements in turn while a rival runs.

The rival either commits in between or is seen to wait. Whichever it is, the end must be one that the two could have had
one after the other: this is where a read that decides a write, without a lock, shows.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from domain import wire
from domain.healing import StuckItem
from domain.locks import LockMode
from domain.mci.messages import SurveyedVm, VmCorrection
from domain.model import ActionEnding, ActionResult, Grant, Move, Step, TargetLanding, WorkReport
from domain.waitqueue import QueueCommand
from store import begin, finish, healing, land, recovery, steps, waitqueue
from store.mci import surveys
from tests.test_store.driver import EVERYBODY, HOOKS, NOON, NS, StoreDriver, blocked, claim, group

Pair = tuple[StoreDriver, StoreDriver]
Work = Callable[[sa.Connection], Any]
SIZE = 5


def interleave(pair: Pair, first: Work, second: Work, hold: int) -> tuple[Any, Any] | None:
    """Run `first` and hold it after its statement number `hold` until `second` is done or waits. None: it has fewer."""
    one, two = pair
    seen = 0
    with ThreadPoolExecutor(1) as thread:
        rival: Future[Any] | None = None

        def after(*_: object) -> None:
            nonlocal seen, rival
            seen += 1
            if seen == hold:
                rival = thread.submit(two.database.run_transaction_blocking, second)
                while not rival.done() and not blocked(two):
                    time.sleep(0.001)

        sa.event.listen(one.database.engine, "after_cursor_execute", after)
        try:
            result = one.database.run_transaction_blocking(first)
        finally:
            sa.event.remove(one.database.engine, "after_cursor_execute", after)
        return (result, rival.result()) if rival else None


@dataclass
class Case:
    """One MCI of five VMs, and what is done to it."""

    driver: StoreDriver
    path: str
    grant: Grant | None = None

    @property
    def vms(self) -> list[str]:
        return [f"{self.path}:vm:front-{n + 1}" for n in range(SIZE)]

    def begin(self, action: str, path: str = "", run: str = "", **more: Any) -> Work:
        return partial(
            begin.begin_action,
            hooks=HOOKS,
            access=EVERYBODY,
            claim=claim(path or self.path, action, run=run or f"{self.path} {action}", **more),
        )

    def correct(self, path: str, status: str = "Running", to: str = "Terminated") -> Work:
        """A cloud says something else of a VM at rest."""
        with self.driver.database.engine.connect() as connection:
            epoch = connection.execute(sa.text("SELECT epoch FROM objects WHERE path = :p"), {"p": path}).scalar_one()
        known = SurveyedVm(path, status, int(epoch), "None", {})
        return partial(surveys.apply_corrections, corrections=[VmCorrection(known, to, {}, "seen")], at=NOON)

    @property
    def granted(self) -> Grant:
        assert self.grant
        return self.grant

    def land(self, to: str, some: slice = slice(None)) -> Work:
        landed = [TargetLanding(vm, to) for vm in self.vms[some]]
        return partial(land.land_targets, hooks=HOOKS, chunk=self.granted.chunks[0], landings=landed, at=NOON)

    def finish(self) -> Work:
        ending = ActionEnding.from_grant(self.granted, ActionResult.SUCCEEDED, WorkReport(), NOON)
        return partial(finish.finish_action, hooks=HOOKS, ending=ending)

    def abandon(self) -> Work:
        run = f"{self.path} {self.granted.action}"
        return partial(recovery.abandon_run, hooks=HOOKS, owner=self.path, run=run, at=NOON, message="gone")


Prepare = Callable[[Case], Awaitable[tuple[Work, Work]]]


async def _group_and_survey(case: Case) -> tuple[Work, Work]:
    return case.begin("suspend"), case.correct(case.vms[-1])


async def _group_and_survey_that_makes_one_eligible(case: Case) -> tuple[Work, Work]:
    await case.driver.database.run_transaction(case.correct(case.vms[0], "Running", "Suspended"))
    return case.begin("suspend"), case.correct(case.vms[0], "Suspended", "Running")


async def _group_and_member(case: Case) -> tuple[Work, Work]:
    return case.begin("suspend"), case.begin("reboot", case.vms[2], run=f"{case.path} member")


async def _member_and_group(case: Case) -> tuple[Work, Work]:
    return case.begin("reboot", case.vms[2], run=f"{case.path} member"), case.begin("suspend")


async def _under_way(case: Case) -> None:
    case.grant = (await case.driver.database.run_transaction(case.begin("suspend"))).grant


async def _landing_and_abandon(case: Case) -> tuple[Work, Work]:
    await _under_way(case)
    return case.land("Suspended"), case.abandon()


async def _abandon_and_landing(case: Case) -> tuple[Work, Work]:
    await _under_way(case)
    return case.abandon(), case.land("Suspended")


async def _landing_and_takeover(case: Case) -> tuple[Work, Work]:
    await _under_way(case)
    return case.land("Suspended"), case.begin("reboot", run=f"{case.path} later")


async def _takeover_and_landing(case: Case) -> tuple[Work, Work]:
    await _under_way(case)
    return case.begin("reboot", run=f"{case.path} later"), case.land("Suspended")


async def _end_and_landing(case: Case) -> tuple[Work, Work]:
    await _under_way(case)
    return case.finish(), case.land("Suspended")


async def _landing_and_end(case: Case) -> tuple[Work, Work]:
    await _under_way(case)
    return case.land("Suspended"), case.finish()


async def _end_and_abandon(case: Case) -> tuple[Work, Work]:
    await _under_way(case)
    return case.finish(), case.abandon()


async def _abandon_and_end(case: Case) -> tuple[Work, Work]:
    await _under_way(case)
    return case.abandon(), case.finish()


async def _end_and_survey(case: Case) -> tuple[Work, Work]:
    await _under_way(case)
    await case.driver.database.run_transaction(case.land("Suspended", slice(0, 4)))
    return case.finish(), case.correct(case.vms[0], "Suspended", "Running")


async def _two_landings(case: Case) -> tuple[Work, Work]:
    await _under_way(case)
    return case.land("Suspended", slice(0, 4)), case.land("Running", slice(1, 5))


async def _step_and_abandon(case: Case) -> tuple[Work, Work]:
    await _under_way(case)
    move = Move(path=case.vms[0], to="Suspended", action="suspend", actor="Cloud")
    step = Step(path=case.path, epoch=case.granted.epoch, at=NOON, moves=[move])
    return partial(steps.apply_step, hooks=HOOKS, step=step), case.abandon()


async def _recovery_and_landing(case: Case) -> tuple[Work, Work]:
    """The action's line says that it has ended; its VMs were left under way, and one of them comes to rest."""
    await _under_way(case)
    wrong = "UPDATE actions SET ended_at = began_at, outcome = '{}' WHERE epoch = :e"
    told = {"e": case.granted.epoch}
    await case.driver.database.run_transaction(lambda connection: connection.execute(sa.text(wrong), told))
    path, epoch = case.vms[0], case.granted.epoch
    left = StuckItem(path=path, owner="", run="", action="suspend", since=NOON, status="Suspending", epoch=epoch)
    return partial(healing.heal_stuck_item, hooks=HOOKS, suspect=left, at=NOON, message="gone"), case.land(
        "Suspended", slice(0, 1)
    )


CASES: list[Prepare] = [
    _group_and_survey,
    _group_and_survey_that_makes_one_eligible,
    _group_and_member,
    _member_and_group,
    _landing_and_abandon,
    _abandon_and_landing,
    _landing_and_takeover,
    _takeover_and_landing,
    _end_and_landing,
    _landing_and_end,
    _end_and_abandon,
    _abandon_and_end,
    _end_and_survey,
    _two_landings,
    _step_and_abandon,
    _recovery_and_landing,
]


@pytest.mark.parametrize("prepare", CASES, ids=lambda each: each.__name__.strip("_"))
async def test_whatever_comes_between_two_statements_the_end_is_one_of_the_two_orders(
    pair: Pair, prepare: Prepare
) -> None:
    ends = [await _end(pair, prepare, f"{name}-first", name) for name in ("one", "two")]
    for hold in range(1, 100):
        case = await _case(pair[0], f"hold-{hold}")
        first, second = await prepare(case)
        if interleave(pair, first, second, hold) is None:
            assert hold > 3
            return
        assert await _seen(case) in ends, f"held after statement {hold}"
    raise AssertionError("it never ends")


async def _case(driver: StoreDriver, name: str) -> Case:
    case = Case(driver, f"{NS}:mci:{name}")
    await driver.make(case.path, group(size=SIZE))
    return case


async def _end(pair: Pair, prepare: Prepare, name: str, order: str) -> object:
    """What becomes of it if the two run one after the other."""
    case = await _case(pair[0], name)
    works = await prepare(case)
    for work in works if order == "one" else reversed(works):
        await pair[0].database.run_transaction(work)
    return await _seen(case)


async def _seen(case: Case) -> object:
    """Statuses, locks, open and ended actions and the grants kept, without what differs from try to try; all legal."""
    driver = case.driver
    kept = await driver.inventory.check_store_invariants(case.path)
    assert not kept.findings, kept.findings
    held = sorted((hold.path.removeprefix(case.path), hold.mode, hold.action) for hold in await _held(case))
    actions = await _rows(driver, "SELECT * FROM actions WHERE path LIKE :p ORDER BY epoch", p=f"{case.path}%")
    ends = [
        (row.action, row.grant["targets"], row.grant["skipped"], row.outcome and row.outcome.get("result"))
        for row in actions
    ]
    done = [row.outcome and (row.outcome.get("done"), row.outcome.get("failed")) for row in actions]
    return await driver.statuses(case.path), held, sorted(map(repr, ends)), sorted(map(repr, done))


async def _held(case: Case) -> list[Any]:
    return [hold for hold in await case.driver.inventory.list_locks(case.path) if hold.path.startswith(case.path)]


async def _rows(driver: StoreDriver, query: str, **which: Any) -> Any:
    return await driver.database.run_transaction(lambda connection: connection.execute(sa.text(query), which).all())


async def test_a_queue_that_is_closed_while_somebody_joins_knows_of_them(pair: Pair) -> None:
    """A request that is not among those waited for is refused: nobody waits unknown."""
    for hold in range(1, 20):
        case = await _case(pair[0], f"line-{hold}")
        order = QueueCommand(path=case.path, run=f"drain-{hold}", at=NOON)
        done = interleave(pair, partial(waitqueue.close_wait_queue, order=order), case.begin("suspend"), hold)
        if done is None:
            assert hold > 2
            return
        ahead, admission = done
        waited_for = [holder.owner for holder in ahead]
        assert (waited_for == [case.path]) == (admission.grant is not None), f"held after statement {hold}"
        closed = [h for h in await pair[0].inventory.list_locks(case.path) if h.mode is LockMode.CLOSED]
        assert [hold.owner for hold in closed] == [wire.companion_id(case.path, wire.DRAIN)]
