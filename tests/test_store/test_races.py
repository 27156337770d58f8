"""Races of many threads and connections, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from threading import Barrier
from typing import TypeVar

import pytest
import sqlalchemy as sa

from domain.errors import Category
from domain.locks import LockMode
from domain.model import ActionEnding, ActionResult, Admission, BeginRequest, Grant, Outcome, TargetLanding
from domain.waitqueue import QueueCommand
from store import begin, finish, land, recovery, waitqueue
from store.migrate import migrate_schema
from store.schema import actions
from tests.patience import PATIENCE
from tests.test_store.driver import EVERYBODY, FRONT_1, FRONT_2, HOOKS, NOON, WEB, StoreDriver, blocked, claim, group

T = TypeVar("T")

MANY = 50


def together(scenes: list[StoreDriver], works: list[Callable[[sa.Connection], T]]) -> list[T]:
    """Run transactions at the same moment, each in a thread of its own, the scenes taking turns."""
    gate = Barrier(len(works))

    def one(number: int, work: Callable[[sa.Connection], T]) -> T:
        gate.wait()
        return scenes[number % len(scenes)].database.run_transaction_blocking(work)

    with ThreadPoolExecutor(len(works)) as threads:
        return list(threads.map(one, range(len(works)), works))


def beginning(asked: BeginRequest) -> Callable[[sa.Connection], Admission]:
    return partial(begin.begin_action, hooks=HOOKS, access=EVERYBODY, claim=asked)


def granted(admissions: list[Admission]) -> list[Grant]:
    return [admission.grant for admission in admissions if admission.grant]


async def test_fifty_runs_on_one_free_object_leave_one_holder_and_one_open_action(
    driver: StoreDriver, rival: StoreDriver
) -> None:
    """Each run is the only open one when it begins, as Temporal has it: a later one knows the earlier to be dead."""
    await driver.make()
    works = [beginning(claim(FRONT_1, "suspend", run=f"r{n}")) for n in range(MANY)]
    grants = granted(together([driver, rival], works))
    assert len({grant.epoch for grant in grants}) == MANY
    last = max(grants, key=lambda grant: grant.epoch)
    dump = await driver.dump()
    assert len(dump["locks"]) == 3
    ended_at = list(actions.c.keys()).index("ended_at")
    assert [row for row in dump["actions"] if row[ended_at] is None] == [dump["actions"][-1]]  # all others have ended
    assert (await driver.inventory.read_object(FRONT_1)).epoch == last.epoch
    told = await driver.told(FRONT_1)
    assert told[2:] == [("suspend", "Running", "Suspending"), ("heal", "Suspending", "Running")] * (MANY - 1) + [
        ("suspend", "Running", "Suspending")
    ]


async def test_the_same_run_asked_fifty_times_at_once_is_granted_once(driver: StoreDriver, rival: StoreDriver) -> None:
    await driver.make()
    asked = claim(WEB, "suspend", run="r1", request_id="q1")
    grants = granted(together([driver, rival], [beginning(asked)] * MANY))
    assert len(grants) == MANY
    assert all(grant == grants[0] for grant in grants)
    assert len((await driver.dump())["actions"]) == 2
    assert len(await driver.told(FRONT_1)) == 3


async def test_fifty_siblings_all_go_through(driver: StoreDriver, rival: StoreDriver) -> None:
    await driver.make(WEB, group(size=MANY))
    paths = [f"{WEB}:vm:front-{n + 1}" for n in range(MANY)]
    admissions = together([driver, rival], [beginning(claim(path, "suspend")) for path in paths])
    assert len(granted(admissions)) == MANY
    held = await driver.inventory.list_locks(WEB)
    assert {hold.path for hold in held if hold.mode is LockMode.X} == set(paths)
    assert sum(hold.path == WEB and hold.mode is LockMode.IX for hold in held) == MANY


async def test_fifty_creations_in_one_namespace_all_go_through(driver: StoreDriver, rival: StoreDriver) -> None:
    spec = {"subGroups": [group()]}
    works = [beginning(claim(f"ns:default:mci:m{n}", "create", spec=spec)) for n in range(MANY)]
    assert len(granted(together([driver, rival], works))) == MANY
    assert len(await driver.inventory.list_objects("mci", limit=1_000)) == MANY


@pytest.mark.parametrize("attempt", range(3))
async def test_a_group_against_its_members_lets_exactly_one_side_win(
    driver: StoreDriver, rival: StoreDriver, attempt: int
) -> None:
    await driver.make(WEB, group(size=20))
    paths = [f"{WEB}:vm:front-{n + 1}" for n in range(20)]
    paths.insert(7 * attempt, WEB)
    asked = [claim(path, "suspend", run=path) for path in paths]
    admissions = dict(zip(paths, together([driver, rival], [beginning(claim) for claim in asked]), strict=True))
    group_won = admissions[WEB].grant is not None
    members = [path for path in paths if path != WEB]
    winners = {path for path in members if admissions[path].grant}
    assert winners == (set() if group_won else set(members))
    for path, admission in admissions.items():
        if admission.grant:
            continue
        assert admission.refusal
        assert admission.refusal.category is Category.CONFLICT
        named = {holder.owner for holder in admission.refusal.holders}
        assert named == {WEB} if path != WEB else named and named <= winners
    expected = {WEB} if group_won else winners
    assert {hold.owner for hold in await driver.inventory.list_locks()} == expected
    assert set((await driver.statuses()).values()) == {"Suspending"}


async def test_finishing_fifty_times_at_once_ends_the_action_once(driver: StoreDriver, rival: StoreDriver) -> None:
    await driver.make()
    grant = await driver.grant(WEB, "suspend")
    ends = [
        ActionEnding(epoch=grant.epoch, run=grant.run, path=WEB, result=ActionResult.FAILED, message=f"by {n}", at=NOON)
        for n in range(MANY)
    ]
    outcomes = together([driver, rival], [partial(finish.finish_action, hooks=HOOKS, ending=ending) for ending in ends])
    assert all(outcome == outcomes[0] for outcome in outcomes)
    assert len(await driver.told(FRONT_1)) == 4


async def test_landing_the_same_twenty_times_at_once_lands_it_once(driver: StoreDriver, rival: StoreDriver) -> None:
    await driver.make()
    grant = await driver.grant(WEB, "suspend")
    alike = [TargetLanding(FRONT_1, "Suspended"), TargetLanding(FRONT_2, "Suspended")]
    work = partial(land.land_targets, hooks=HOOKS, chunk=grant.chunks[0], landings=alike, at=NOON)
    assert sorted(together([driver, rival], [work] * 20)) == [0] * 19 + [2]
    assert len(await driver.told(FRONT_1)) == 4


async def test_ending_against_abandoning_gives_one_end(driver: StoreDriver, rival: StoreDriver) -> None:
    await driver.make(WEB, group(size=10))
    for n in range(10):
        path = f"{WEB}:vm:front-{n + 1}"
        grant = await driver.grant(path, "suspend", run=f"r{n}")
        ending = ActionEnding(epoch=grant.epoch, run=grant.run, path=path, result=ActionResult.SUCCEEDED, at=NOON)
        works: list[Callable[[sa.Connection], Outcome | int]] = [
            partial(finish.finish_action, hooks=HOOKS, ending=ending),
            partial(recovery.abandon_run, hooks=HOOKS, owner=path, run=f"r{n}", at=NOON, message="gone"),
        ]
        outcome, healed = together([driver, rival], works)
        assert isinstance(outcome, Outcome)
        assert await driver.finish(grant) == outcome  # what was answered is what is kept
        end = ("heal", "Suspending", "Running") if healed else ("suspend", "Suspending", "Failed")
        assert (await driver.told(path))[3:] == [end]


async def test_many_tasks_of_one_process_share_one_inventory(driver: StoreDriver) -> None:
    """The same through the async methods, as activities call them."""
    await driver.make(WEB, group(size=MANY))
    paths = [f"{WEB}:vm:front-{n + 1}" for n in range(MANY)]
    outcomes = await asyncio.gather(*(driver.act(path, "suspend", "Suspended") for path in paths))
    assert {outcome.status for outcome in outcomes} == {"Suspended"}
    assert await driver.inventory.list_locks() == []
    assert await driver.status(WEB) == f"Suspended:{MANY} (R:0/{MANY})"


# PostgreSQL only: there a transaction can be in the middle of another one. Both orders are forced, not hoped for.


async def overtaken(
    pair: tuple[StoreDriver, StoreDriver],
    first: Callable[[sa.Connection], object],
    second: Callable[[sa.Connection], T],
) -> T:
    """`second` starts while `first` is done but not committed, and is seen to wait for it."""
    one, two = pair
    with one.database.engine.begin() as connection:
        first(connection)
        late = asyncio.create_task(two.database.run_transaction(second))
        while not await asyncio.to_thread(blocked, one):
            assert not late.done(), "it did not wait"
    return await late


async def test_a_landing_that_waited_for_a_take_over_lands_nothing(pair: tuple[StoreDriver, StoreDriver]) -> None:
    driver = pair[0]
    await driver.make()
    old = await driver.grant(WEB, "suspend", run="r1")
    alike = [TargetLanding(FRONT_1, "Suspended"), TargetLanding(FRONT_2, "Suspended")]
    landed = await overtaken(
        pair,
        beginning(claim(WEB, "reboot", run="r2")),
        partial(land.land_targets, hooks=HOOKS, chunk=old.chunks[0], landings=alike, at=NOON),
    )
    assert landed == 0
    assert await driver.statuses() == {"front-1": "Rebooting", "front-2": "Rebooting"}
    assert (await driver.told(FRONT_1))[2:] == [
        ("suspend", "Running", "Suspending"),
        ("heal", "Suspending", "Running"),
        ("reboot", "Running", "Rebooting"),
        ("suspend", "None", "Suspended"),
    ]
    assert (await driver.last(FRONT_1)).message == "ignored: the action no longer owns the object"


async def test_an_abandon_that_waited_for_the_end_leaves_it_as_it_is(pair: tuple[StoreDriver, StoreDriver]) -> None:
    driver = pair[0]
    await driver.make()
    grant = await driver.grant(WEB, "suspend", run="r1")
    await driver.land(grant, "Suspended")
    ending = ActionEnding(epoch=grant.epoch, run=grant.run, path=WEB, result=ActionResult.SUCCEEDED, at=NOON)
    healed = await overtaken(
        pair,
        partial(finish.finish_action, hooks=HOOKS, ending=ending),
        partial(recovery.abandon_run, hooks=HOOKS, owner=WEB, run="r1", at=NOON, message="gone"),
    )
    assert healed == 0
    assert (await driver.finish(grant)).result is ActionResult.SUCCEEDED
    assert (await driver.told(WEB))[-1] == ("suspend", "Suspending", "Running")


async def test_a_begin_that_waited_for_one_above_is_refused(pair: tuple[StoreDriver, StoreDriver]) -> None:
    driver = pair[0]
    await driver.make()
    admission = await overtaken(
        pair, beginning(claim(WEB, "suspend", run="r1")), beginning(claim(FRONT_1, "reboot", run="r2"))
    )
    assert admission.refusal
    assert [holder.run for holder in admission.refusal.holders] == ["r1"]


PLACE = "aws/eu-1"
LASTS = timedelta(seconds=PATIENCE)


@pytest.fixture
def strict_pair(empty_postgres: Callable[[], str]) -> Iterator[tuple[StoreDriver, StoreDriver]]:
    """On a server whose transactions see nothing that was committed after they began, unless told otherwise."""
    url = empty_postgres()
    scenes = (StoreDriver(url), StoreDriver(url))
    migrate_schema(scenes[0].database)
    name = sa.make_url(url).database
    stricter = sa.text(f"ALTER DATABASE {name} SET default_transaction_isolation TO 'repeatable read'")
    scenes[0].database.run_transaction_blocking(lambda connection: connection.execute(stricter))
    scenes[0].database.engine.dispose()  # the next connections have the new default
    yield scenes
    for driver in scenes:
        driver.close()


async def test_the_servers_default_isolation_does_not_matter(strict_pair: tuple[StoreDriver, StoreDriver]) -> None:
    """Who waited decides on what is now, not on what was when its transaction began."""
    await strict_pair[0].make()
    order = QueueCommand(path=WEB, run="r2", at=NOON)
    ahead = await overtaken(
        strict_pair, beginning(claim(WEB, "suspend", run="r1")), partial(waitqueue.close_wait_queue, order=order)
    )
    assert [holder.run for holder in ahead] == ["r1"]
