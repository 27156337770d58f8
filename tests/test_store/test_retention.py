"""Retention: the oldest ended actions and lines are exported and removed; what is needed stays, and verifies."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from activities.retention import RetentionArchive
from domain.healing import PruneResult
from domain.mci.messages import AddVms
from domain.model import ActionResult
from store import retention
from store.schema import actions, history, locks
from tests.test_store.driver import FRONT_1, FRONT_2, NS, WEB, StoreDriver, group

SOON = datetime.now(UTC) + timedelta(days=1)  # everything has ended before


class ExportedRows:
    """Collects the rows that retention exports before it deletes them."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def __call__(self, rows: list[dict[str, Any]]) -> None:
        self.rows += rows

    def of(self, table: str, key: str) -> list[int]:
        return [row[key] for row in self.rows if row["table"] == table]


@pytest.fixture
def exported() -> ExportedRows:
    return ExportedRows()


async def prune(driver: StoreDriver, exported: ExportedRows, busy: frozenset[str] = frozenset()) -> PruneResult:
    return await driver.inventory.prune_batch(SOON, 0, busy, exported)


async def kept(driver: StoreDriver) -> dict[str, list[int]]:
    """The epochs of what is there, by table."""

    def epochs(connection: sa.Connection) -> dict[str, list[int]]:
        return {
            table.name: sorted(set(connection.execute(sa.select(table.c.epoch)).scalars()))
            for table in (actions, history)
        }

    return await driver.database.run_transaction(epochs)


async def wrong(driver: StoreDriver) -> list[tuple[str, str]]:
    return [
        (finding.invariant, finding.path) for finding in (await driver.inventory.check_store_invariants("")).findings
    ]


async def cycle(driver: StoreDriver, path: str = WEB, times: int = 1) -> None:
    for _ in range(times):
        await driver.act(path, "suspend", "Suspended")
        await driver.act(path, "resume", "Running")


async def scale(driver: StoreDriver, action: str, to: str) -> None:
    """Scales a group by one VM, out or in."""
    grant = await driver.grant(WEB, action, spec={"subGroup": "front", "count": 1})
    order = AddVms(path=WEB, epoch=grant.epoch, action=action, at=driver.now(), group="front", count=1)
    enrolled = await driver.book.add_vms_to_action(order)
    await driver.land(grant.model_copy(update={"chunks": enrolled.chunks}), to)
    await driver.finish(grant)


async def test_the_oldest_actions_go_with_their_lines_and_the_current_one_stays(
    driver: StoreDriver, exported: ExportedRows
) -> None:
    await driver.make()
    await cycle(driver, times=2)
    before = await kept(driver)
    found = await prune(driver, exported)
    assert (found.actions, found.lines) == (4, len(exported.of("history", "seq")))
    assert (await kept(driver)) == {"actions": before["actions"][-1:], "history": before["actions"][-1:]}
    assert exported.of("actions", "epoch") == before["actions"][:-1]
    assert await wrong(driver) == []
    await cycle(driver)
    assert await wrong(driver) == []
    assert (await prune(driver, exported)).actions == 2
    assert await wrong(driver) == []
    assert await driver.statuses() == {"front-1": "Running", "front-2": "Running"}


async def test_what_is_younger_than_the_retention_stays(driver: StoreDriver, exported: ExportedRows) -> None:
    await driver.make()
    await cycle(driver, times=2)
    (_, second, *_rest) = (await kept(driver))["actions"]
    young = sa.update(actions).where(actions.c.epoch > second).values(ended_at=SOON + timedelta(days=1))
    await driver.database.run_transaction(lambda connection: connection.execute(young).rowcount)
    assert (await prune(driver, exported)).actions == 2
    assert min((await kept(driver))["history"]) > second
    assert await wrong(driver) == []


async def test_a_member_that_lives_its_own_life_loses_its_lines_of_a_group_action_that_others_still_need(
    driver: StoreDriver, exported: ExportedRows
) -> None:
    await driver.make()
    await cycle(driver, FRONT_1, times=2)
    created, *middle, last = (await kept(driver))["actions"]
    found = await prune(driver, exported)
    assert found.actions == len(middle)
    assert (await kept(driver))["actions"] == [created, last]
    assert {action for action, *_ in await driver.told(FRONT_1)} == {"resume"}
    assert {action for action, *_ in await driver.told(FRONT_2)} == {"create"}
    assert await wrong(driver) == []


async def test_an_open_action_its_lock_and_whoever_is_busy_keep_theirs(
    driver: StoreDriver, exported: ExportedRows
) -> None:
    await driver.make()
    await cycle(driver, times=2)
    await driver.grant(WEB, "suspend")
    before = await driver.dump()
    assert (await prune(driver, exported, busy=frozenset({WEB}))) == PruneResult()
    assert (await driver.dump(), exported.rows) == (before, [])
    epochs = (await kept(driver))["actions"]
    await prune(driver, exported)
    assert (await kept(driver))["actions"] == epochs[-1:]  # the objects belong to the open one
    assert await wrong(driver) == []


async def test_an_action_that_still_has_a_lock_stays_with_all_that_came_after(
    driver: StoreDriver, exported: ExportedRows
) -> None:
    await driver.make()
    await cycle(driver, times=2)
    created, *rest = (await kept(driver))["actions"]

    def lock(connection: sa.Connection) -> None:
        run = connection.execute(sa.select(actions.c.run).where(actions.c.epoch == rest[0])).scalar_one()
        left = {"path": WEB, "owner": WEB, "mode": "X", "run": run, "action": "suspend", "since": driver.now()}
        connection.execute(sa.insert(locks).values(left))

    await driver.database.run_transaction(lock)
    await prune(driver, exported)
    assert (await kept(driver)) == {"actions": rest, "history": rest}
    assert exported.of("actions", "epoch") == [created]


async def test_of_what_is_gone_nothing_is_left_but_the_last_number(driver: StoreDriver, exported: ExportedRows) -> None:
    await driver.make()
    await driver.act(WEB, "terminate", "Terminated")
    await driver.act(WEB, "delete", "None")
    await driver.make(f"{NS}:mci:other")
    last = (await kept(driver))["actions"][-1]
    assert (await prune(driver, exported)).actions == 3
    assert await kept(driver) == {"actions": [last], "history": [last]}
    assert (await driver.dump())["pruned"] == []
    assert await wrong(driver) == []
    await driver.make()
    assert await wrong(driver) == []


async def test_the_number_of_a_vm_that_is_gone_is_not_given_again(driver: StoreDriver, exported: ExportedRows) -> None:
    await driver.make(WEB, group(size=2))
    await scale(driver, "scale-in", "None")
    await cycle(driver)
    assert list(await driver.statuses()) == ["front-1"]
    await prune(driver, exported)
    assert await driver.told(FRONT_2) == []
    await scale(driver, "scale-out", "Running")
    assert sorted(await driver.statuses()) == ["front-1", "front-3"]
    assert await wrong(driver) == []


async def test_a_leftover_stays_until_it_is_looked_for_outside(driver: StoreDriver, exported: ExportedRows) -> None:
    grant = await driver.grant("node:n1", "create", spec={"memory": 10})
    await driver.finish(grant, ActionResult.FAILED, "cut off")
    await driver.make()
    [left] = await driver.inventory.list_leftovers()
    await prune(driver, exported)
    assert await driver.inventory.list_leftovers() == [left]


async def test_an_ignored_line_of_no_action_goes_by_its_age(driver: StoreDriver, exported: ExportedRows) -> None:
    await driver.make()
    told = {"path": WEB, "actor": "CRM", "action": "response", "source": "None", "to": "None", "message": "ignored: x"}
    told["effect"] = "ignored"
    lines = [{**told, "epoch": 0, "at": driver.now()}, {**told, "epoch": 0, "at": SOON + timedelta(days=1)}]
    await driver.database.run_transaction(lambda connection: connection.execute(sa.insert(history), lines).rowcount)
    assert (await prune(driver, exported)) == PruneResult(lines=1)
    assert exported.of("history", "epoch") == [0]  # without an action, it is exported as well
    assert await wrong(driver) == []


async def test_a_gap_that_nobody_pruned_is_found(driver: StoreDriver, exported: ExportedRows) -> None:
    await driver.make()
    await cycle(driver)
    await prune(driver, exported)
    await cycle(driver)
    assert await wrong(driver) == []
    (_, suspended, _) = (await kept(driver))["actions"]
    lost = sa.delete(history).where(history.c.path == FRONT_1, history.c.epoch == suspended)
    await driver.database.run_transaction(lambda connection: connection.execute(lost).rowcount)
    assert ("I4", FRONT_1) in await wrong(driver)


async def test_lost_lines_at_the_beginning_are_found_where_nothing_was_pruned(
    driver: StoreDriver, exported: ExportedRows
) -> None:
    await driver.make()
    await cycle(driver)
    first = (await kept(driver))["actions"][0]
    lost = sa.delete(history).where(history.c.path == FRONT_1, history.c.epoch == first)
    await driver.database.run_transaction(lambda connection: connection.execute(lost).rowcount)
    assert await wrong(driver) == [("I4", FRONT_1)]
    await prune(driver, exported)  # and are not hidden: what is wrong stays
    assert await wrong(driver) == [("I4", FRONT_1)]


async def test_a_request_id_that_went_can_be_used_anew(driver: StoreDriver, exported: ExportedRows) -> None:
    await driver.make()
    await driver.act(WEB, "suspend", "Suspended", request_id="r1")
    await driver.act(WEB, "resume", "Running")
    await prune(driver, exported)
    admission = await driver.begin(WEB, "reboot", request_id="r1")
    assert admission.grant


async def test_batches_go_on_where_the_last_one_stopped(
    driver: StoreDriver, exported: ExportedRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "ACTIONS_PER_BATCH", 2)
    await driver.make()
    await cycle(driver, times=2)
    epochs = (await kept(driver))["actions"]
    first = await prune(driver, exported)
    assert (first.actions, first.after) == (2, epochs[1])
    second = await driver.inventory.prune_batch(SOON, first.after, frozenset(), exported)
    assert (second.actions, second.after) == (2, epochs[3])
    assert await driver.inventory.prune_batch(SOON, second.after, frozenset(), exported) == PruneResult()
    assert exported.of("actions", "epoch") == epochs[:4]


async def test_a_crash_between_export_and_commit_loses_nothing_and_exports_again(
    driver: StoreDriver, tmp_path: Path
) -> None:
    await driver.make()
    await cycle(driver, times=2)
    before, archive = await driver.dump(), RetentionArchive(tmp_path / "archive")

    def crash(connection: sa.Connection) -> None:
        retention.prune_batch(connection, SOON, 0, frozenset(), archive.append_rows)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        driver.database.run_transaction_blocking(crash)
    assert await driver.dump() == before
    [file] = (tmp_path / "archive").iterdir()
    with file.open("a") as torn:
        torn.write('{"table": "hist')
    await driver.inventory.prune_batch(SOON, 0, frozenset(), archive.append_rows)
    assert file.stat().st_mode & 0o777 == 0o600
    rows = [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]
    after = await driver.dump()
    for name, key in (("actions", "epoch"), ("history", "seq")):
        exported = [row[key] for row in rows if row["table"] == name]
        gone = {row[0] for row in before[name]} - {row[0] for row in after[name]}
        assert (len(exported), set(exported)) == (2 * len(gone), gone)


async def test_an_archive_that_cannot_be_written_keeps_everything(driver: StoreDriver, tmp_path: Path) -> None:
    await driver.make()
    await cycle(driver)
    before = await driver.dump()
    (tmp_path / "archive").write_text("no folder")
    with pytest.raises(FileExistsError):
        await driver.inventory.prune_batch(SOON, 0, frozenset(), RetentionArchive(tmp_path / "archive").append_rows)
    assert await driver.dump() == before


async def test_two_sweeps_at_once_remove_each_row_once(
    driver: StoreDriver, rival: StoreDriver, exported: ExportedRows
) -> None:
    await driver.make()
    await cycle(driver, times=5)
    found = await asyncio.gather(*(prune(driver, exported) for driver in (driver, rival)))
    assert sum(result.actions for result in found) == 10
    assert await wrong(driver) == []
