"""MCIs and VMs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from domain.model import Outcome
from tests.chaos.stories import Story
from tests.chaos.world import World
from tests.user import spec

ROOT = "ns:{ns}:mci:web"
Act = Callable[[World, str], Coroutine[Any, Any, Outcome]]


def act(action: str, below: str = "", force: bool = False) -> Act:
    async def do(world: World, path: str) -> Outcome:
        return await world.do(f"{path}{below}", action, force=force)

    return do


async def create(world: World, path: str) -> Outcome:
    return await world.do(path, "create", spec=spec(3, ["aws"], regions=2))


async def created(world: World, path: str) -> None:
    assert (await create(world, path)).result == "succeeded"


async def suspended(world: World, path: str) -> None:
    assert (await world.do(path, "suspend")).result == "succeeded"


async def partly_failed(world: World, path: str) -> None:
    await world.fault(kind="fail", vm=f"{path}:vm:aws0-2", verb="create", times=1)
    assert (await create(world, path)).result == "partial"


async def cancelled(world: World, path: str) -> Outcome:
    """A reboot that hangs for a while and is cancelled meanwhile: the clouds are asked what each VM is."""
    await world.fault(kind="hang", vm=f"{path}:*", verb="reboot", seconds=2)
    ticket = await world.ask(path, "reboot")
    await world.asking.cancel(path)
    return await world.asking.outcome(path, ticket.run if ticket else None)


async def preempted(world: World, path: str) -> Outcome:
    """A forced suspend takes over from a reboot that hangs."""
    await world.fault(kind="hang", vm=f"{path}:*", verb="reboot", seconds=2)
    await world.ask(path, "reboot")
    return await world.do(path, "suspend", force=True)


STORIES = (
    Story("create", ROOT, create, effects=1, status="Running:6 (R:6/6)"),
    Story("suspend", ROOT, act("suspend"), (created,), effects=2, status="Suspended:6 (R:0/6)"),
    Story("resume", ROOT, act("resume"), (created, suspended), effects=3, status="Running:6 (R:6/6)"),
    Story("reboot", ROOT, act("reboot"), (created,), effects=2, status="Running:6 (R:6/6)"),
    Story("terminate", ROOT, act("terminate"), (created,), effects=2, status="Terminated:6 (R:0/6)"),
    Story("refine", ROOT, act("refine"), (partly_failed,), effects=1, status="Running:5 (R:5/5)"),
    Story("delete", ROOT, act("delete"), (created,), effects=2, status="None"),
    Story("delete by force", ROOT, act("delete", force=True), (created,), status="None"),
    Story("suspend of one VM", ROOT, act("suspend", ":vm:aws0-1"), (created,), status="Suspended"),
    Story("cancel", ROOT, cancelled, (created,), result="cancelled", status="Running:6 (R:6/6)"),
    Story("takeover", ROOT, preempted, (created,), status="Suspended:6 (R:0/6)"),
)
