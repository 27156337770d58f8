"""An orphan is given to the record whose path it carries, once, and only by the action that holds it."""

from __future__ import annotations

from functools import partial

import pytest

from domain.errors import Refused
from domain.mci.orphans import AdoptOrphanOrder, IdentifiedOrphan, OrphanOrder
from store.mci.adoption import adopt_orphan
from tests.test_store.driver import FRONT_1, FRONT_2, NOON, WEB, StoreDriver

PLACE = "aws/eu-1"


async def test_an_orphan_is_given_once_to_a_record_that_failed_or_is_missing(driver: StoreDriver) -> None:
    await driver.make()
    failing = await driver.grant(FRONT_1, "suspend")
    await driver.land(failing, "", {FRONT_1: ("Failed", "no answer")})
    await driver.finish(failing)
    for vm in (FRONT_1, f"{WEB}:vm:front-3"):
        orphan = f"{vm}:orphan:i-1"
        grant = await driver.grant(orphan, "adopt", spec={"place": PLACE})
        order = OrphanOrder(path=orphan, epoch=grant.epoch, place=PLACE)
        adoption = AdoptOrphanOrder(order=order, seen=IdentifiedOrphan(state="running"), at=NOON)
        for _ in range(2):
            assert await driver.database.run_transaction(partial(adopt_orphan, adoption=adoption)) == "Running"
        assert (await driver.inventory.read_object(vm)).info["cloud_id"] == "i-1"
        assert [to for action, _, to in await driver.told(vm) if action == "observe"][-1:] == ["Running"]
        await driver.finish(grant)
        with pytest.raises(Refused, match="no longer held"):
            await driver.database.run_transaction(partial(adopt_orphan, adoption=adoption))


async def test_a_record_that_is_well_adopts_nothing(driver: StoreDriver) -> None:
    await driver.make()
    refusal = await driver.refusal(f"{FRONT_2}:orphan:i-2", "adopt", spec={"place": PLACE})
    assert "is Running: only a record that is missing, Failed or Undefined" in refusal.message
