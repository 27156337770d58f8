"""Nodes act on behalf of whoever maintains them: what that operator may not do to a machine, the node does not do."""

from __future__ import annotations

import pytest

from domain.model import ActionResult
from tests.rights import without_right
from tests.test_machines.site import MachineSite

pytestmark = pytest.mark.stores("postgres")


@pytest.mark.parametrize(("action", "mode"), [("migrate", "move"), ("stop", "stop")])
async def test_maintenance_does_not_do_what_its_operator_may_not(site: MachineSite, action: str, mode: str) -> None:
    await site.with_machine("a", nodes=2)
    with without_right(site.service, action, site.machine("a")):
        outcome = await site.do(site.node(1), "maintain", mode=mode)
        assert (outcome.result, outcome.status) == (ActionResult.FAILED, "ENABLED")
        assert f"tester may not {action} {site.machine('a')}" in outcome.message
        refused = [line.message for line in await site.history(site.machine("a")) if line.effect == "ignored"]
        assert refused[0].startswith(f"refused: tester may not {action}")
        assert await site.status(site.machine("a")) == "RUNNING"
    assert await site.to(site.node(1), "maintain", mode=mode) == "MAINTENANCE"
    last = (await site.history(site.machine("a")))[-1]
    assert (last.requested_by, last.on_behalf_of) == (site.node(1), "tester")
    await site.at_rest()
