"""Every row of the six tables on a real server; everything else is refused."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import count
from typing import Any

import pytest

from domain.errors import Category
from domain.machines import TABLES
from domain.statetable import NONE, Actor, Row, Ruling
from tests.test_machines.site import MachineSite

pytestmark = pytest.mark.stores("postgres")

KINDS = list(TABLES)
MODELLED = {"machine": "VIRTUAL", "cloudspace": "VIRTUAL", "disk": "MODELED", "image": "VIRTUAL"}
_numbers = count(1)


def rows(kind: str) -> list[Row]:
    """What a user can ask for and is done, not found done."""
    return [row for row in TABLES[kind].rows if row.actor == Actor.USER and (row.during or row.hidden)]


def route(kind: str, status: str) -> list[str]:
    """The actions that bring a new object to a status, by the table."""
    if status == MODELLED.get(kind):
        return ["create virtual"]
    queue, seen = deque[tuple[str, list[str]]]([(NONE, [])]), {NONE}
    while queue:
        here, actions = queue.popleft()
        if here == status:
            return actions
        for row in rows(kind):
            after = row.success_status(here)
            if row.source == here and row.during and after not in seen:
                seen.add(after)
                queue.append((after, [*actions, row.action]))
    raise AssertionError(f"no way to {status}")


class Stage:
    """One object of a kind, and what its actions need beside it."""

    def __init__(self, site: MachineSite, kind: str) -> None:
        self.site, self.kind, self.name = site, kind, f"o{next(_numbers)}"

    @property
    def path(self) -> str:
        site = self.site
        return {
            "machine": site.machine(self.name),
            "cloudspace": site.space(self.name),
            "account": f"account:{site.name}{self.name}",
            "disk": site.disk(self.name),
            "image": f"image:{site.name}{self.name}",
            "node": f"node:{site.name}{self.name}",
        }[self.kind]

    async def spec(self, action: str) -> dict[str, Any]:
        if (self.kind, action) == ("machine", "create"):
            return {"image": self.site.name, "node": f"{self.site.name}-1"}
        if action in ("attach-disk", "detach-disk"):
            return {"disk": await self._disk(action)}
        if action == "add-disk":
            return {"disk": f"new{next(_numbers)}"}
        if action in ("snapshot", "rollback", "delete-snapshot"):
            return {"snapshot": await self._snapshot(action)}
        if (self.kind, action) in (("disk", "attach"), ("disk", "assign")):
            return {"machine": f"dev/{await self._machine()}"}
        return {}

    async def do(self, action: str) -> str:
        return await self.site.to(self.path, action, **await self.spec(action))

    async def seed(self, action: str) -> None:
        word, _, virtual = action.partition(" ")
        spec = await self.spec(word) | ({"virtual": True} if virtual else {})
        await self.site.seed(self.path, word, **spec)

    async def _disk(self, action: str) -> str:
        name = f"d{next(_numbers)}"
        await self.site.seed(self.site.disk(name), "create")
        if action == "detach-disk":
            await self.site.seed(self.path, "attach-disk", disk=name)
        return name

    async def _snapshot(self, action: str) -> str:
        name = f"s{next(_numbers)}"
        if action != "snapshot":
            await self.site.seed(self.path, "snapshot", snapshot=name)
        return name

    async def _machine(self) -> str:
        name = f"m{next(_numbers)}"
        spec = {"image": self.site.name, "node": f"{self.site.name}-1"}
        await self.site.seed(self.site.machine(name), "create", **spec)
        return name


async def reach(site: MachineSite, kind: str, status: str) -> Stage:
    stage = Stage(site, kind)
    for action in route(kind, status):
        await stage.seed(action)
    if status != NONE:
        assert await site.status(stage.path) == status
    return stage


@pytest.mark.parametrize("kind", KINDS)
async def test_every_row_works_end_to_end(site: MachineSite, kind: str) -> None:
    await site.with_machine("first", nodes=2)

    async def one(row: Row) -> None:
        stage = await reach(site, kind, row.source)
        came_from = row.source
        assert await stage.do(row.action) == row.success_status(came_from), row
        last = (await site.history(stage.path))[-1]
        assert (last.action, last.to) == (row.action, row.success_status(came_from))

    await asyncio.gather(*map(one, rows(kind)))
    await site.at_rest()


@pytest.mark.parametrize("kind", KINDS)
async def test_every_pair_outside_the_table_is_refused_and_changes_nothing(site: MachineSite, kind: str) -> None:
    await site.with_machine("first")
    table = TABLES[kind]

    async def one(status: str) -> None:
        stage = await reach(site, kind, status)
        before = await site.see(stage.path) if status != NONE else None
        for action in table.user_actions:
            if table.judge(status, action).ruling is not Ruling.REFUSED or (
                action in ("create", table.orphan_removal_action) and status in table.vacant_statuses
            ):
                continue
            refusal = await site.would_be_refused(stage.path, action, **_plausible(kind, action))
            assert refusal, (status, action)
            assert refusal.category in (Category.NOT_ALLOWED, Category.NOT_FOUND)
            told = f"exists already, under {status}" if action == "create" else f"under {status}"
            assert (told if status != NONE else "there is no such") in refusal.message
            assert refusal.hint
        if before:
            assert await site.see(stage.path) == before

    await asyncio.gather(*map(one, (NONE, *table.stable_statuses)))


def _plausible(kind: str, action: str) -> dict[str, Any]:
    """A spec that is right in itself, so that only the status can be wrong."""
    if (kind, action) == ("machine", "create"):
        return {"image": "any"}
    if action in ("add-disk", "attach-disk", "detach-disk"):
        return {"disk": "any"}
    if action in ("snapshot", "rollback", "delete-snapshot"):
        return {"snapshot": "any"}
    return {"machine": "dev/first"} if action in ("attach", "assign") else {}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "node"])
async def test_what_is_destroyed_can_be_deleted_and_destroyed_again_and_nothing_happens(
    site: MachineSite, kind: str
) -> None:
    await site.with_machine("first")
    stage = await reach(site, kind, "DESTROYED")
    before = await site.see(stage.path), await site.history(stage.path)
    for action in ("delete", "destroy"):
        outcome = await site.do(stage.path, action)
        assert (outcome.result, outcome.status) == ("already", "DESTROYED")
    assert (await site.see(stage.path), await site.history(stage.path)) == before


async def test_a_name_is_free_again_when_its_object_is_destroyed(site: MachineSite) -> None:
    await site.with_account()
    disk = site.disk()
    await site.to(disk, "create", size=5)
    await site.to(disk, "destroy")
    old = await site.see(disk)
    assert await site.to(disk, "create", size=7) == "CREATED"
    new = await site.see(disk)
    assert (new.spec["size"], new.info["generation"] > old.info["generation"]) == (7, True)
    assert [line.action for line in await site.history(disk)] == ["create"] * 2 + ["destroy"] * 2 + ["create"] * 2
    await site.at_rest()


async def test_a_machine_adds_a_disk_under_the_name_of_one_that_was_destroyed(site: MachineSite) -> None:
    await site.with_machine()
    machine, disk = site.machine(), site.disk()
    for size in (5, 7):
        assert await site.to(machine, "add-disk", disk="d1", size=size) == "RUNNING"
        view = await site.see(disk)
        assert (view.status, view.spec["size"], view.info["machine"]) == ("ASSIGNED", size, machine)
        assert await site.to(disk, "destroy") == "DESTROYED"
    lines = [(line.action, line.source) for line in await site.history(disk)]
    once = [("assign", "None"), ("assign", "ASSIGNING"), ("destroy", "ASSIGNED"), ("destroy", "DESTROYING")]
    assert lines == 2 * once
    await site.at_rest()


async def test_a_disk_that_could_not_be_added_leaves_its_name_free(site: MachineSite) -> None:
    await site.with_machine()
    machine, disk = site.machine(), site.disk()
    await site.to(machine, "add-disk", disk="d1")
    await site.to(disk, "destroy")
    await site.fault("fail", disk, verb="create", times=1)
    assert (await site.do(machine, "add-disk", disk="d1")).result == "failed"
    assert await site.to(machine, "add-disk", disk="d1") == "RUNNING"
    assert await site.status(disk) == "ASSIGNED"
    await site.at_rest()


async def test_what_a_row_says_is_what_the_history_tells(site: MachineSite) -> None:
    await site.with_machine()
    await site.to(site.machine(), "stop")
    lines = [(line.actor, line.action, line.source, line.to) for line in await site.history(site.machine())]
    assert lines == [
        ("User", "create", "None", "DEPLOYING"),
        ("Controller", "create", "DEPLOYING", "RUNNING"),
        ("User", "stop", "RUNNING", "STOPPING"),
        ("Controller", "stop", "STOPPING", "HALTED"),
    ]
