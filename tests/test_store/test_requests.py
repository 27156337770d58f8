"""A request id belongs to one action with one spec by one subject. Anything else with it is refused."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from domain.errors import Category, Refused
from domain.model import Request
from store.inventory import SqlInventory
from store.schema import actions
from tests.test_store.scene import WEB, Scene, claim, group

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
    scene: Scene, action: str, more: dict[str, str], was: str
) -> None:
    await scene.make()
    await scene.act(WEB, "suspend", "Suspended", request_id="q1", requested_by="eve")
    before = await scene.dump()
    refusal = await scene.refusal(WEB, action, request_id="q1", **{"requested_by": "eve", **more})
    assert refusal.category is Category.INVALID
    assert refusal.message == f"this id was used for {was} on {WEB}: q1"
    assert "--request-id" in refusal.hint
    assert await scene.dump() == before


async def test_another_spec_is_another_request_but_another_order_of_its_keys_is_not(scene: Scene) -> None:
    grant = await scene.grant(WEB, "create", request_id="q1", spec=SPEC)
    await scene.land(grant, "Running")
    outcome = await scene.finish(grant)
    turned = {"subGroups": [dict(reversed(group().items()))]}
    assert (await scene.begin(WEB, "create", request_id="q1", spec=turned)).outcome == outcome
    larger = {"subGroups": [group(size=3)]}
    refusal = await scene.refusal(WEB, "create", request_id="q1", spec=larger)
    assert refusal.message == f"this id was used for create with another spec on {WEB}: q1"


async def test_the_spec_as_it_was_asked_for_decides_whatever_examining_made_of_it(scene: Scene) -> None:
    asked = claim(WEB, "create", request_id="q1", spec=SPEC).model_copy(update={"spec_digest": "as asked"})
    grant = (await scene.inventory.begin(asked)).grant
    assert grant
    await scene.finish(await scene.born(grant))
    moved = claim(WEB, "create", request_id="q1", spec={"subGroups": [group(region="eu-2")]})
    assert (await scene.inventory.begin(moved.model_copy(update={"spec_digest": "as asked"}))).outcome


async def test_an_action_from_before_specs_were_told_apart_is_still_found(scene: Scene) -> None:
    await scene.make()
    outcome = await scene.act(WEB, "suspend", "Suspended", request_id="q1")
    await scene.database.run(lambda connection: connection.execute(sa.update(actions).values(spec_digest="")).rowcount)
    assert (await scene.begin(WEB, "suspend", request_id="q1")).outcome == outcome


async def test_what_became_of_a_request_is_told_to_nobody_who_may_not_ask_for_it(scene: Scene) -> None:
    await scene.make()
    await scene.act(WEB, "suspend", "Suspended", request_id="q1", requested_by="eve")

    def nobody(_request: Request) -> None:
        raise Refused(Category.NOT_ALLOWED, "not for you")

    strict = SqlInventory(scene.database, nobody)
    admission = await strict.begin(claim(WEB, "suspend", request_id="q1", requested_by="eve"))
    assert admission.outcome is None
    assert admission.refusal
    assert admission.refusal.message == "not for you"


async def test_what_was_granted_to_a_run_stays_granted_to_it(scene: Scene) -> None:
    await scene.make()
    grant = await scene.grant(WEB, "suspend", run="r1", request_id="q1")

    def nobody(_request: Request) -> None:
        raise Refused(Category.NOT_ALLOWED, "not for you")

    strict = SqlInventory(scene.database, nobody)
    assert (await strict.begin(claim(WEB, "suspend", "r1", request_id="q1"))).grant == grant
