"""Between begin and finish: targets land in bulk, objects move by steps, and a fenced-off action writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from domain.model import Grant, Move, Step, TargetLanding
from domain.statetable import Actor, LineEffect
from store.schema import history
from tests.test_store.driver import FRONT_1, FRONT_2, NOON, WEB, Dump, StoreDriver, group


def kept(dump: Dump) -> Dump:
    """Everything but the history, and the keys of its ignored lines."""
    return {name: rows for name, rows in dump.items() if name not in ("history", "done_once")}


async def ignored_lines(driver: StoreDriver) -> list[tuple[str, str]]:
    """The path and the status of every ignored line."""
    wanted = sa.select(history.c.path, history.c.to).where(history.c.effect == LineEffect.IGNORED.value)
    rows = await driver.database.run_transaction(lambda connection: connection.execute(wanted).all())
    return sorted((path, to) for path, to in rows)


async def test_targets_land_where_the_cloud_brought_them(driver: StoreDriver) -> None:
    await driver.make()
    grant = await driver.grant(WEB, "suspend")
    assert await driver.land(grant, "Suspended") == 2
    view = await driver.inventory.read_object(WEB, members=True)
    for vm in view.members:
        assert (vm.status, vm.target_action, vm.target_status) == ("Suspended", "None", "None")
        assert (vm.previous_status, vm.error) == ("Running", "")
        line = await driver.last(vm.path)
        assert (line.actor, line.action, line.source, line.to) == ("Cloud", "suspend", "Suspending", "Suspended")
    assert view.phase == "Suspending"  # the group's own action goes on until it is finished


async def test_a_landing_can_tell_what_is_known_now_and_what_went_wrong(driver: StoreDriver) -> None:
    grant = await driver.grant(WEB, "create", spec={"subGroups": [group(size=3)]})
    landings = [
        TargetLanding(FRONT_1, "Running", info={"generation": grant.epoch, "cloudId": "i-1"}),
        TargetLanding(FRONT_2, "Failed", error="no\nroom"),
        TargetLanding(f"{WEB}:vm:front-3", "Failed", info={"seen": True}, error="x" * 5_000),
    ]
    assert await driver.inventory.land_targets(grant.chunks[0], landings, driver.now()) == 3
    one, two, three = (await driver.inventory.read_object(WEB, members=True)).members
    assert (one.status, one.info, one.error) == ("Running", {"generation": grant.epoch, "cloudId": "i-1"}, "")
    assert (two.status, two.info, two.error) == ("Failed", {"generation": grant.epoch}, "no room")
    assert (three.status, three.info, len(three.error)) == ("Failed", {"seen": True}, 500)
    assert (await driver.last(FRONT_2)).message == "no room"


async def test_a_retry_finds_only_what_is_left_to_do(driver: StoreDriver) -> None:
    grant = await driver.grant(WEB, "create", spec={"subGroups": [group(size=3)]})
    [chunk] = grant.chunks
    await driver.inventory.land_targets(chunk, [TargetLanding(FRONT_2, "Running")], driver.now())
    left = [target.path for target in await driver.inventory.list_targets(chunk)]
    assert left == [FRONT_1, f"{WEB}:vm:front-3"]


@pytest.mark.parametrize("told", [{}, {"info": {"cloudId": "i-1"}}], ids=["plain", "telling"])
async def test_landing_twice_is_landing_once(driver: StoreDriver, told: dict[str, Any]) -> None:
    await driver.make()
    grant = await driver.grant(WEB, "suspend")
    landings = [TargetLanding(path, "Suspended", **told) for path in (FRONT_1, FRONT_2)]
    assert await driver.inventory.land_targets(grant.chunks[0], landings, driver.now()) == 2
    before = await driver.dump()
    assert await driver.inventory.land_targets(grant.chunks[0], landings, driver.now()) == 0
    assert await driver.dump() == before


@pytest.mark.parametrize("to", ["Resuming", "Terminating", "Sleepwalking", "None", ""])
@pytest.mark.parametrize("told", [{}, {"error": "why"}, {"info": {}}], ids=["plain", "error", "info"])
async def test_a_landing_where_no_row_leads_is_ignored_and_recorded(
    driver: StoreDriver, to: str, told: dict[str, Any]
) -> None:
    await driver.make()
    grant = await driver.grant(WEB, "suspend")
    before = await driver.dump()
    assert await driver.inventory.land_targets(grant.chunks[0], [TargetLanding(FRONT_1, to, **told)], driver.now()) == 0
    assert kept(await driver.dump()) == kept(before)
    line = await driver.last(FRONT_1)
    assert (line.source, line.to, line.message) == ("Suspending", to, "ignored: no row leads there")
    again = [TargetLanding(FRONT_2, to, **told), TargetLanding(FRONT_1, to, **told)]  # a retry, which got further
    assert await driver.inventory.land_targets(grant.chunks[0], again, driver.now()) == 0
    assert await ignored_lines(driver) == [(FRONT_1, to), (FRONT_2, to)]


@pytest.mark.parametrize("told", [{}, {"error": "why"}, {"info": {}}], ids=["plain", "error", "info"])
async def test_a_stale_epoch_lands_nothing_and_is_recorded_as_ignored(
    driver: StoreDriver, told: dict[str, Any]
) -> None:
    await driver.make()
    stale = await driver.grant(WEB, "suspend", run="r1")
    fresh = await driver.grant(WEB, "reboot", run="r2")
    before = await driver.dump()
    assert (
        await driver.inventory.land_targets(
            stale.chunks[0], [TargetLanding(FRONT_1, "Suspended", **told)], driver.now()
        )
        == 0
    )
    assert kept(await driver.dump()) == kept(before)
    line = await driver.last(FRONT_1)
    assert (line.action, line.to, line.message) == (
        "suspend",
        "Suspended",
        "ignored: the action no longer owns the object",
    )
    assert line.run == "r1"
    again = [TargetLanding(FRONT_2, "Suspended", **told), TargetLanding(FRONT_1, "Suspended", **told)]
    assert await driver.inventory.land_targets(stale.chunks[0], again, driver.now()) == 0
    assert await ignored_lines(driver) == [(FRONT_1, "Suspended"), (FRONT_2, "Suspended")]
    assert await driver.land(fresh, "Running") == 2


async def test_the_targets_of_a_stale_action_are_gone(driver: StoreDriver) -> None:
    await driver.make()
    stale = await driver.grant(WEB, "suspend")
    fresh = await driver.grant(WEB, "reboot")
    assert await driver.inventory.list_targets(stale.chunks[0]) == []
    assert len(await driver.inventory.list_targets(fresh.chunks[0])) == 2


async def test_landing_what_does_not_exist_is_ignored_and_recorded(driver: StoreDriver) -> None:
    await driver.make()
    grant = await driver.grant(WEB, "suspend")
    landings = [TargetLanding(FRONT_1, "Suspended"), TargetLanding(f"{WEB}:vm:ghost", "Suspended")]
    assert await driver.inventory.land_targets(grant.chunks[0], landings, driver.now()) == 1
    assert (await driver.last(f"{WEB}:vm:ghost")).message == "ignored: the action no longer owns the object"


# Steps.


def step(grant: Grant, to: str, actor: str = Actor.CLOUD, **changes: Any) -> Step:
    path = changes.get("path", FRONT_1)
    moves = [Move(path=path, to=to, actor=actor, message="seen")]
    return Step(path=path, epoch=changes.get("epoch", grant.epoch), at=NOON, moves=moves)


async def test_a_step_that_a_row_allows_is_made_and_recorded(driver: StoreDriver) -> None:
    await driver.make()
    grant = await driver.grant(FRONT_1, "suspend")
    assert (await driver.inventory.apply_step(step(grant, "Undefined"))).made
    assert await driver.status(FRONT_1) == "Undefined"
    line = await driver.last(FRONT_1)
    assert (line.actor, line.source, line.to, line.message) == ("Cloud", "Suspending", "Undefined", "seen")


async def test_a_step_made_twice_is_made_once(driver: StoreDriver) -> None:
    await driver.make()
    grant = await driver.grant(FRONT_1, "suspend")
    await driver.inventory.apply_step(step(grant, "Running"))
    before = await driver.dump()
    assert (await driver.inventory.apply_step(step(grant, "Running"))).made
    assert await driver.dump() == before


async def test_an_action_whose_object_came_to_rest_by_a_step_can_end(driver: StoreDriver) -> None:
    await driver.make()
    grant = await driver.grant(FRONT_1, "suspend")
    await driver.inventory.apply_step(step(grant, "Running"))
    outcome = await driver.finish(grant)
    view = await driver.inventory.read_object(FRONT_1)
    assert (view.status, view.target_action, view.target_status) == ("Running", "None", "None")
    assert outcome.status == "Running"


@pytest.mark.parametrize(
    ("to", "actor", "changes", "why"),
    [
        ("Running", Actor.USER, {}, "no row leads there"),
        ("Running", "Stranger", {}, "no row leads there"),
        ("Failed", Actor.CLOUD, {}, "no row leads there"),
        ("Sleepwalking", Actor.CLOUD, {}, "no row leads there"),
        ("Running", Actor.CLOUD, {"epoch": 1}, "the action no longer owns the object"),
        ("Running", Actor.CLOUD, {"epoch": 99}, "the action no longer owns the object"),
        ("None", Actor.CLOUD, {"epoch": 1}, "the action no longer owns the object"),
        ("Running", Actor.CLOUD, {"path": f"{WEB}:vm:ghost"}, "the action no longer owns the object"),
    ],
)
async def test_a_step_that_is_forbidden_or_stale_changes_nothing_and_is_recorded(
    driver: StoreDriver, to: str, actor: str, changes: dict[str, Any], why: str
) -> None:
    await driver.make()
    grant = await driver.grant(FRONT_1, "suspend")
    before = await driver.dump()
    forbidden = step(grant, to, actor, **changes)
    assert not (await driver.inventory.apply_step(forbidden)).made
    assert kept(await driver.dump()) == kept(before)
    line = await driver.last(forbidden.path)
    assert (line.actor, line.to, line.message) == (actor, to, f"ignored: {why}; seen")
    assert not (await driver.inventory.apply_step(forbidden)).made  # by an activity that is tried again
    assert await ignored_lines(driver) == [(forbidden.path, to)]


# Size.


@contextmanager
def counted(driver: StoreDriver) -> Iterator[list[str]]:
    """The statements that are sent to the database meanwhile; one for many rows counts once."""
    sent: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        sent.append(statement)

    sa.event.listen(driver.database.engine, "before_cursor_execute", note)
    yield sent
    sa.event.remove(driver.database.engine, "before_cursor_execute", note)


async def statements_for(driver: StoreDriver, name: str, size: int) -> tuple[int, int, int, int]:
    """How many statements it takes to begin, land (alike and telling) and finish an action on so many VMs."""
    path = f"ns:default:mci:{name}"
    spec = {"subGroups": [group(size=size)]}
    with counted(driver) as create:
        grant = await driver.grant(path, "create", spec=spec)
    landings = [
        TargetLanding(target.path, "Running", info={"cloudId": target.path})
        for chunk in grant.chunks
        for target in await driver.inventory.list_targets(chunk)
    ]
    with counted(driver) as telling:
        assert await driver.inventory.land_targets(grant.chunks[0], landings, driver.now()) == size
    await driver.finish(grant)
    grant = await driver.grant(path, "suspend")
    alike = [TargetLanding(landing.path, "Suspended") for landing in landings]
    with counted(driver) as landing:
        assert await driver.inventory.land_targets(grant.chunks[0], alike, driver.now()) == size
    with counted(driver) as finish:
        outcome = await driver.finish(grant)
    assert (outcome.done, outcome.failed) == (size, 0)
    return len(create), len(telling), len(landing), len(finish)


async def test_an_action_on_one_vm_looks_for_nothing_below_it(driver: StoreDriver) -> None:
    """What it can move is the VM alone, so its end does not search what the action left under way."""
    await driver.make(WEB, group(size=1))
    grant = await driver.grant(f"{WEB}:vm:{group()['name']}-1", "reboot")
    await driver.land(grant, "Running")
    with counted(driver) as finish:
        await driver.finish(grant)
    assert not [statement for statement in finish if "FROM locks WHERE" in statement and "SELECT" in statement], finish
    assert len(finish) <= 7, finish


async def test_five_thousand_vms_take_no_more_statements_than_five(driver: StoreDriver) -> None:
    few = await statements_for(driver, "few", 5)
    many = await statements_for(driver, "many", 5_000)
    # A creation has the most: begin and enrol. Two of its statements came with the lock on the place, which whoever
    # comes to it takes first: it is read, made if it is new, and read again, for each place and not for each VM. One
    # gives every new object its id for clients that know no paths. Two count the tenant's objects: the MCI and its VMs.
    assert max(few) <= 23
    # Some drivers cut one insert of very many rows into a few; never one statement per row.
    assert all(lot <= little + 12 for lot, little in zip(many, few, strict=True)), (few, many)
