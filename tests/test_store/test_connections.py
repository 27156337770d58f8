"""Connections in the store: one holder at a time, the last user removes; VMs enrolled once; corrections that lose."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from domain.errors import Refused
from domain.mci.messages import Correction, Enrol, Held, Hold, Known, Leave, Survey, Wants
from domain.model import Claim, Request
from store import clock
from store.mci.tables import connections
from tests.test_store.scene import FRONT_1, NOON, NS, WEB, Scene, group

PLACE = "aws/eu-1"
OTHER = f"{NS}:mci:other"
WANTS = Wants(place=PLACE, specs=["small"], images=["ubuntu-24.04"])


LASTS = timedelta(seconds=30)


def wish(holder: str, generation: int = 7) -> Hold:
    return Hold(PLACE, holder, LASTS, generation)


async def held(scene: Scene, holder: str, generation: int = 7) -> Held:
    found = await scene.book.hold(wish(holder, generation))
    assert found
    return found


async def expired(scene: Scene) -> None:
    """The hold of the place has lasted for too long, by the database's clock."""
    change = sa.update(connections).values(held_until=datetime.now(UTC) - timedelta(seconds=1))
    await scene.database.run(lambda connection: connection.execute(change))


async def begun(scene: Scene, *paths: str) -> None:
    """MCIs that have begun and use the place, without a VM yet."""
    for path in paths:
        assert (await scene.begin(path, "create", spec={"subGroups": [group()]})).grant


async def prepared(scene: Scene, holder: str = "a") -> None:
    mine = await held(scene, holder)
    for what in ("vnet", "securityGroup", "sshKey"):
        assert await scene.book.keep(mine, LASTS, what, f"id-{what}")
    await scene.book.let_go(mine)


async def test_a_connection_has_one_holder_at_a_time(scene: Scene) -> None:
    first = await held(scene, "a")
    assert (first.generation, first.resources) == (7, {})
    assert await scene.book.hold(wish("b")) is None
    assert await scene.book.renew(first, LASTS), "it may go on holding"
    await scene.book.let_go(replace(first, epoch=first.epoch - 1))
    assert await scene.book.hold(wish("b")) is None, "only the holder lets go"
    await scene.book.let_go(first)
    assert not await scene.book.renew(first, LASTS), "what was let go of is gone"
    second = await held(scene, "b", generation=9)
    assert (second.generation, second.resources) == (9, {}), "made anew: a generation of its own"
    assert second.epoch > first.epoch


async def test_a_holder_that_died_is_followed_by_one_that_goes_on_where_it_stopped(scene: Scene) -> None:
    dead = await held(scene, "a")
    assert await scene.book.keep(dead, LASTS, "vnet", "v-1")
    assert await scene.book.keep(dead, LASTS, "securityGroup", "")
    assert await scene.book.hold(wish("b")) is None
    await expired(scene)
    heir = await held(scene, "b", generation=9)
    assert (heir.generation, heir.resources) == (7, {"vnet": "v-1", "securityGroup": ""})
    assert not await scene.book.keep(dead, LASTS, "securityGroup", "s-1"), "the dead one writes nothing any more"
    assert await scene.book.resources(PLACE) == {"vnet": "v-1", "securityGroup": ""}


async def test_a_hold_that_was_lost_does_not_come_back_when_it_is_renewed(scene: Scene) -> None:
    """A worker that froze while it removed things wakes up: another MCI counts on them by now."""
    await prepared(scene)
    frozen = await held(scene, "a")
    await expired(scene)
    await scene.book.let_go(await held(scene, "b"))
    assert not await scene.book.renew(frozen, LASTS)
    assert not await scene.book.keep(frozen, LASTS, "sshKey", "")
    assert not await scene.book.left(frozen, WEB)
    assert (await scene.book.resources(PLACE))["sshKey"] == "id-sshKey"


async def test_another_worker_with_the_same_work_takes_it_over_at_once_and_the_first_is_late(scene: Scene) -> None:
    first = await held(scene, "a")
    second = await held(scene, "a")
    assert second.epoch > first.epoch
    assert not await scene.book.keep(first, LASTS, "vnet", "v-1")
    assert await scene.book.keep(second, LASTS, "vnet", "v-1")


async def test_a_hold_is_reckoned_by_the_clock_of_the_database(scene: Scene, rival: Scene) -> None:
    """Workers whose clocks are hours apart hold for the same half minute."""
    await held(scene, "a")
    [until] = await scene.database.run(lambda connection: connection.execute(sa.select(connections.c.held_until)).one())
    now = await rival.database.run(clock.now)
    assert timedelta(seconds=20) < until - now <= LASTS
    assert await rival.book.hold(wish("b")) is None


async def test_of_many_that_want_to_hold_exactly_one_does(scene: Scene, rival: Scene) -> None:
    wishes = [(each, f"h{n}") for n in range(10) for each in (scene, rival)]
    got = await asyncio.gather(*(each.book.hold(wish(f"{name}-{id(each)}")) for each, name in wishes))
    assert len([found for found in got if found]) == 1


async def test_an_mci_finds_a_prepared_place_ready_unless_somebody_is_at_it(scene: Scene) -> None:
    await prepared(scene)
    grant = (await scene.begin(WEB, "create", spec={"subGroups": [group()]})).grant
    assert grant
    assert grant.details == {"places": [PLACE], "prepare": []}
    await held(scene, "b")
    second = (await scene.begin(OTHER, "create", spec={"subGroups": [group()]})).grant
    assert second
    assert second.details["prepare"] == [PLACE]


async def test_the_last_one_to_leave_removes_what_is_shared(scene: Scene) -> None:
    await prepared(scene)
    await begun(scene, WEB, OTHER)
    assert await scene.book.leave(wish("a"), WEB) is Leave.SHARED
    assert await scene.book.leave(wish("a"), WEB) is Leave.SHARED, "asked again, it has left already"
    assert await scene.book.leave(wish("b"), OTHER) is Leave.LAST
    assert await scene.book.hold(wish("c")) is None, "it holds the place while it removes"
    mine = await held(scene, "b")
    for what in ("sshKey", "securityGroup", "vnet"):
        assert await scene.book.keep(mine, LASTS, what, None)
    assert await scene.book.left(mine, OTHER)
    assert await scene.book.resources(PLACE) == {}
    assert (await held(scene, "c", generation=9)).generation == 9


async def test_one_that_comes_while_the_last_one_leaves_prepares_anew(scene: Scene) -> None:
    await prepared(scene)
    await begun(scene, WEB)
    assert await scene.book.leave(wish("a"), WEB) is Leave.LAST
    grant = (await scene.begin(OTHER, "create", spec={"subGroups": [group()]})).grant
    assert grant
    assert grant.details["prepare"] == [PLACE]
    assert await scene.book.leave(wish("b"), OTHER) in (Leave.SHARED, Leave.BUSY)


async def test_nobody_leaves_a_place_while_it_has_vms(scene: Scene) -> None:
    await scene.make()
    assert await scene.book.leave(wish("a"), WEB) is Leave.OCCUPIED


async def test_a_place_that_somebody_is_at_is_left_later(scene: Scene) -> None:
    await begun(scene, WEB)
    await held(scene, "a")
    assert await scene.book.leave(wish("b"), WEB) is Leave.BUSY


async def test_what_a_cloud_was_seen_to_offer_is_believed_for_a_day(scene: Scene) -> None:
    assert await scene.book.unchecked([WANTS], NOON) == [WANTS]
    await scene.book.remember(WANTS, NOON)
    more = WANTS.model_copy(update={"specs": ["large", "small"]})
    assert await scene.book.unchecked([WANTS, more], NOON + timedelta(hours=23)) == [more]
    assert await scene.book.unchecked([WANTS], NOON + timedelta(hours=25)) == [WANTS]


async def test_a_look_at_whether_it_would_be_allowed_uses_no_place(scene: Scene) -> None:
    before = await scene.dump()
    claim = Claim(request=Request(path=WEB, action="create", spec={"subGroups": [group()]}), run="x", at=NOON)
    assert (await scene.inventory.check(claim)).grant
    assert await scene.dump() == before


async def test_vms_are_born_once_and_only_by_an_action_that_is_open(scene: Scene) -> None:
    grant = await scene.grant(WEB, "create", spec={"subGroups": [group(size=3)]})
    before = await scene.dump()
    assert await scene.born(grant) == grant
    assert await scene.dump() == before
    await scene.land(grant, "Running")
    await scene.finish(grant)
    before = await scene.dump()
    with pytest.raises(Refused, match="not in the hands of this action any more"):
        await scene.book.enrol(Enrol(path=WEB, epoch=grant.epoch, action="create", at=NOON))
    assert await scene.dump() == before


async def test_thousands_of_vms_are_born_in_a_few_statements(scene: Scene) -> None:
    grant = await scene.grant(WEB, "create", spec={"subGroups": [group(size=5_000)]})
    assert grant.targets == 5_000
    assert [chunk.count for chunk in grant.chunks] == [500] * 10


async def test_a_correction_loses_against_an_action_that_came_between(scene: Scene) -> None:
    await scene.make()
    plan = await scene.book.plan(Survey(path=WEB))
    known = await scene.book.seen(plan.chunks[0], ["Running"])
    assert [each.path for each in known] == [FRONT_1, f"{WEB}:vm:front-2"]
    await scene.grant(FRONT_1, "reboot")
    told = [Correction(each, "Suspended", each.info) for each in known]
    assert [each.known.path for each in await scene.book.correct(told, NOON)] == [f"{WEB}:vm:front-2"]
    assert await scene.statuses() == {"front-1": "Rebooting", "front-2": "Suspended"}
    stale = Correction(Known(FRONT_1, "Running", 0, "None", {}), "Suspended", {})
    assert await scene.book.correct([stale], NOON) == []


async def test_a_correction_leaves_an_mci_alone_that_an_action_is_at(scene: Scene) -> None:
    """Also the VMs that the action skipped: what it counts must not change under it."""
    await scene.make()
    await scene.act(FRONT_1, "suspend", "Suspended")
    plan = await scene.book.plan(Survey(path=WEB, reconcile=True))
    known = await scene.book.seen(plan.chunks[0], ["Suspended"])
    grant = await scene.grant(WEB, "reboot")
    told = [Correction(each, "Running", each.info) for each in known]
    assert await scene.book.correct(told, NOON) == []
    await scene.land(grant, "Running")
    await scene.finish(grant)
    assert [each.known.path for each in await scene.book.correct(told, NOON)] == [FRONT_1]
