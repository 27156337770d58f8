"""A request ID belongs to one action with one spec by one user; another request with it is refused."""

from __future__ import annotations

from functools import partial

import pytest
import sqlalchemy as sa

from activities.access import Authorizer
from domain.access import Subject
from domain.errors import Category, Refused
from domain.model import Request
from store.identity import mark_restored
from store.inventory import SqlInventory
from store.schema import actions
from tests.test_store.driver import HOOKS, WEB, StoreDriver, claim, group

SPEC = {"subGroups": [group()]}


@pytest.mark.parametrize(
    ("action", "more", "was"),
    [
        ("resume", {}, "suspend"),
        ("suspend", {"requested_by": "mallory"}, "suspend by somebody else"),
        ("resume", {"requested_by": "mallory"}, "suspend by somebody else"),
    ],
)
async def test_an_id_that_was_used_for_something_else_is_refused_and_nothing_is_written(
    driver: StoreDriver, action: str, more: dict[str, str], was: str
) -> None:
    await driver.make()
    await driver.act(WEB, "suspend", "Suspended", request_id="q1", requested_by="eve")
    before = await driver.dump()
    refusal = await driver.refusal(WEB, action, request_id="q1", **{"requested_by": "eve", **more})
    assert refusal.category is Category.INVALID
    assert refusal.message == f"this id was used for {was} on {WEB}: q1"
    assert "--request-id" in refusal.hint
    assert await driver.dump() == before


async def test_another_spec_is_another_request_but_another_order_of_its_keys_is_not(driver: StoreDriver) -> None:
    grant = await driver.grant(WEB, "create", request_id="q1", spec=SPEC)
    await driver.land(grant, "Running")
    outcome = await driver.finish(grant)
    turned = {"subGroups": [dict(reversed(group().items()))]}
    assert (await driver.begin(WEB, "create", request_id="q1", spec=turned)).outcome == outcome
    larger = {"subGroups": [group(size=3)]}
    refusal = await driver.refusal(WEB, "create", request_id="q1", spec=larger)
    assert refusal.message == f"this id was used for create with another spec on {WEB}: q1"


async def test_the_spec_as_it_was_asked_for_decides_whatever_examining_made_of_it(driver: StoreDriver) -> None:
    asked = claim(WEB, "create", request_id="q1", spec=SPEC).model_copy(update={"spec_digest": "as asked"})
    grant = (await driver.inventory.begin_action(asked)).grant
    assert grant
    await driver.finish(await driver.born(grant))
    moved = claim(WEB, "create", request_id="q1", spec={"subGroups": [group(region="eu-2")]})
    assert (await driver.inventory.begin_action(moved.model_copy(update={"spec_digest": "as asked"}))).outcome


async def test_an_action_from_before_specs_were_told_apart_is_still_found(driver: StoreDriver) -> None:
    await driver.make()
    outcome = await driver.act(WEB, "suspend", "Suspended", request_id="q1")
    await driver.database.run_transaction(
        lambda connection: connection.execute(sa.update(actions).values(spec_digest="")).rowcount
    )
    assert (await driver.begin(WEB, "suspend", request_id="q1")).outcome == outcome


class Nobody(Authorizer):
    """Allows nothing to anybody."""

    def authorize_sender(self, request: Request, sender: Subject) -> None:
        raise Refused(Category.NOT_ALLOWED, "not for you")


async def test_what_became_of_a_request_is_told_to_nobody_who_may_not_ask_for_it(driver: StoreDriver) -> None:
    await driver.make()
    await driver.act(WEB, "suspend", "Suspended", request_id="q1", requested_by="eve")

    strict = SqlInventory(driver.database, HOOKS, Nobody())
    admission = await strict.begin_action(claim(WEB, "suspend", request_id="q1", requested_by="eve"))
    assert admission.outcome is None
    assert admission.refusal
    assert admission.refusal.message == "not for you"


async def test_what_was_granted_to_a_run_stays_granted_to_it(driver: StoreDriver) -> None:
    await driver.make()
    grant = await driver.grant(WEB, "suspend", run="r1", request_id="q1")

    strict = SqlInventory(driver.database, HOOKS, Nobody())
    assert (await strict.begin_action(claim(WEB, "suspend", "r1", request_id="q1"))).grant == grant


async def test_whoever_may_not_ask_is_told_so_and_not_that_the_store_was_restored(driver: StoreDriver) -> None:
    """The sender is judged before the run is compared with the store's incarnation."""
    await driver.make()
    after, _ = await driver.database.run_transaction(partial(mark_restored, hooks=HOOKS))
    early = claim(WEB, "suspend", started=after.since)
    strict = await SqlInventory(driver.database, HOOKS, Nobody()).begin_action(early)
    assert strict.refusal
    assert strict.refusal.message == "not for you"
    allowed = await driver.inventory.begin_action(early)
    assert allowed.refusal
    assert allowed.refusal.message.startswith("the store was restored from a backup at ")
