"""Records machines and the other kinds of the family: every outcome of an action, nodes, the recycle bin."""

from __future__ import annotations

from datetime import timedelta

from temporalio.testing import TimeSkipper

from client.actions import ActionClient
from tests.records.recorder import HistoryRecorder
from tests.test_machines.site import MachineSite
from workers.service import WorkerService


async def record(recorder: HistoryRecorder, client: ActionClient, service: WorkerService) -> None:
    site = MachineSite(client, service, "recorded")
    await site.with_machine("db", "web", nodes=2)
    db, new = site.machine(), site.machine("new")
    await site.to(new, "create", image=site.name, node=f"{site.name}-1")
    await recorder.keep(new, "create-succeeded")
    await site.to(db, "add-disk", disk="d1")
    await recorder.keep(db, "disk-succeeded")
    await site.refused(db, "start")
    await recorder.keep(db, "start-refused")
    await site.fault("fail", db, verb="pause", times=1)
    await site.do(db, "pause")
    await recorder.keep(db, "pause-failed")
    await _record_lines(recorder, site, db)
    await site.to(site.node(1), "maintain")
    await recorder.keep(site.node(1), "maintain-succeeded")
    await site.to(site.node(1), "enable")
    await recorder.keep(site.node(1), "enable-succeeded")
    await site.to(site.node(1), "decommission")
    await recorder.keep(site.node(1), "decommission-succeeded")
    await _record_bin(recorder, site)
    await site.to(site.account, "delete", cascade=True)
    await recorder.keep(site.account, "cascade-succeeded")


async def _record_lines(recorder: HistoryRecorder, site: MachineSite, db: str) -> None:
    await site.hang(db, "stop")
    stop = await site.admitted(db, "stop")
    await site.hanging(db)
    await site.asking.cancel_action(db)
    await site.outcome(stop)
    await recorder.keep(db, "stop-cancelled")
    await site.hang(db, "migrate", 1)
    migrate = await site.admitted(db, "migrate", node="recorded-2")
    await site.hanging(db)
    await site.to(db, "stop")
    await recorder.keep(db, "stop-behind-migration")
    await recorder.keep(migrate.path, "migrate-succeeded")
    await site.to(db, "start")


async def _record_bin(recorder: HistoryRecorder, site: MachineSite) -> None:
    web = site.machine("web")
    await site.to(web, "delete")
    await recorder.keep(web, "delete-succeeded")
    clock = site.asking.client.get_workflow_handle(f"{site.account}::bin")
    await TimeSkipper(site.asking.client).fast_forward(clock, timedelta(days=8))
    await clock.result()
    await recorder.keep(clock.id, "bin-emptied")
    await recorder.keep(web, "destroy-from-bin")
    db = site.machine()
    await site.to(db, "delete")
    await site.to(db, "restore")
    await recorder.keep(db, "restore-succeeded")
    await TimeSkipper(site.asking.client).fast_forward(clock, timedelta(days=8))
    await clock.result()
    await recorder.keep(clock.id, "bin-found-empty")
