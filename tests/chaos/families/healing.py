"""Chaos stories of self-healing: if a worker dies during a sweep, the next worker does it."""

from __future__ import annotations

import asyncio

from domain.healing import ANY_ACTION, SweepOptions
from domain.model import ActionResult, Outcome
from tests.chaos.families import mci
from tests.chaos.stories import Story
from tests.chaos.world import World
from tests.patience import PATIENCE


async def cut_off(world: World, path: str) -> None:
    """A suspend that hangs, and is terminated in the Web UI."""
    await world.fault(kind="hang", vm=f"{path}:*", verb="suspend", seconds=30)
    await world.ask(path, "suspend")
    await world.client.get_workflow_handle(path).terminate("an operator")  # a call that goes out now hangs as well


async def sweep(world: World, path: str) -> Outcome:
    async with asyncio.timeout(PATIENCE):
        await world.asking.run_sweep(SweepOptions(limits={ANY_ACTION: 0}))
    return Outcome(path=path, action="heal", result=ActionResult.SUCCEEDED, status=(await world.see(path)).status)


STORIES = (
    Story("sweep", mci.ROOT, sweep, (mci.created, cut_off), status="Running:6 (R:6/6)", plain=False, family="healing"),
)
# Together these pass through every activity of self-healing.
COVERING = {"sweep"}
