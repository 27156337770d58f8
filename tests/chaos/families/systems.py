"""Chaos stories of systems."""

from __future__ import annotations

from typing import Any

from domain.model import Outcome
from domain.services.ports import ServiceOrder
from providers.services.ledger import BackendLedger
from tests.chaos.stories import Act, Story, Told
from tests.chaos.world import World

ROOT = "system:{ns}"
RUN: dict[str, Any] = {"command": ["run"]}
NEVER = {**RUN, "environment": {"SIMULATED": "unhealthy"}}
TREE = {"parts": [{"name": "web", **RUN}, {"name": "in", "parts": [{"name": "a", **RUN}, {"name": "b", **RUN}]}]}
OTHER = {"parts": [{"name": "a", **RUN, "instances": 2}, {"name": "c", **RUN}]}
BROKEN = {"parts": [{"name": "a", **NEVER}, {"name": "c", **RUN}]}


async def create(world: World, path: str) -> Outcome:
    return await world.do(path, "create", spec={"backend": "simulated"})


async def created(world: World, path: str) -> None:
    assert (await create(world, path)).result == "succeeded"


async def deploy(world: World, path: str) -> Outcome:
    return await world.do(path, "deploy", spec={"definition": TREE})


async def deployed(world: World, path: str) -> None:
    assert (await deploy(world, path)).result == "succeeded"


async def replace(world: World, path: str) -> Outcome:
    return await world.do(f"{path}:in", "deploy", spec={"definition": OTHER})


async def fail(world: World, path: str) -> Outcome:
    return await world.do(f"{path}:in", "deploy", spec={"definition": BROKEN, "deadline": 2})


async def roll_back(world: World, path: str) -> Outcome:
    spec = {"definition": BROKEN, "deadline": 6, "rollback": True}
    return await world.do(f"{path}:in", "deploy", spec=spec)


async def tear_down(world: World, path: str) -> Outcome:
    return await world.do(path, "teardown")


async def tear_down_late(world: World, path: str) -> Outcome:
    """Hardly any time: the services go on their own when the teardown has failed."""
    return await world.do(path, "teardown", spec={"deadline": 0.01})


async def delete(world: World, path: str) -> Outcome:
    return await world.do(path, "delete")


async def cancel(world: World, path: str) -> Outcome:
    ticket = await world.ask(f"{path}:in", "deploy", spec={"definition": BROKEN})
    await world.asking.cancel_action(f"{path}:in")
    return await world.end(ticket)


async def take_over(world: World, path: str) -> Outcome:
    await world.ask(f"{path}:in", "deploy", spec={"definition": BROKEN})
    return await delete(world, path)


async def orphan_removed(world: World, path: str) -> Outcome:
    """A service that no record knows, because its order was late: an action of its own removes it."""
    late, generation = f"{path}:late", 2 * (await world.see(path)).epoch + 1
    order = ServiceOrder(late, generation, {"instances": 1, **RUN})
    await BackendLedger("simulated", world.cloud_database).record_service_orders([order])
    return await world.do(late, "discard", spec={"place": "simulated"})


ENDING = ((ROOT, "delete", None),)


def story(name: str, act: Act, *before: Told, **more: Any) -> Story:
    return Story(name, ROOT, act, before, ending=ENDING, family="systems", **more)


STORIES = (
    story("create", create, status="stable"),
    story("deploy", deploy, created, status="stable"),
    story("replace", replace, created, deployed, on=f"{ROOT}:in", status="stable"),
    story("fail", fail, created, deployed, on=f"{ROOT}:in", result="failed", status="degraded"),
    story(
        "roll back",
        roll_back,
        created,
        deployed,
        on=f"{ROOT}:in",
        result="failed",
        status="stable",
    ),
    story("teardown", tear_down, created, deployed, status="stable"),
    story("teardown too late", tear_down_late, created, deployed, result="failed"),
    story("delete", delete, created, deployed, status="None"),
    story("cancel", cancel, created, deployed, on=f"{ROOT}:in", result="cancelled", plain=False),
    story("orphan removed", orphan_removed, created, on=f"{ROOT}:late", status="None", plain=False),
    story("takeover", take_over, created, deployed, status="None", plain=False),
)
# Together these pass through every activity of the family.
COVERING = {"create", "takeover", "roll back", "teardown too late"}
