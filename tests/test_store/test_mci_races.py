"""Races of the MCI family's transactions: connections that are shared, surveys, and scaling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import sqlalchemy as sa

from domain.errors import Superseded
from domain.mci.messages import (
    AddVms,
    ConnectionLock,
    LeavePlaceResult,
    PlaceRequirements,
    SurveyRequest,
    VmCorrection,
)
from domain.model import ActionEnding, ActionResult, Grant, Outcome
from domain.ports import SHARED_RESOURCE_TYPES
from store import finish
from store.mci import connections, enrolment, surveys
from store.schema import objects
from tests.test_store.driver import FRONT_1, HOOKS, NOON, WEB, StoreDriver, claim, group
from tests.test_store.test_connections import open_actions, wish
from tests.test_store.test_races import LASTS, PLACE, beginning, overtaken


@pytest.fixture(autouse=True)
async def opened(pair: tuple[StoreDriver, StoreDriver]) -> None:
    await open_actions(pair[0])


async def prepared(driver: StoreDriver, path: str) -> None:
    """An MCI without VMs that uses a prepared place."""
    assert (await driver.begin(path, "create", spec={"subGroups": [group()]})).grant
    held = await driver.book.acquire_connection_lock(wish("a"))
    assert held
    for what in SHARED_RESOURCE_TYPES:
        assert await driver.book.record_shared_resource(held, LASTS, what, f"id-{what}")
    await driver.book.release_connection_lock(held)


async def test_an_mci_that_comes_while_the_last_one_leaves_does_not_count_on_its_network(
    pair: tuple[StoreDriver, StoreDriver],
) -> None:
    other = f"{WEB}-2"
    await prepared(pair[0], WEB)
    admission = await overtaken(
        pair,
        partial(connections.leave_place, wish=wish("web")),
        beginning(claim(other, "create", spec={"subGroups": [group()]})),
    )
    assert admission.grant
    assert admission.grant.details["prepare"] == [PLACE]


async def test_one_that_leaves_while_another_comes_is_not_the_last(pair: tuple[StoreDriver, StoreDriver]) -> None:
    other = f"{WEB}-2"
    await prepared(pair[0], WEB)
    leaving = await overtaken(
        pair,
        beginning(claim(other, "create", spec={"subGroups": [group()]})),
        partial(connections.leave_place, wish=wish("web")),
    )
    assert leaving is LeavePlaceResult.SHARED


async def test_of_two_that_leave_at_once_one_is_the_last(pair: tuple[StoreDriver, StoreDriver]) -> None:
    other = f"{WEB}-2"
    await prepared(pair[0], WEB)
    await pair[0].begin(other, "create", spec={"subGroups": [group()]})
    leaving = await overtaken(
        pair,
        partial(connections.leave_place, wish=wish("web")),
        partial(connections.leave_place, wish=wish("web-2")),
    )
    assert isinstance(leaving, ConnectionLock)


async def test_one_that_leaves_while_the_other_is_forgotten_is_the_last(pair: tuple[StoreDriver, StoreDriver]) -> None:
    other = f"{WEB}-2"
    await prepared(pair[0], WEB)
    await pair[0].begin(other, "create", spec={"subGroups": [group()]})
    leaving = await overtaken(
        pair,
        partial(connections.forget_place_uses, path=other),
        partial(connections.leave_place, wish=wish("web")),
    )
    assert isinstance(leaving, ConnectionLock)


def ending(grant: Grant) -> partial[Outcome]:
    failed = ActionEnding(epoch=grant.epoch, run=grant.run, path=grant.path, result=ActionResult.FAILED, at=NOON)
    return partial(finish.finish_action, hooks=HOOKS, ending=failed)


@pytest.mark.parametrize("act", [connections.acquire_connection_lock, connections.leave_place])
async def test_a_worker_whose_action_ends_at_that_moment_gets_no_hold(
    pair: tuple[StoreDriver, StoreDriver], act: Callable[..., object]
) -> None:
    """It proved its right a moment ago."""
    grant = await pair[0].grant(WEB, "create", spec={"subGroups": [group()]})
    late = replace(wish("web"), epoch=grant.epoch)
    with pytest.raises(Superseded, match="is over"):
        await overtaken(pair, ending(grant), partial(act, wish=late))


@pytest.mark.parametrize("act", [connections.acquire_connection_lock, connections.leave_place])
async def test_an_action_ends_when_the_hold_that_its_worker_is_taking_is_on_record(
    pair: tuple[StoreDriver, StoreDriver], act: Callable[..., object]
) -> None:
    grant = await pair[0].grant(WEB, "create", spec={"subGroups": [group()]})
    assert await overtaken(pair, partial(act, wish=replace(wish("web"), epoch=grant.epoch)), ending(grant))


async def test_a_holder_that_writes_while_it_is_taken_over_writes_nothing(
    pair: tuple[StoreDriver, StoreDriver],
) -> None:
    driver = pair[0]
    held = await driver.book.acquire_connection_lock(wish("a"))
    assert held
    kept = await overtaken(
        pair,
        partial(connections.acquire_connection_lock, wish=wish("a")),  # another worker has the same work
        partial(connections.record_shared_resource, held=held, lasts=LASTS, what="vnet", cloud_id="v-1"),
    )
    assert kept is False


async def test_what_clouds_offer_is_remembered_of_two_at_once(pair: tuple[StoreDriver, StoreDriver]) -> None:
    small, large = (PlaceRequirements(place=PLACE, specs=[spec], images=[]) for spec in ("small", "large"))
    await overtaken(
        pair,
        partial(connections.record_verified_requirements, wanted=small, at=NOON),
        partial(connections.record_verified_requirements, wanted=large, at=NOON),
    )
    assert await pair[0].book.list_unverified_requirements([small, large], NOON) == []


async def test_a_correction_that_waited_for_an_action_on_the_mci_changes_nothing(
    pair: tuple[StoreDriver, StoreDriver],
) -> None:
    driver = pair[0]
    await driver.make()
    await driver.act(FRONT_1, "suspend", "Suspended")
    known = await driver.book.list_vms_in_status(
        (await driver.book.plan_survey(SurveyRequest(path=WEB, reconcile=True))).chunks[0], ["Suspended"]
    )
    told = [VmCorrection(vm, "Running", vm.info) for vm in known]
    made = await overtaken(
        pair, beginning(claim(WEB, "reboot", run="r1")), partial(surveys.apply_corrections, corrections=told, at=NOON)
    )
    assert made == []
    assert await driver.statuses() == {"front-1": "Suspended", "front-2": "Rebooting"}


async def test_a_correction_that_waited_for_an_action_on_its_vm_changes_nothing(
    pair: tuple[StoreDriver, StoreDriver],
) -> None:
    driver = pair[0]
    await driver.make()
    known = await driver.book.list_vms_in_status(
        (await driver.book.plan_survey(SurveyRequest(path=WEB))).chunks[0], ["Running"]
    )
    told = [VmCorrection(vm, "Suspended", vm.info) for vm in known if vm.path == FRONT_1]
    made = await overtaken(
        pair, beginning(claim(FRONT_1, "reboot")), partial(surveys.apply_corrections, corrections=told, at=NOON)
    )
    assert (made, await driver.status(FRONT_1)) == ([], "Rebooting")


async def test_an_action_that_waited_for_a_correction_judges_what_it_wrote(
    pair: tuple[StoreDriver, StoreDriver],
) -> None:
    driver = pair[0]
    await driver.make()
    await driver.act(FRONT_1, "suspend", "Suspended")
    known = await driver.book.list_vms_in_status(
        (await driver.book.plan_survey(SurveyRequest(path=WEB, reconcile=True))).chunks[0], ["Suspended"]
    )
    told = [VmCorrection(vm, "Running", vm.info) for vm in known]
    admission = await overtaken(
        pair, partial(surveys.apply_corrections, corrections=told, at=NOON), beginning(claim(WEB, "reboot", run="r1"))
    )
    assert admission.grant
    assert admission.grant.targets == 2
    assert await driver.statuses() == {"front-1": "Rebooting", "front-2": "Rebooting"}


async def test_an_action_on_an_mci_counts_its_vms_as_they_are_when_it_takes_them(
    pair: tuple[StoreDriver, StoreDriver],
) -> None:
    await pair[0].make()
    change = sa.update(objects).where(objects.c.path == FRONT_1).values(status="Suspended")
    admission = await overtaken(pair, lambda connection: connection.execute(change), beginning(claim(WEB, "suspend")))
    assert admission.grant
    assert (admission.grant.targets, admission.grant.skipped) == (1, {"Suspended": 1})


async def test_a_scale_in_that_waited_for_a_correction_takes_the_vm_as_it_is(
    pair: tuple[StoreDriver, StoreDriver],
) -> None:
    driver = pair[0]
    await driver.make()
    known = await driver.book.list_vms_in_status(
        (await driver.book.plan_survey(SurveyRequest(path=WEB))).chunks[0], ["Running"]
    )
    told = [VmCorrection(vm, "Suspended", vm.info) for vm in known]
    grant = await driver.grant(WEB, "scale-in", spec={"subGroup": "front", "count": 1})
    order = AddVms(path=WEB, epoch=grant.epoch, action="scale-in", at=NOON, group="front", count=1)
    correct = partial(surveys.apply_corrections, corrections=told, at=NOON)
    assert await overtaken(pair, partial(enrolment.add_vms_to_action, order=order), correct) == []
    assert await driver.statuses() == {"front-1": "Running", "front-2": "Terminating"}
