"""Connections in the store: one holder at a time, removal by the last user, VMs enrolled once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
import sqlalchemy as sa

from domain.errors import Refused, Superseded
from domain.mci.messages import (
    AddVms,
    ConnectionLock,
    ConnectionLockRequest,
    LeavePlaceResult,
    PlaceRequirements,
    SurveyedVm,
    SurveyRequest,
    VmCorrection,
)
from domain.model import BeginRequest, Request
from store import dbtime
from store.mci.tables import connection_uses, connections
from store.schema import ActionRow, actions
from tests.patience import PATIENCE
from tests.test_store.driver import FRONT_1, NOON, NS, WEB, StoreDriver, group

PLACE = "aws/eu-1"
OTHER = f"{NS}:mci:other"
WANTS = PlaceRequirements(place=PLACE, specs=["small"], images=["ubuntu-24.04"])


LASTS = timedelta(seconds=PATIENCE)


EPOCHS = {"a": 7, "b": 9, "c": 11, "web": 13, "other": 15, "web-2": 17, **{f"h{n}": 100 + n for n in range(20)}}


def wish(mci: str) -> ConnectionLockRequest:
    """What an action on this MCI asks for; `open_actions` opens it."""
    return ConnectionLockRequest(NS, PLACE, f"{NS}:mci:{mci}", EPOCHS[mci], LASTS)


async def open_actions(driver: StoreDriver) -> None:
    """Actions that hold a place, without what else a begin does."""
    rows = [
        ActionRow(
            epoch, f"run-of-{mci}", f"{NS}:mci:{mci}", "create", False, "", "", "", "", NOON, None, {}, None, NOON, 0
        )
        for mci, epoch in EPOCHS.items()
    ]
    insert = sa.insert(actions).values([row._asdict() for row in rows])
    await driver.database.run_transaction(lambda connection: connection.execute(insert))


@pytest.fixture(autouse=True)
async def opened(driver: StoreDriver) -> None:
    await open_actions(driver)


async def held(driver: StoreDriver, mci: str) -> ConnectionLock:
    found = await driver.book.acquire_connection_lock(wish(mci))
    assert found
    return found


async def expired(driver: StoreDriver) -> None:
    """The hold of the place has lasted for too long, by the database's clock."""
    change = sa.update(connections).values(held_until=datetime.now(UTC) - timedelta(seconds=1))
    await driver.database.run_transaction(lambda connection: connection.execute(change))


async def begun(driver: StoreDriver, *paths: str) -> None:
    """MCIs that have begun and use the place, without a VM yet."""
    for path in paths:
        assert (await driver.begin(path, "create", spec={"subGroups": [group()]})).grant


async def prepared(driver: StoreDriver, holder: str = "a") -> None:
    mine = await held(driver, holder)
    for what in ("vnet", "securityGroup", "sshKey"):
        assert await driver.book.record_shared_resource(mine, LASTS, what, f"id-{what}")
    await driver.book.release_connection_lock(mine)


async def test_a_connection_has_one_holder_at_a_time(driver: StoreDriver) -> None:
    first = await held(driver, "a")
    assert (first.generation, first.resources) == (7, {})
    assert await driver.book.acquire_connection_lock(wish("b")) is None
    assert await driver.book.renew_connection_lock(first, LASTS), "it may go on holding"
    await driver.book.release_connection_lock(replace(first, epoch=first.epoch - 1))
    assert await driver.book.acquire_connection_lock(wish("b")) is None, "only the holder lets go"
    await driver.book.release_connection_lock(first)
    assert not await driver.book.renew_connection_lock(first, LASTS), "what was let go of is gone"
    second = await held(driver, "b")
    assert (second.generation, second.resources) == (9, {}), "made anew: a generation of its own"
    assert second.epoch > first.epoch


async def test_a_holder_that_died_is_followed_by_one_that_goes_on_where_it_stopped(driver: StoreDriver) -> None:
    dead = await held(driver, "a")
    assert await driver.book.record_shared_resource(dead, LASTS, "vnet", "v-1")
    assert await driver.book.record_shared_resource(dead, LASTS, "securityGroup", "")
    assert await driver.book.acquire_connection_lock(wish("b")) is None
    await expired(driver)
    heir = await held(driver, "b")
    assert (heir.generation, heir.resources) == (7, {"vnet": "v-1", "securityGroup": ""})
    assert not await driver.book.record_shared_resource(dead, LASTS, "securityGroup", "s-1"), (
        "the dead one writes nothing any more"
    )
    assert await driver.book.read_shared_resources(NS, PLACE) == {"vnet": "v-1", "securityGroup": ""}


async def test_a_hold_that_was_lost_does_not_come_back_when_it_is_renewed(driver: StoreDriver) -> None:
    """A worker that froze while it removed things wakes up: another MCI counts on them by now."""
    await prepared(driver)
    frozen = await held(driver, "a")
    await expired(driver)
    await driver.book.release_connection_lock(await held(driver, "b"))
    assert not await driver.book.renew_connection_lock(frozen, LASTS)
    assert not await driver.book.record_shared_resource(frozen, LASTS, "sshKey", "")
    assert not await driver.book.finish_leaving_place(frozen, wish("a"))
    assert (await driver.book.read_shared_resources(NS, PLACE))["sshKey"] == "id-sshKey"


async def test_another_worker_with_the_same_work_takes_it_over_at_once_and_the_first_is_late(
    driver: StoreDriver,
) -> None:
    first = await held(driver, "a")
    second = await held(driver, "a")
    assert second.epoch > first.epoch
    assert not await driver.book.record_shared_resource(first, LASTS, "vnet", "v-1")
    assert await driver.book.record_shared_resource(second, LASTS, "vnet", "v-1")


async def test_a_hold_is_reckoned_by_the_clock_of_the_database(driver: StoreDriver, rival: StoreDriver) -> None:
    """Workers whose clocks are hours apart hold for the same time."""
    before = await rival.database.run_transaction(dbtime.read_database_time)
    await held(driver, "a")
    [until] = await driver.database.run_transaction(
        lambda connection: connection.execute(sa.select(connections.c.held_until)).one()
    )
    after = await rival.database.run_transaction(dbtime.read_database_time)
    assert before <= until - LASTS <= after
    assert await rival.book.acquire_connection_lock(wish("b")) is None


async def test_an_action_that_is_over_takes_no_hold_and_leaves_no_place(driver: StoreDriver) -> None:
    """Its worker was frozen between its proof and this transaction."""
    await prepared(driver)
    old = (await driver.begin(WEB, "create", spec={"subGroups": [group()]})).grant
    assert old
    late = replace(wish("web"), epoch=old.epoch)
    mine = await driver.book.acquire_connection_lock(late)
    assert mine
    await driver.inventory.abandon_run(WEB, old.run, NOON, "gone")
    before = await _rows_of_places(driver)
    calls = (
        partial(driver.book.acquire_connection_lock, late),
        partial(driver.book.leave_place, late),
        partial(driver.book.finish_leaving_place, mine, late),
    )
    for call in calls:
        with pytest.raises(Superseded, match="is over"):
            await call()
    assert await _rows_of_places(driver) == before


async def _rows_of_places(driver: StoreDriver) -> list[tuple[object, ...]]:
    def read(connection: sa.Connection) -> list[tuple[object, ...]]:
        return [tuple(row) for table in (connections, connection_uses) for row in connection.execute(sa.select(table))]

    return await driver.database.run_transaction(read)


async def test_of_many_that_want_to_hold_exactly_one_does(driver: StoreDriver, rival: StoreDriver) -> None:
    sides = [driver, rival] * 10
    got = await asyncio.gather(
        *(side.book.acquire_connection_lock(wish(f"h{number}")) for number, side in enumerate(sides))
    )
    assert len([found for found in got if found]) == 1


async def test_an_mci_finds_a_prepared_place_ready_unless_somebody_is_at_it(driver: StoreDriver) -> None:
    await prepared(driver)
    grant = (await driver.begin(WEB, "create", spec={"subGroups": [group()]})).grant
    assert grant
    assert grant.details == {"places": [PLACE], "prepare": []}
    await held(driver, "b")
    second = (await driver.begin(OTHER, "create", spec={"subGroups": [group()]})).grant
    assert second
    assert second.details["prepare"] == [PLACE]


async def test_the_last_one_to_leave_removes_what_is_shared(driver: StoreDriver) -> None:
    await prepared(driver)
    await begun(driver, WEB, OTHER)
    assert await driver.book.leave_place(wish("web")) is LeavePlaceResult.SHARED
    assert await driver.book.leave_place(wish("web")) is LeavePlaceResult.SHARED, "asked again, it has left already"
    mine = await driver.book.leave_place(wish("other"))
    assert isinstance(mine, ConnectionLock)
    assert await driver.book.acquire_connection_lock(wish("c")) is None, "it holds the place while it removes"
    for what in ("sshKey", "securityGroup", "vnet"):
        assert await driver.book.record_shared_resource(mine, LASTS, what, None)
    assert await driver.book.finish_leaving_place(mine, wish("other"))
    assert await driver.book.read_shared_resources(NS, PLACE) == {}
    assert (await held(driver, "c")).generation == EPOCHS["c"]


async def test_one_that_comes_while_the_last_one_leaves_prepares_anew(driver: StoreDriver) -> None:
    await prepared(driver)
    await begun(driver, WEB)
    assert isinstance(await driver.book.leave_place(wish("web")), ConnectionLock)
    grant = (await driver.begin(OTHER, "create", spec={"subGroups": [group()]})).grant
    assert grant
    assert grant.details["prepare"] == [PLACE]
    assert await driver.book.leave_place(wish("other")) in (LeavePlaceResult.SHARED, None)


async def test_nobody_leaves_a_place_while_it_has_vms(driver: StoreDriver) -> None:
    await driver.make()
    assert await driver.book.leave_place(wish("web")) is LeavePlaceResult.OCCUPIED


async def test_a_place_that_somebody_is_at_is_left_later(driver: StoreDriver) -> None:
    await begun(driver, WEB)
    await held(driver, "a")
    assert await driver.book.leave_place(wish("web")) is None


async def test_what_a_cloud_was_seen_to_offer_is_believed_for_a_day(driver: StoreDriver) -> None:
    assert await driver.book.list_unverified_requirements([WANTS], NOON) == [WANTS]
    await driver.book.record_verified_requirements(WANTS, NOON)
    more = WANTS.model_copy(update={"specs": ["large", "small"]})
    assert await driver.book.list_unverified_requirements([WANTS, more], NOON + timedelta(hours=23)) == [more]
    assert await driver.book.list_unverified_requirements([WANTS], NOON + timedelta(hours=25)) == [WANTS]


async def test_a_look_at_whether_it_would_be_allowed_uses_no_place(driver: StoreDriver) -> None:
    before = await driver.dump()
    claim = BeginRequest(request=Request(path=WEB, action="create", spec={"subGroups": [group()]}), run="x", at=NOON)
    assert (await driver.inventory.preview_admission(claim)).grant
    assert await driver.dump() == before


async def test_vms_are_born_once_and_only_by_an_action_that_is_open(driver: StoreDriver) -> None:
    grant = await driver.grant(WEB, "create", spec={"subGroups": [group(size=3)]})
    before = await driver.dump()
    assert await driver.born(grant) == grant
    assert await driver.dump() == before
    await driver.land(grant, "Running")
    await driver.finish(grant)
    before = await driver.dump()
    with pytest.raises(Refused, match="no longer held by this action"):
        await driver.book.add_vms_to_action(AddVms(path=WEB, epoch=grant.epoch, action="create", at=NOON))
    assert await driver.dump() == before


async def test_thousands_of_vms_are_born_in_a_few_statements(driver: StoreDriver) -> None:
    grant = await driver.grant(WEB, "create", spec={"subGroups": [group(size=5_000)]})
    assert grant.targets == 5_000
    assert [chunk.count for chunk in grant.chunks] == [500] * 10


async def test_a_survey_of_an_mci_that_is_not_there_is_refused(driver: StoreDriver) -> None:
    await driver.make()
    with pytest.raises(Refused, match="there is no such MCI"):
        await driver.book.plan_survey(SurveyRequest(path=OTHER))


async def test_a_correction_loses_against_an_action_that_came_between(driver: StoreDriver) -> None:
    await driver.make()
    plan = await driver.book.plan_survey(SurveyRequest(path=WEB))
    known = await driver.book.list_vms_in_status(plan.chunks[0], ["Running"])
    assert [vm.path for vm in known] == [FRONT_1, f"{WEB}:vm:front-2"]
    await driver.grant(FRONT_1, "reboot")
    told = [VmCorrection(vm, "Suspended", vm.info) for vm in known]
    assert [correction.known.path for correction in await driver.book.apply_corrections(told, NOON)] == [
        f"{WEB}:vm:front-2"
    ]
    assert await driver.statuses() == {"front-1": "Rebooting", "front-2": "Suspended"}
    stale = VmCorrection(SurveyedVm(FRONT_1, "Running", 0, "None", {}), "Suspended", {})
    assert await driver.book.apply_corrections([stale], NOON) == []


async def test_a_correction_leaves_an_mci_alone_that_an_action_is_at(driver: StoreDriver) -> None:
    """Also the VMs that the action skipped: what it counts must not change under it."""
    await driver.make()
    await driver.act(FRONT_1, "suspend", "Suspended")
    plan = await driver.book.plan_survey(SurveyRequest(path=WEB, reconcile=True))
    known = await driver.book.list_vms_in_status(plan.chunks[0], ["Suspended"])
    grant = await driver.grant(WEB, "reboot")
    told = [VmCorrection(vm, "Running", vm.info) for vm in known]
    assert await driver.book.apply_corrections(told, NOON) == []
    await driver.land(grant, "Running")
    await driver.finish(grant)
    assert [correction.known.path for correction in await driver.book.apply_corrections(told, NOON)] == [FRONT_1]
