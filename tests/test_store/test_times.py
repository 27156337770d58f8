"""History lines carry the database's time, even if the worker's clock is hours off."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import sqlalchemy as sa

from domain.mci.messages import SurveyedVm, VmCorrection
from domain.model import AT_WRITE_TIME, Grant, Move, Step, TargetLanding
from store import land, recovery, steps
from store.dbtime import read_database_time
from store.mci import surveys
from tests.test_store.driver import FRONT_1, HOOKS, WEB, StoreDriver

Work = Callable[[sa.Connection], object]


def landing(grant: Grant) -> Work:
    alike = [TargetLanding(FRONT_1, "Suspended")]
    return partial(land.land_targets, hooks=HOOKS, chunk=grant.chunks[0], landings=alike, at=AT_WRITE_TIME)


def step(grant: Grant) -> Work:
    move = Move(path=FRONT_1, to="Suspended", action="suspend", actor="Cloud")
    return partial(
        steps.apply_step, hooks=HOOKS, step=Step(path=WEB, epoch=grant.epoch, at=AT_WRITE_TIME, moves=[move])
    )


def abandon(grant: Grant) -> Work:
    return partial(recovery.abandon_run, hooks=HOOKS, owner=WEB, run=grant.run, at=AT_WRITE_TIME, message="gone")


@pytest.mark.parametrize("work", [landing, step, abandon], ids=lambda each: each.__name__)
async def test_what_an_activity_writes_has_the_databases_time(
    driver: StoreDriver, work: Callable[[Grant], Work]
) -> None:
    await driver.make()
    grant = await driver.grant(WEB, "suspend")
    before = await driver.database.run_transaction(read_database_time)
    await driver.database.run_transaction(work(grant))
    assert before <= (await driver.last(FRONT_1)).at <= await driver.database.run_transaction(read_database_time)


async def test_what_a_survey_writes_has_the_databases_time(driver: StoreDriver) -> None:
    await driver.make()
    view = await driver.inventory.read_object(FRONT_1)
    known = SurveyedVm(FRONT_1, view.status, view.epoch, view.target_action, view.info)
    before = await driver.database.run_transaction(read_database_time)
    corrections = [VmCorrection(known, "Suspended", view.info)]
    assert await driver.database.run_transaction(
        partial(surveys.apply_corrections, corrections=corrections, at=AT_WRITE_TIME)
    )
    assert before <= (await driver.last(FRONT_1)).at <= await driver.database.run_transaction(read_database_time)
