"""Chaos stories of cloudlets, clusters, apps and policies. Their CRMs run beside the worker and are not killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from temporalio.service import RPCError

from domain.edge import messages
from domain.edge.faults import CrmFault
from domain.errors import Refused
from domain.model import ActionResult, ObjectView, Outcome
from domain.wire import ACTIONS_QUEUE, companion_id
from tests.chaos.crms import Webhook
from tests.chaos.stories import Act, Story, Told, act, done
from tests.chaos.world import World
from tests.patience import PATIENCE
from workers.crm import token_of_cloudlet
from workers.settings import WorkerSettings

ROOT = "org:{ns}"
CLOUDLET, OTHER = ":cloudlet:berlin", ":cloudlet:munich"
CLUSTER = f"{CLOUDLET}:cluster:c1"
APP = f"{CLUSTER}:app:shop"
POLICY = ":policy:follow"


def create(below: str) -> Act:
    return act(below, "create")


def there(*below: str, **patience: float) -> Told:
    """These are made first, one after the other; a cloudlet comes with its CRM, and has this patience with it."""

    async def make(world: World, path: str) -> None:
        for each in below:
            made = await (bring_up(each, patience=patience) if each in (CLOUDLET, OTHER) else create(each))(world, path)
            assert made.status == "Ready", made

    return make


def bring_up(below: str, keyed: bool = False, patience: Mapping[str, float] = MappingProxyType({})) -> Act:
    async def do(world: World, path: str) -> Outcome:
        """Its CRM comes when somebody waits for it: one that nobody expects tries again only after a while."""
        cloudlet = f"{path}{below}"
        key = {"key": token_of_cloudlet(WorkerSettings(home=world.home), cloudlet).create_token()} if keyed else {}
        ticket = await world.ask(cloudlet, "create", spec={"patience": {**world.crms.patience, **patience}, **key})
        world.crms.start(world.client, cloudlet)
        return await world.end(ticket)

    return do


async def leave(world: World, path: str) -> None:
    await world.crms.leave(world.client, path)


async def ledger(world: World, path: str) -> list[str]:
    return world.crms.ledger(path)


def broken(below: str, verb: str, kind: str = "fail", on: str = CLOUDLET, **more: Any) -> Told:
    """What the CRM does wrong."""

    async def tell(world: World, path: str) -> None:
        rule = {"kind": kind, "verb": verb, "path": f"*{below}", "message": "no room", **more}
        world.crms.set_faults(f"{path}{on}", [CrmFault.model_validate(rule)])

    return tell


async def until(world: World, path: str, true: Callable[[ObjectView], bool]) -> ObjectView:
    async with asyncio.timeout(PATIENCE):
        while not true(seen := await world.see(path)):
            await asyncio.sleep(0.05)
    return seen


def seen_as(view: ObjectView) -> Outcome:
    return Outcome(path=view.path, action="", result=ActionResult.SUCCEEDED, status=view.status)


async def reconnect(world: World, path: str) -> Outcome:
    """The CRM ends, and another one comes: Offline in between, and everything as it was."""
    cloudlet = f"{path}{CLOUDLET}"
    await world.crms.end(cloudlet, "v1")
    await until(world, cloudlet, lambda seen: seen.status == "Offline")
    world.crms.start(world.client, cloudlet)
    return seen_as(await until(world, cloudlet, lambda seen: seen.status == "Ready"))


async def stranger(world: World, path: str) -> None:
    """The CRM comes back with a cluster that no record knows."""
    cloudlet, cluster = f"{path}{CLOUDLET}", f"{path}{CLUSTER}"
    await world.crms.end(cloudlet, "v1")
    await until(world, cloudlet, lambda seen: seen.status == "Offline")
    world.crms.start(world.client, cloudlet).platform.put_instance(cluster, {}, "create", "")
    await until(world, cloudlet, lambda seen: seen.status == "Ready" and cluster in seen.info.get("orphans", ()))


async def keyed(world: World, path: str) -> None:
    """A cloudlet whose CRM has to prove who it is."""
    assert (await bring_up(CLOUDLET, keyed=True)(world, path)).status == "Ready"


async def rejoin(world: World, path: str) -> Outcome:
    """The CRM goes with a request that it never answered; the next one proves who it is, and answers."""
    cloudlet, cluster = f"{path}{CLOUDLET}", f"{path}{CLUSTER}"
    ticket = await world.ask(cluster, "create")
    await until(world, cluster, lambda seen: seen.status == "CreateRequested")
    await world.crms.end(cloudlet, "v1")
    await until(world, cloudlet, lambda seen: seen.status == "Offline")
    world.crms.start(world.client, cloudlet)
    world.crms.set_faults(cloudlet, [])
    return await world.end(ticket)


async def hooked(world: World, path: str) -> None:
    """A cloudlet whose CRM is a webhook, which is pinged. Its action ignores answers until it knows the connection."""
    cloudlet = f"{path}{CLOUDLET}"
    hook = world.crms.webhooks[cloudlet] = await Webhook.open()
    patience = {**world.crms.patience, "probe": 0.2}
    ticket = await world.ask(cloudlet, "create", spec={"transport": "webhook", "url": hook.url, "patience": patience})
    await world.client.start_workflow(
        messages.CLOUDLET_LINK,
        {"cloudlet": cloudlet},
        id=companion_id(cloudlet, messages.LINK_ROLE),
        task_queue=ACTIONS_QUEUE,
        start_signal=messages.CRM_CONNECT,
        start_signal_args=[{"notify_id": 1}],
    )
    async with asyncio.timeout(PATIENCE):
        while (await world.see(cloudlet)).status != "Ready":
            with suppress(RPCError):  # it has ended
                await world.client.get_workflow_handle(cloudlet).signal(
                    messages.CRM_RESPONSE, {"state": "Ready", "notify_id": 1}
                )
            await asyncio.sleep(0.2)
    assert (await world.end(ticket)).status == "Ready"


async def dead_webhook(world: World, path: str) -> Outcome:
    """It answers no more, and pings notice it."""
    cloudlet = f"{path}{CLOUDLET}"
    await world.crms.webhooks[cloudlet].close()
    return seen_as(await until(world, cloudlet, lambda seen: seen.status == "Offline"))


async def unhooked(world: World, path: str) -> None:
    """Its link ends by itself: nobody is connected."""
    await world.crms.webhooks.pop(f"{path}{CLOUDLET}").close()
    link = world.client.get_workflow_handle(companion_id(f"{path}{CLOUDLET}", messages.LINK_ROLE))
    await asyncio.wait_for(link.result(), PATIENCE)


async def deafened(world: World, path: str) -> None:
    """Signals to an action, until Temporal says that its run may hear no more."""
    action, full = world.client.get_workflow_handle(path), asyncio.Event()

    async def send() -> None:
        while not full.is_set():
            try:
                await action.signal(messages.CRM_RESPONSE, "junk")
            except RPCError as error:
                if messages.SIGNAL_LIMIT_ERROR not in error.message:
                    raise
                full.set()

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(send() for _ in range(10)))


async def answer_by_the_link(world: World, path: str) -> Outcome:
    """An action may hear no more signals: what its next CRM says is handed in by the cloudlet's link."""
    cloudlet, cluster = f"{path}{CLOUDLET}", f"{path}{CLUSTER}"
    ticket = await world.ask(cluster, "create")
    await until(world, cluster, lambda seen: seen.status == "CreateRequested")
    await deafened(world, cluster)
    await world.crms.end(cloudlet, "v1")
    await until(world, cloudlet, lambda seen: seen.status == "Offline")
    world.crms.start(world.client, cloudlet)
    world.crms.set_faults(cloudlet, [])
    return await world.end(ticket)


async def late_answer(world: World, path: str) -> Outcome:
    """An answer when nobody waits for one: kept as ignored, and nothing else."""
    cluster, link = f"{path}{CLUSTER}", companion_id(f"{path}{CLOUDLET}", messages.LINK_ROLE)
    notify_id = (await world.see(f"{path}{CLOUDLET}")).info["crm"]["notify_id"]
    said = {"path": cluster, "state": "CreateError", "notify_id": notify_id, "errors": ["too late"]}
    await world.client.get_workflow_handle(link).signal(messages.CRM_RESPONSE, said)
    async with asyncio.timeout(PATIENCE):
        while not any("no action is running on it" in line.message for line in await world.history(cluster)):
            await asyncio.sleep(0.05)
    return seen_as(await world.see(cluster))


async def cancel(world: World, path: str) -> Outcome:
    """The CRM does not answer to an update, which is cancelled; nor to its undo."""
    cluster = f"{path}{CLUSTER}"
    ticket = await world.ask(cluster, "update", spec={"nodes": 3})
    await world.cancel(cluster)
    return await world.end(ticket)


def scaling(nodes: int = 2) -> dict[str, Any]:
    limits = {"max_nodes": nodes, "target_cpu": 50, "stabilization_window": 0, "interval": 0.2}
    return {"auto_scale": {"cloudlet": "berlin", "cluster": "c1", **limits}}


async def follow(world: World, path: str) -> Outcome:
    """A cluster grows with its load; then the policy goes, and its workflow with it."""
    policy, cluster = f"{path}{POLICY}", f"{path}{CLUSTER}"
    loop = world.client.get_workflow_handle(companion_id(policy, messages.LOOP_ROLE))
    await loop.signal(messages.DEMAND_SIGNAL, {"cpu": 100})
    seen = await until(world, cluster, lambda seen: seen.status == "Ready" and seen.spec["nodes"] == 2)
    assert (await world.do(policy, "delete")).result == "succeeded"
    await asyncio.wait_for(loop.result(), PATIENCE)
    return seen_as(seen)


async def without_policy(world: World, path: str) -> None:
    """The policy's workflow must not go on acting in somebody else's story."""
    policy = f"{path}{POLICY}"
    with suppress(Refused):  # it is gone
        await world.request(policy, "delete")
    loop = world.client.get_workflow_handle(companion_id(policy, messages.LOOP_ROLE))
    with suppress(RPCError):  # it was never started: the creation was stopped before
        await asyncio.wait_for(loop.result(), PATIENCE)


async def update_policy(world: World, path: str) -> Outcome:
    return await world.do(f"{path}{POLICY}", "update", spec=scaling(3))


async def create_policy(world: World, path: str) -> Outcome:
    return await world.do(f"{path}{POLICY}", "create", spec=scaling())


async def delete_policy(world: World, path: str) -> Outcome:
    ended = world.client.get_workflow_handle(companion_id(f"{path}{POLICY}", messages.LOOP_ROLE))
    outcome = await world.do(f"{path}{POLICY}", "delete")
    await asyncio.wait_for(ended.result(), PATIENCE)
    return outcome


async def policy(world: World, path: str) -> None:
    assert (await create_policy(world, path)).status == "Active"


# What an action that was cut off leaves may need the one or the other before it can go.
ENDING = (
    *((f"{ROOT}{CLOUDLET}", action, None) for action in ("repair", "maintenance-end")),
    (f"{ROOT}{POLICY}", "delete", None),
    *((f"{ROOT}{site}:cluster:c1", "delete", {"cascade": True}) for site in (CLOUDLET, OTHER)),
    *((f"{ROOT}{site}", "delete", None) for site in (CLOUDLET, OTHER)),
)


def story(name: str, on: str, act: Act, *before: Told, after: tuple[Told, ...] = (), **more: Any) -> Story:
    return Story(
        name,
        ROOT,
        act,
        before,
        after=(*after, leave),
        on=f"{ROOT}{on}",
        ledger=ledger,
        ending=ENDING,
        family="edge",
        **more,
    )


SITE = there(CLOUDLET)
IN_CLUSTER = there(CLOUDLET, CLUSTER)
WITH_APP = there(CLOUDLET, CLUSTER, APP)
TWO_SITES = there(CLOUDLET, CLUSTER, APP, OTHER, f"{OTHER}:cluster:c1")

STORIES = (
    story("cloudlet create", CLOUDLET, bring_up(CLOUDLET), status="Ready", plain=False),
    story("cloudlet upgrade", CLOUDLET, act(CLOUDLET, "upgrade", version="v2"), IN_CLUSTER, status="Ready"),
    story("cloudlet upgrade fails", CLOUDLET, act(CLOUDLET, "upgrade", version="v2"), SITE,
          broken("v2", "start"), result="failed", status="UpdateError"),
    story("cloudlet repair", CLOUDLET, act(CLOUDLET, "repair"), SITE, broken("v2", "start"),
          done(CLOUDLET, "upgrade", "failed", version="v2"), status="Ready"),
    story("maintenance", CLOUDLET, act(CLOUDLET, "maintenance-start", failover=True), TWO_SITES,
          status="UnderMaintenance"),
    story("end of maintenance", CLOUDLET, act(CLOUDLET, "maintenance-end"), SITE,
          done(CLOUDLET, "maintenance-start"), status="Ready"),
    story("cloudlet delete", CLOUDLET, act(CLOUDLET, "delete"), SITE, status="None"),
    story("cluster create", CLUSTER, create(CLUSTER), SITE, status="Ready", told=("create",)),
    story("cluster create fails", CLUSTER, create(CLUSTER), SITE, broken(":c1", "create"), result="failed",
          status="None"),
    story("cluster update", CLUSTER, act(CLUSTER, "update", nodes=2), IN_CLUSTER, status="Ready",
          told=("create", "update")),
    story("cluster update fails", CLUSTER, act(CLUSTER, "update", nodes=2), IN_CLUSTER,
          broken(":c1", "update", times=1), result="failed", status="Ready"),
    story("cluster delete", CLUSTER, act(CLUSTER, "delete"), IN_CLUSTER, status="None", told=("create", "delete")),
    story("cluster delete with its apps", CLUSTER, act(CLUSTER, "delete", cascade=True), WITH_APP, status="None",
          told=("create", "delete")),
    story("cluster cancel", CLUSTER, cancel, there(CLOUDLET, CLUSTER, cleanup=5.0), broken(":c1", "update", "silent"),
          result="cancelled", status="Ready", plain=False),
    story("app create", APP, create(APP), IN_CLUSTER, status="Ready", told=("create",)),
    story("app update", APP, act(APP, "update", replicas=2), WITH_APP, status="Ready", told=("create", "update")),
    story("app delete", APP, act(APP, "delete"), WITH_APP, status="None", told=("create", "delete")),
    story("CRM comes back", CLOUDLET, reconnect, IN_CLUSTER, status="Ready", plain=False),
    story("CRM with a token comes back", CLUSTER, rejoin, keyed, broken(":c1", "create", "silent"), status="Ready",
          told=("create",), plain=False),
    story("dead webhook", CLOUDLET, dead_webhook, hooked, after=(unhooked,), status="Offline", plain=False),
    story("answer by the link", CLUSTER, answer_by_the_link, SITE, broken(":c1", "create", "silent"), status="Ready",
          told=("create",), plain=False),
    story("orphan removed", CLUSTER, act(CLUSTER, "discard", place=""), SITE, stranger, status="None",
          told=("create", "delete"), plain=False),
    story("late answer", CLUSTER, late_answer, IN_CLUSTER, status="Ready", told=("create",)),
    story("policy create", POLICY, create_policy, IN_CLUSTER, after=(without_policy,), status="Active"),
    story("policy update", POLICY, update_policy, IN_CLUSTER, policy, after=(without_policy,), status="Active"),
    story("policy delete", POLICY, delete_policy, IN_CLUSTER, policy, status="None", plain=False),
    story("policy follows demand", CLUSTER, follow, IN_CLUSTER, policy, status="Ready", told=("create", "update"),
          plain=False),
)  # fmt: skip
# Together these pass through every activity of the family.
COVERING = {
    "CRM comes back",
    "cluster cancel",
    "CRM with a token comes back",
    "maintenance",
    "late answer",
    "dead webhook",
    "answer by the link",
    "policy create",
}
