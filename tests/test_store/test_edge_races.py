"""The edge on PostgreSQL: a CRM's message during a begin or a finish, with both orders forced."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import sqlalchemy as sa

from domain.edge.messages import CrmConnect, CrmDisconnect, CrmResponse
from domain.edge.reports import AnswerReport, ConnectionDecision, ConnectReport, DisconnectReport
from domain.model import ActionEnding, ActionResult, Grant, Move
from store import begin as claims
from store import finish
from store.edge import links
from tests.test_store.driver import EVERYBODY, HOOKS, NOON, StoreDriver, claim, no_doubt
from tests.test_store.test_races import overtaken

T = TypeVar("T")
Work = Callable[[sa.Connection], T]

BERLIN = "org:acme:cloudlet:berlin"
CLUSTER = f"{BERLIN}:cluster:c1"


async def site(driver: StoreDriver) -> None:
    """A cloudlet that is Ready, with its CRM connected as number 1."""
    grant = await driver.grant(BERLIN, "create", spec={})
    await driver.database.run_transaction(connects(1))
    await driver.finish(grant)


def connects(notify_id: int, version: str = "v1") -> Work[Any]:
    said = CrmConnect(notify_id=notify_id, version=version)
    return partial(links.accept_connection, doubt=no_doubt, fact=ConnectReport(cloudlet=BERLIN, said=said, at=NOON))


def leaves(notify_id: int) -> Work[Any]:
    return partial(
        links.record_disconnect,
        doubt=no_doubt,
        fact=DisconnectReport(cloudlet=BERLIN, said=CrmDisconnect(notify_id=notify_id), at=NOON),
    )


def says(state: str, notify_id: int) -> Work[Any]:
    said = CrmResponse(state=state, notify_id=notify_id)
    return partial(links.record_answer, doubt=no_doubt, fact=AnswerReport(cloudlet=BERLIN, said=said, at=NOON))


def ends(grant: Grant, result: ActionResult = ActionResult.SUCCEEDED, **more: Any) -> Work[Any]:
    ending = ActionEnding(epoch=grant.epoch, run=grant.run, path=grant.path, result=result, at=NOON, **more)
    return partial(finish.finish_action, hooks=HOOKS, ending=ending)


async def upgraded(driver: StoreDriver) -> Work[Any]:
    """An upgrade whose new CRM is connected as number 2, about to end well."""
    grant = await driver.grant(BERLIN, "upgrade", spec={"version": "v2"})
    await driver.database.run_transaction(connects(2, "v2"))
    spec = {**(await driver.inventory.read_object(BERLIN)).spec, "version": "v2"}
    ready = [Move(path=BERLIN, to=to, actor=actor) for to, actor in (("Updating", "CRMv1"), ("Ready", "CRMv2"))]
    return ends(grant, moves=[ready[0], ready[1].model_copy(update={"spec": spec})])


async def test_a_goodbye_that_waited_for_the_end_of_an_upgrade_leaves_what_the_end_wrote(
    pair: tuple[StoreDriver, StoreDriver],
) -> None:
    await site(pair[0])
    await overtaken(pair, await upgraded(pair[0]), leaves(1))
    view = await pair[0].inventory.read_object(BERLIN)
    assert (view.status, view.info["crm"]["version"], view.info["crm"]["connected"]) == ("Ready", "v2", True)


async def test_an_upgrade_that_waited_for_its_new_crms_goodbye_ends_offline(
    pair: tuple[StoreDriver, StoreDriver],
) -> None:
    await site(pair[0])
    end = await upgraded(pair[0])
    assert (await overtaken(pair, leaves(2), end)).status == "Offline"
    view = await pair[0].inventory.read_object(BERLIN)
    assert (view.info["crm"]["notify_id"], view.info["crm"]["connected"]) == (2, False)


async def test_a_goodbye_that_waited_for_the_end_of_the_last_action_takes_the_cloudlet_offline(
    pair: tuple[StoreDriver, StoreDriver],
) -> None:
    await site(pair[0])
    grant = await pair[0].grant(BERLIN, "maintenance-start", spec={})
    told = await overtaken(pair, ends(grant, ActionResult.FAILED), leaves(1))
    assert (told.owner, await pair[0].status(BERLIN)) == ("", "Offline")


async def test_an_end_that_waited_for_a_goodbye_takes_the_cloudlet_offline(
    pair: tuple[StoreDriver, StoreDriver],
) -> None:
    await site(pair[0])
    grant = await pair[0].grant(BERLIN, "maintenance-start", spec={})
    assert (await overtaken(pair, leaves(1), ends(grant, ActionResult.FAILED))).status == "Offline"


async def test_a_connection_that_waited_for_the_end_of_its_cloudlet_is_refused(
    pair: tuple[StoreDriver, StoreDriver],
) -> None:
    await site(pair[0])
    grant = await pair[0].grant(BERLIN, "delete")
    found = await overtaken(pair, ends(grant), connects(2))
    assert (found.standing, found.why) == (ConnectionDecision.REFUSED, f"there is no such Cloudlet: {BERLIN}")


async def test_a_rekey_that_waited_for_a_connection_does_not_bring_the_older_one_back(
    pair: tuple[StoreDriver, StoreDriver],
) -> None:
    await site(pair[0])
    grant = await pair[0].grant(BERLIN, "rekey", spec={"key": ""})
    assert (await overtaken(pair, connects(2), ends(grant))).status == "Offline"
    assert (await pair[0].inventory.read_object(BERLIN)).info["crm"]["notify_id"] == 2


async def test_an_answer_that_waited_for_the_end_is_not_handed_to_an_action_that_is_over(
    pair: tuple[StoreDriver, StoreDriver],
) -> None:
    await site(pair[0])
    grant = await pair[0].grant(BERLIN, "upgrade", spec={"version": "v2"})
    told = await overtaken(pair, ends(grant, ActionResult.FAILED), says("Ready", 1))
    assert told.owner == ""
    assert told.everything
    assert await pair[0].status(BERLIN) == "UpdateError"


async def test_a_begin_that_waited_for_a_goodbye_is_refused(pair: tuple[StoreDriver, StoreDriver]) -> None:
    await site(pair[0])
    admission = await overtaken(
        pair,
        leaves(1),
        partial(claims.begin_action, hooks=HOOKS, access=EVERYBODY, claim=claim(CLUSTER, "create", spec={})),
    )
    assert admission.refusal
    assert "it is Offline" in admission.refusal.message


async def test_a_connection_that_waited_for_a_begin_tells_it(pair: tuple[StoreDriver, StoreDriver]) -> None:
    await site(pair[0])
    found = await overtaken(
        pair,
        partial(claims.begin_action, hooks=HOOKS, access=EVERYBODY, claim=claim(CLUSTER, "create", spec={})),
        connects(2),
    )
    assert found.running == [CLUSTER]


async def test_a_connection_that_waited_for_the_end_of_an_update_keeps_what_it_wrote(
    pair: tuple[StoreDriver, StoreDriver],
) -> None:
    driver = pair[0]
    await site(driver)
    await driver.finish(await driver.grant(CLUSTER, "create", spec={}))
    grant = await driver.grant(CLUSTER, "update", spec={"nodes": 2})
    await overtaken(pair, ends(grant, info={"runtime": {"endpoint": "x"}}), connects(2))
    assert (await driver.inventory.read_object(CLUSTER)).info["runtime"] == {"endpoint": "x"}


async def test_a_delete_that_waited_for_a_cluster_is_refused(pair: tuple[StoreDriver, StoreDriver]) -> None:
    await site(pair[0])
    begin = partial(claims.begin_action, hooks=HOOKS, access=EVERYBODY, claim=claim(CLUSTER, "create", spec={}))
    admission = await overtaken(
        pair, begin, partial(claims.begin_action, hooks=HOOKS, access=EVERYBODY, claim=claim(BERLIN, "delete"))
    )
    assert admission.refusal
    assert [holder.owner for holder in admission.refusal.holders] == [CLUSTER]
