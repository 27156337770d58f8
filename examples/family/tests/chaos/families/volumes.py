"""Chaos stories of volumes."""

from __future__ import annotations

from typing import Any

from domain.model import Outcome
from domain.singleorder import ProviderOrder
from providers.volumes import simulated_volumes
from tests.chaos.stories import Act, Story, Told, act, done
from tests.chaos.world import World

ROOT = "project:{ns}:volume:data"
ENDING = ((ROOT, "detach", None), (ROOT, "delete", None))
CREATED, ATTACHED = done("", "create", size=20), done("", "attach", server="web-1")


async def ledger(world: World, path: str) -> list[str]:
    """What was really done to the volume."""
    return await simulated_volumes(world.cloud_database, 0, 0).list_carried_out_verbs(path)


async def cancel(world: World, path: str) -> Outcome:
    """An attach that hangs, and is cancelled."""
    await world.fault(kind="hang", csp="volumes", vm=path, verb="attach", seconds=30)
    ticket = await world.ask(path, "attach", spec={"server": "web-1"})
    await world.asking.cancel_action(path)
    return await world.end(ticket)


async def orphan_removed(world: World, path: str) -> Outcome:
    """A volume that no record knows, because its order was late: an action of its own removes it."""
    provider = simulated_volumes(world.cloud_database, 0, 0)
    await provider.perform_order(ProviderOrder(path, "volume", "create", f"late {path}", 1))
    return await world.do(path, "discard", spec={"place": "volumes"})


def story(name: str, work: Act, *before: Told, told: tuple[str, ...] = (), **more: Any) -> Story:
    return Story(name, ROOT, work, before, ending=ENDING, family="volumes", ledger=ledger, told=told, **more)


# fmt: off
STORIES = (
    story("create", act("", "create", size=20), status="Available", told=("create",)),
    story("attach", act("", "attach", server="web-1"), CREATED, status="InUse", told=("create", "attach")),
    story("detach", act("", "detach"), CREATED, ATTACHED, status="Available",
          told=("create", "attach", "detach")),
    story("resize", act("", "resize", size=40), CREATED, status="Available", told=("create", "resize")),
    story("delete", act("", "delete"), CREATED, status="None", told=("create", "delete")),
    story("cancel", cancel, CREATED, result="cancelled", status="Available", plain=False, told=("create",)),
    story("orphan removed", orphan_removed, status="None", plain=False, told=("create", "delete")),
)
# fmt: on
COVERING = {"cancel"}  # together these pass through every activity of the family
