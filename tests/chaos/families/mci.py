"""Chaos stories of MCIs and VMs."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from temporalio.service import RPCError

from client.actions import Ticket
from domain.errors import RatchetError
from domain.mci.messages import CONTINUE, WITHDRAW, HoldDecision, SurveyRequest
from domain.model import ActionResult, Outcome, Request
from domain.ports import VmFacts, VmOrder
from domain.requests import EvictRun
from domain.wire import MAKE_WAY_ACTIVITY
from starter.mci import requests
from tests.chaos.stories import Act, Story, Told
from tests.chaos.world import World
from tests.patience import PATIENCE

ROOT = "ns:{ns}:mci:web"
VM = ":vm:aws0-1"


def act(action: str, below: str = "", force: bool = False) -> Act:
    async def do(world: World, path: str) -> Outcome:
        return await world.do(f"{path}{below}", action, force=force)

    return do


def own_places(path: str) -> dict[str, Any]:
    """Three VMs in each of two regions that no other story uses: what is shared there comes and goes with it."""
    first = 1000 + 2 * int(path.split(":")[1].removeprefix("w"))
    group = {"subGroupSize": 3, "csp": "aws"}
    return {"subGroups": [{**group, "name": f"aws{n}", "region": f"r{first + n}"} for n in range(2)]}


async def create(world: World, path: str) -> Outcome:
    return await world.do(path, "create", spec=own_places(path))


async def neighbour(world: World, path: str) -> None:
    """Another MCI in the same places, which stays."""
    assert (await world.do(f"{path}-too", "create", spec=own_places(path))).result == "succeeded"


async def created(world: World, path: str) -> None:
    assert (await create(world, path)).result == "succeeded"


async def suspended(world: World, path: str) -> None:
    assert (await world.do(path, "suspend")).result == "succeeded"


async def partly_failed(world: World, path: str) -> None:
    await world.fault(kind="fail", vm=f"{path}:vm:aws0-2", verb="create", times=1)
    assert (await create(world, path)).result == "partial"


async def cancelled(world: World, path: str) -> Outcome:
    """A reboot that hangs and is cancelled: the clouds are asked what each VM is."""
    await world.fault(kind="hang", vm=f"{path}:*", verb="reboot", seconds=PATIENCE)  # a dead worker delays the cancel
    ticket = await world.ask(path, "reboot")
    await world.cancel(path)
    return await world.end(ticket)


async def preempted(world: World, path: str) -> Outcome:
    """A forced suspend takes over from a reboot that hangs."""
    await world.fault(kind="hang", vm=f"{path}:*", verb="reboot", seconds=2)
    await world.ask(path, "reboot")
    return await world.do(path, "suspend", force=True)


async def evicted(world: World, path: str) -> Outcome:
    """A worker ends a reboot that hangs, as it does for whoever was not let in for a minute; then a suspend begins."""
    await world.fault(kind="hang", vm=f"{path}:*", verb="reboot", seconds=10 * PATIENCE)  # it never ends by itself
    ticket = await world.ask(path, "reboot")
    forced = Request(path=path, action="suspend", force=True, requested_by="chaos")
    await world.patiently(MAKE_WAY_ACTIVITY, EvictRun(request=forced, run=ticket.run), EvictRun)
    assert (await world.end(ticket)).result == "cancelled"
    return await world.do(path, "suspend", force=True)


async def rolled_back(world: World, path: str) -> Outcome:
    """One VM cannot be made: everything that was made is removed."""
    await world.fault(kind="fail", vm=f"{path}:vm:aws0-2", verb="create")
    return await world.do(path, "create", spec={**own_places(path), "policyOnPartialFailure": "rollback"})


async def held(world: World, path: str) -> Ticket:
    """Prepared, and waiting for a decision."""
    ticket = await world.ask(path, "create", spec={**own_places(path), "option": "hold"})
    while await world.is_running(path):
        with suppress(RatchetError):  # whoever could tell may be dead just now
            if (await world.see(path)).status == "Prepared":
                break
        await asyncio.sleep(0.1)
    return ticket


async def continued(world: World, path: str) -> Outcome:
    """Held, and continued by an update."""
    ticket = await held(world, path)
    while await world.is_running(path):
        with suppress(RatchetError, RPCError):  # no answer, or it came after the decision: then it is not holding
            await requests.send_decision(world.asking, path, CONTINUE, HoldDecision(requested_by="chaos"))
            break
        await asyncio.sleep(0.1)
    return await world.end(ticket)


async def withdrawn(world: World, path: str) -> Outcome:
    """Held, and given up by a signal."""
    ticket = await held(world, path)
    with suppress(RPCError):  # it was stopped
        await world.client.get_workflow_handle(path).signal(WITHDRAW, HoldDecision(requested_by="chaos"))
    return await world.end(ticket)


def scale(action: str) -> Act:
    async def do(world: World, path: str) -> Outcome:
        return await world.do(path, action, spec={"subGroup": "aws0", "count": 2})

    return do


async def reconciled(world: World, path: str) -> Outcome:
    """Not an action; but a worker that dies in it must leave everything as it was."""
    await requests.run_survey(world.asking, SurveyRequest(path=path, reconcile=True))
    status = (await world.see(path)).status
    return Outcome(path=path, action="reconcile", result=ActionResult.SUCCEEDED, status=status)


async def forgotten(world: World, path: str) -> Outcome:
    """Only the records go; what is left in the cloud is ended by hand, as the outcome says."""
    outcome = await world.do(path, "delete", force=True)
    async with asyncio.timeout(PATIENCE):
        while living := [vm for vm in await world.books(path) if vm.state != "terminated"]:
            for vm in living:  # a cloud in trouble says no, or lies: whoever does it by hand looks, and tries again
                by_hand = VmOrder(vm.path, f"by hand {vm.cloud_id}", vm.cloud_id, epoch=vm.epoch)
                await world.cloud.perform_orders("terminate", vm.region, [by_hand])
            await asyncio.sleep(0.1)
    return outcome


async def orphan_removed(world: World, path: str) -> Outcome:
    """A VM that no record knows, because its order was late: an action of its own terminates it."""
    return await _orphan(world, path, "late-1", "remove")


async def orphan_adopted(world: World, path: str) -> Outcome:
    """A VM that no record knows, under a name of one of the subgroups: it gets a record."""
    return await _orphan(world, path, f"{own_places(path)['subGroups'][0]['name']}-9", "adopt")


async def _orphan(world: World, path: str, name: str, action: str) -> Outcome:
    region, vm = own_places(path)["subGroups"][0]["region"], f"{path}:vm:{name}"
    (made,) = await world.cloud.perform_orders("create", region, [VmOrder(vm, f"late {vm}", epoch=1)])
    assert isinstance(made, VmFacts)
    return await world.do(f"{vm}:orphan:{made.cloud_id}", action, spec={"place": f"aws/{region}"})


ENDING = ((ROOT, "delete", None), (f"{ROOT}-too", "delete", None))


def story(name: str, act: Act, before: tuple[Told, ...] = (), **more: Any) -> Story:
    return Story(name, ROOT, act, before, ending=ENDING, **more)


STORIES = (
    story("create", create, effects=1, status="Running:6 (R:6/6)"),
    story("suspend", act("suspend"), (created,), effects=2, status="Suspended:6 (R:0/6)"),
    story("resume", act("resume"), (created, suspended), effects=3, status="Running:6 (R:6/6)"),
    story("reboot", act("reboot"), (created,), effects=2, status="Running:6 (R:6/6)"),
    story("terminate", act("terminate"), (created,), effects=2, status="Terminated:6 (R:0/6)"),
    story("refine", act("refine"), (partly_failed,), effects=1, status="Running:5 (R:5/5)"),
    story("delete", act("delete"), (created,), effects=2, status="None"),
    story("delete by force", forgotten, (created,), status="None"),
    story("suspend of one VM", act("suspend", ":vm:aws0-1"), (created,), on=f"{ROOT}:vm:aws0-1", status="Suspended"),
    story("cancel", cancelled, (created,), result="cancelled", status="Running:6 (R:6/6)", plain=False),
    story("takeover", preempted, (created,), status="Suspended:6 (R:0/6)", plain=False),
    story("made to make way", evicted, (created,), effects=2, status="Suspended:6 (R:0/6)", plain=False),
    story("delete beside another", act("delete"), (created, neighbour), effects=2, status="None"),
    story("rollback", rolled_back, result="failed", status="None", effects=2),
    story("withdraw", withdrawn, result="cancelled", status="None"),
    story("continue", continued, effects=1),
    story("scale-out", scale("scale-out"), (created,), effects=1, status="Running:8 (R:8/8)"),
    story("scale-in", scale("scale-in"), (created,), effects=2, status="Running:4 (R:4/4)"),
    story("orphan removed", orphan_removed, (created,), plain=False),
    story("orphan adopted", orphan_adopted, (created,), plain=False),
    story("reconcile", reconciled, (created,), effects=1, status="Running:6 (R:6/6)"),
)
# Together these pass through every activity of the family.
COVERING = {
    "orphan removed",
    "orphan adopted",
    "rollback",
    "reconcile",
    "delete by force",
    "made to make way",
    "withdraw",
    "continue",
}
