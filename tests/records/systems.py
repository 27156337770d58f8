"""Records systems: every outcome of every action."""

from __future__ import annotations

from client.actions import ActionClient
from tests.records.recorder import HistoryRecorder
from tests.test_systems.kit import RUN, Shop, service, system
from workers.service import WorkerService

TREE = system(service("web"), system(service("b"), service("c"), name="a"))
NEVER = {**RUN, "environment": {"SIMULATED": "unhealthy"}}


async def record(recorder: HistoryRecorder, client: ActionClient, worker: WorkerService) -> None:
    shop = Shop(client, worker, "system:recorded")
    await shop.create()
    await recorder.keep(shop.path, "create-succeeded")
    await shop.deploy("/", TREE)
    await recorder.keep(shop.path, "deploy-succeeded")
    await shop.refused("/", "deploy", {"definition": RUN})
    await recorder.keep(shop.path, "deploy-refused")
    await shop.deploy("/a", system(service("b", **NEVER)), deadline=0.5)
    await recorder.keep(shop.at("/a"), "deploy-failed")
    await shop.deploy("/a", system(service("b"), service("d", **NEVER)), deadline=0.5, rollback=True)
    await recorder.keep(shop.at("/a"), "deploy-rolled-back")
    await _record_disturbed(recorder, shop)
    await shop.do("/", "teardown")
    await recorder.keep(shop.path, "teardown-succeeded")
    await shop.do("/", "delete")
    await recorder.keep(shop.path, "delete-succeeded")


async def _record_disturbed(recorder: HistoryRecorder, shop: Shop) -> None:
    first = await shop.begin("/web", NEVER, rollback=True)
    await shop.until_record("d4", "in progress")
    await shop.refused("/", "teardown")
    await recorder.keep(shop.path, "teardown-conflict")
    await shop.asking.cancel_action(shop.at("/web"))
    await first
    await recorder.keep(shop.at("/web"), "deploy-cancelled")
    ticket = await shop.admitted("/", "deploy", {"definition": system(service("web", **NEVER))})
    await shop.until_record("d5", "in progress")
    await shop.do("/", "delete")
    await recorder.keep(shop.path, "deploy-preempted", ticket.run)
    await shop.create()
