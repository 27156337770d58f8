"""Policies and failovers act on behalf of whoever made them."""

from __future__ import annotations

import asyncio

import pytest

from domain.model import ActionResult, HistoryLine, Request
from tests.patience import PATIENCE
from tests.rights import WHY, without_right
from tests.test_edge.kit import Edge
from tests.test_edge.test_following import SITES, policy_of, two_sites

pytestmark = pytest.mark.stores("postgres")

ALWAYS = {"auto_provision": {"app": "shop", "cloudlets": SITES[:1], "interval": 0.3, "min_active": 1}}


async def line_with(edge: Edge, path: str, words: str) -> HistoryLine:
    """The first line of an object's history with these words, once it is there."""
    async with asyncio.timeout(PATIENCE):
        while True:
            for line in await edge.user.history(path):
                if words in line.message:
                    return line
            await asyncio.sleep(0.02)


async def test_a_policy_does_nothing_that_its_maker_may_not_do_any_more(edge: Edge) -> None:
    await two_sites(edge)
    path, app = policy_of(edge), edge.at("berlin", "c1", "shop")
    await edge.user.do(path, "create", spec=ALWAYS)
    await edge.until(app, "Ready")
    made = (await edge.user.history(app))[0]
    assert (made.requested_by, made.on_behalf_of) == (path, "tester")
    with without_right(edge.user.service, "create", app):
        await edge.user.do(app, "delete")
        words = f"tester may not create {app}: a denial forbids it: {WHY}"
        assert (await line_with(edge, path, words)).actor == "Policy"
        assert (await line_with(edge, app, f"refused: {words}")).to == "None"
        assert await edge.status(app) == "None"
        spec = {"auto_provision": {**ALWAYS["auto_provision"], "interval": 0.2}}
        assert f"tester may not create {app}" in await edge.user.refused(path, "update", spec=spec)
        request = Request(path=path, action="update", spec=spec, requested_by="ann")  # who answers for it from now on
        assert (await edge.user.asking.request_action(request)).admission.grant
        await edge.until(app, "Ready")
        assert (await edge.user.history(app))[-1].on_behalf_of == "ann"


async def test_a_failover_makes_nothing_that_its_operator_may_not_make(edge: Edge) -> None:
    await two_sites(edge)
    berlin, moved = edge.at("berlin"), edge.at("munich", "c1", "shop")
    await edge.user.do(edge.at("berlin", "c1", "shop"), "create", spec={})
    with without_right(edge.user.service, "create", moved):
        outcome = await edge.user.do(berlin, "maintenance-start", spec={"failover": True})
        assert (outcome.result, outcome.status) == (ActionResult.FAILED, "Ready")
        assert f"tester may not create {moved}" in outcome.message
    assert (await edge.user.do(berlin, "maintenance-start", spec={"failover": True})).status == "UnderMaintenance"
    assert (await edge.user.history(moved))[-1].on_behalf_of == "tester"
