"""Reads: contents, order, and empty answers to hostile input."""

from __future__ import annotations

import pytest

from domain.errors import Category, Refused
from tests.test_store.driver import FRONT_1, NS, WEB, StoreDriver, group

HOSTILE = ["", "..", "' OR '1'='1", "ns:default:mci:%", "ns:default:mci:a\0", "ns:\u202e:mci:a", "ns:" + "x" * 1_001]


async def test_what_is_not_there_is_not_found(driver: StoreDriver) -> None:
    with pytest.raises(Refused, match=f"there is no such MCI: {WEB}") as caught:
        await driver.inventory.read_object(WEB)
    assert caught.value.category is Category.NOT_FOUND


@pytest.mark.parametrize("path", HOSTILE, ids=ascii)
async def test_a_hostile_path_is_refused_before_the_database_sees_it(driver: StoreDriver, path: str) -> None:
    with pytest.raises(Refused) as caught:
        await driver.inventory.read_object(path)
    assert caught.value.category is Category.INVALID
    with pytest.raises(Refused):
        await driver.inventory.read_history(path)
    if path:  # nothing: everywhere
        with pytest.raises(Refused):
            await driver.inventory.list_locks(path)
        with pytest.raises(Refused):
            await driver.inventory.list_objects("vm", prefix=path)
        with pytest.raises(Refused):
            await driver.inventory.list_objects("vm", after=path)


async def test_an_unknown_kind_cannot_be_listed(driver: StoreDriver) -> None:
    with pytest.raises(Refused, match="unknown kind 'pod'"):
        await driver.inventory.list_objects("pod")


async def test_a_group_comes_with_its_members_only_if_asked(driver: StoreDriver) -> None:
    await driver.make()
    assert (await driver.inventory.read_object(WEB)).members == []
    view = await driver.inventory.read_object(WEB, members=True)
    assert [member.path for member in view.members] == [FRONT_1, f"{WEB}:vm:front-2"]
    assert view.counts == {"Running": 2}


async def test_lists_are_in_the_order_of_bytes_as_python_sorts(driver: StoreDriver) -> None:
    names = ["a", "B", "A", "b", "a-1", "a.1", "a1", "Z9", "z", "0", "a_1", "aB"]
    for name in names:
        await driver.grant(f"{NS}:mci:{name}", "create", spec={"subGroups": [group(size=1)]})
    listed = [view.path for view in await driver.inventory.list_objects("mci")]
    assert listed == sorted(f"{NS}:mci:{name}" for name in names)


async def test_a_list_can_be_read_page_by_page_and_misses_nothing(driver: StoreDriver) -> None:
    await driver.make(WEB, group(size=25))
    found: list[str] = []
    while page := await driver.inventory.list_objects("vm", after=found[-1] if found else "", limit=10):
        assert len(page) <= 10
        found += [view.path for view in page]
    assert found == sorted(f"{WEB}:vm:front-{n + 1}" for n in range(25))


async def test_a_prefix_covers_what_is_below_it_and_no_name_that_begins_alike(driver: StoreDriver) -> None:
    for path in ("ns:a:mci:w", "ns:a:mci:wx", "ns:ab:mci:w", "ns:A:mci:w", "ns:a-b:mci:w"):
        await driver.make(path, group(size=1))
    assert [view.path for view in await driver.inventory.list_objects("mci", prefix="ns:a")] == [
        "ns:a:mci:w",
        "ns:a:mci:wx",
    ]
    assert [view.path for view in await driver.inventory.list_objects("vm", prefix="ns:a:mci:w")] == [
        "ns:a:mci:w:vm:front-1"
    ]
    assert [view.path for view in await driver.inventory.list_objects("mci", prefix="ns:a:mci:w")] == ["ns:a:mci:w"]


async def test_holds_below_a_path_are_those_of_nobody_else(driver: StoreDriver) -> None:
    await driver.make(WEB)
    await driver.make(f"{WEB}x")
    await driver.grant(FRONT_1, "suspend")
    await driver.grant(f"{WEB}x:vm:front-1", "suspend")
    assert [hold.path for hold in await driver.inventory.list_locks(WEB)] == [WEB, FRONT_1]
    assert len(await driver.inventory.list_locks(NS)) == len(await driver.inventory.list_locks()) == 6


async def test_history_gives_the_last_lines_oldest_first(driver: StoreDriver) -> None:
    await driver.make()
    await driver.act(FRONT_1, "suspend", "Suspended")
    lines = await driver.inventory.read_history(FRONT_1, limit=3)
    assert [line.to for line in lines] == ["Running", "Suspending", "Suspended"]
    assert [line.seq for line in lines] == sorted(line.seq for line in lines)
    assert await driver.inventory.read_history(f"{WEB}:vm:ghost") == []


async def test_times_come_back_as_they_went_in(driver: StoreDriver) -> None:
    await driver.make()
    view = await driver.inventory.read_object(WEB)
    assert view.created_at.isoformat() == "2026-01-01T12:00:00+00:00"
    assert view.changed_at.isoformat() == "2026-01-01T12:00:03+00:00"


async def test_many_groups_are_listed_with_the_status_of_each(driver: StoreDriver) -> None:
    for n in range(3):
        await driver.make(f"{NS}:mci:m{n}", group(size=n + 1))
    await driver.act(f"{NS}:mci:m1", "suspend", "Suspended")
    assert [view.status for view in await driver.inventory.list_objects("mci")] == [
        "Running:1 (R:1/1)",
        "Suspended:2 (R:0/2)",
        "Running:3 (R:3/3)",
    ]
