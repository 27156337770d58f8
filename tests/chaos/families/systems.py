"""Chaos stories of systems."""

from __future__ import annotations

from typing import Any

from domain.model import Outcome
from domain.services.ports import ServiceOrder
from providers.services.ledger import BackendLedger
from tests.chaos.stories import Act, Story, Told, act, done
from tests.chaos.world import World
from tests.patience import PATIENCE

ROOT = "system:{ns}"
RUN: dict[str, Any] = {"command": ["run"]}
NEVER = {**RUN, "environment": {"SIMULATED": "unhealthy"}}
TREE = {"parts": [{"name": "web", **RUN}, {"name": "in", "parts": [{"name": "a", **RUN}, {"name": "b", **RUN}]}]}
OTHER = {"parts": [{"name": "a", **RUN, "instances": 2}, {"name": "c", **RUN}]}
CRASHING = {**RUN, "environment": {"SIMULATED": "crash"}}
BROKEN = {"parts": [{"name": "a", **NEVER}, {"name": "c", **RUN}]}
CRASHED = {"parts": [{"name": "a", **CRASHING}, {"name": "c", **RUN}]}  # fails at once


INSIDE = ":in"
CREATED, DEPLOYED = done("", "create", backend="simulated"), done("", "deploy", definition=TREE)


async def cancel(world: World, path: str) -> Outcome:
    ticket = await world.ask(f"{path}{INSIDE}", "deploy", spec={"definition": BROKEN})
    await world.cancel(f"{path}{INSIDE}")
    return await world.end(ticket)


async def take_over(world: World, path: str) -> Outcome:
    await world.ask(f"{path}{INSIDE}", "deploy", spec={"definition": BROKEN})
    return await world.do(path, "delete")


async def orphan_removed(world: World, path: str) -> Outcome:
    """A service that no record knows, because its order was late: an action of its own removes it."""
    late, generation = f"{path}:late", 2 * (await world.see(path)).epoch + 1
    order = ServiceOrder(late, generation, {"instances": 1, **RUN})
    await BackendLedger("simulated", world.cloud_database).record_service_orders([order])
    return await world.do(late, "discard", spec={"place": "simulated"})


ENDING = ((ROOT, "delete", None),)


def story(name: str, act: Act, *before: Told, **more: Any) -> Story:
    return Story(name, ROOT, act, before, ending=ENDING, family="systems", **more)


# fmt: off
STORIES = (
    story("create", act("", "create", backend="simulated"), status="stable"),
    story("deploy", act("", "deploy", definition=TREE), CREATED, status="stable"),
    story("replace", act(INSIDE, "deploy", definition=OTHER), CREATED, DEPLOYED, on=f"{ROOT}{INSIDE}", status="stable"),
    story("fail", act(INSIDE, "deploy", definition=BROKEN, deadline=2), CREATED, DEPLOYED, on=f"{ROOT}{INSIDE}",
          result="failed", status="degraded"),
    story("roll back", act(INSIDE, "deploy", definition=CRASHED, deadline=PATIENCE, rollback=True), CREATED, DEPLOYED,
          on=f"{ROOT}{INSIDE}", result="failed", status="stable"),
    story("teardown", act("", "teardown"), CREATED, DEPLOYED, status="stable"),
    # Hardly any time: the services go on their own when the teardown has failed.
    story("teardown too late", act("", "teardown", deadline=0.01), CREATED, DEPLOYED, result="failed"),
    story("delete", act("", "delete"), CREATED, DEPLOYED, status="None"),
    story("cancel", cancel, CREATED, DEPLOYED, on=f"{ROOT}{INSIDE}", result="cancelled", plain=False),
    story("orphan removed", orphan_removed, CREATED, on=f"{ROOT}:late", status="None", plain=False),
    story("takeover", take_over, CREATED, DEPLOYED, status="None", plain=False),
)
# fmt: on
# Together these pass through every activity of the family.
COVERING = {"create", "takeover", "fail", "roll back", "teardown too late"}
