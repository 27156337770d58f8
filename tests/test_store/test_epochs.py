"""Epochs never decrease, and a run that is dead, or unknown to the store, changes nothing."""

from __future__ import annotations

import time
from datetime import timedelta

import sqlalchemy as sa

from domain.errors import Category
from domain.model import ActionEnding, ActionResult, WorkReport
from store.finish import UNKNOWN_ACTION_MESSAGE
from store.schema import actions, metadata
from tests.test_store.driver import FRONT_1, NOON, WEB, StoreDriver, claim, group
from tests.test_store.test_races import beginning, granted, together

SAFE_IN_JSON = 2**53  # beyond it a program that reads numbers as floats confuses two of them
MANY = 20


async def forget(driver: StoreDriver, epoch: int) -> None:
    """The store is as it was before this action, like one that was restored."""
    await driver.database.run_transaction(
        lambda connection: connection.execute(sa.delete(actions).where(actions.c.epoch >= epoch))
    )


async def test_an_epoch_is_at_least_the_clock_and_safe_in_json(driver: StoreDriver) -> None:
    before = time.time_ns() // 1_000
    await driver.make()
    grant = await driver.grant(WEB, "suspend")
    assert before - 1_000 <= grant.epoch < SAFE_IN_JSON // 4  # systems double it


async def test_an_action_that_the_store_forgot_has_a_number_that_is_not_used_again(driver: StoreDriver) -> None:
    await driver.make()
    lost = await driver.grant(FRONT_1, "suspend")
    await forget(driver, lost.epoch)
    await driver.database.run_transaction(lambda connection: connection.execute(sa.text("DELETE FROM locks")))
    await driver.database.run_transaction(
        lambda connection: connection.execute(sa.text("UPDATE objects SET status = 'Running'"))
    )
    again = await driver.grant(FRONT_1, "suspend")
    assert again.epoch > lost.epoch


async def test_a_clock_that_was_set_back_does_not_take_the_numbers_along(
    driver: StoreDriver, rival: StoreDriver
) -> None:
    await driver.make(WEB, group(size=MANY))
    ahead = sa.update(actions).values(
        epoch=time.time_ns() // 1_000 + 3_600_000_000
    )  # as by a clock of an hour from now
    await driver.database.run_transaction(lambda connection: connection.execute(ahead))
    last = (await driver.dump())["actions"][-1][0]
    asked = [claim(f"{WEB}:vm:front-{n + 1}", "suspend") for n in range(MANY)]
    numbers = sorted(grant.epoch for grant in granted(together([driver, rival], [beginning(claim) for claim in asked])))
    assert numbers == list(range(last + 1, last + 1 + MANY))


async def test_a_begin_that_comes_after_anothers_has_a_higher_number_whatever_the_object(
    driver: StoreDriver, rival: StoreDriver
) -> None:
    numbers = [
        (await each.grant(f"{WEB}-{n}", "create", spec={"subGroups": [group()]})).epoch
        for n in range(10)
        for each in (driver, rival)
        if n % 2 == (each is driver)
    ]
    assert numbers == sorted(set(numbers))


async def test_finish_ends_no_other_action_that_has_its_number(driver: StoreDriver) -> None:
    """Whatever the number, run and path must be the grant's."""
    await driver.make()
    grant = await driver.grant(FRONT_1, "suspend")
    before = await driver.inventory.list_locks()
    for wrong in ({"run": "of-another-store"}, {"path": f"{WEB}:vm:front-2"}):
        foreign = grant.model_copy(update=wrong)
        outcome = await driver.inventory.finish_action(
            ActionEnding.from_grant(foreign, ActionResult.SUCCEEDED, WorkReport(), NOON)
        )
        assert (outcome.result, outcome.message) == (ActionResult.FAILED, UNKNOWN_ACTION_MESSAGE)
    assert await driver.inventory.list_locks() == before
    assert await driver.status(FRONT_1) == "Suspending"
    assert (await driver.finish(grant)).path == FRONT_1


async def test_a_run_whose_record_is_gone_ends_with_a_clear_failure_that_is_kept_as_ignored(
    driver: StoreDriver,
) -> None:
    await driver.make()
    grant = await driver.grant(WEB, "suspend")
    await forget(driver, grant.epoch)
    outcome = await driver.finish(grant)
    assert (outcome.result, outcome.message) == (ActionResult.FAILED, UNKNOWN_ACTION_MESSAGE)
    assert (await driver.last(WEB)).message == f"ignored: {UNKNOWN_ACTION_MESSAGE}"


async def test_a_late_begin_of_a_dead_run_does_not_abandon_the_run_that_started_later(driver: StoreDriver) -> None:
    await driver.make()
    early = claim(WEB, "suspend", run="r1", started=NOON)
    late = claim(WEB, "reboot", run="r2", started=NOON + timedelta(seconds=1))
    alive = (await driver.inventory.begin_action(late)).grant
    assert alive
    admission = await driver.inventory.begin_action(early)
    assert admission.refusal
    assert admission.refusal.category is Category.CONFLICT
    assert [holder.run for holder in admission.refusal.holders] == ["r2"]
    assert {hold.run for hold in await driver.inventory.list_locks()} == {"r2"}
    assert (await driver.inventory.read_object(WEB)).epoch == alive.epoch


async def test_a_run_that_started_later_abandons_the_one_before(driver: StoreDriver) -> None:
    await driver.make()
    await driver.inventory.begin_action(claim(WEB, "suspend", run="r1", started=NOON))
    admission = await driver.inventory.begin_action(claim(WEB, "reboot", run="r2", started=NOON + timedelta(seconds=1)))
    assert admission.grant
    assert {hold.run for hold in await driver.inventory.list_locks()} == {"r2"}


def test_every_column_that_keeps_an_epoch_is_wide_enough() -> None:
    columns = [column for table in metadata.tables.values() for column in table.columns]
    names = ("epoch", "seq", "number", "generation", "last")
    kept = [column for column in columns if column.name in names and not isinstance(column.type, sa.Float)]
    assert kept
    assert [str(column) for column in kept if not isinstance(column.type, sa.BigInteger)] == []
