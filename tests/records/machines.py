"""Machines and their neighbours: the generic action in every way that it can end, nodes, and the recycle bin."""

from __future__ import annotations

from datetime import timedelta

from temporalio.testing import TimeSkipper

from client.actions import ActionClient
from tests.records.keeper import Keeper
from tests.test_machines.estate import Estate
from workers.service import Service


async def record(recorder: Keeper, asking: ActionClient, service: Service) -> None:
    estate = Estate(asking, service, "recorded")
    await estate.with_machine("db", "web", nodes=2)
    db, new = estate.machine(), estate.machine("new")
    await estate.to(new, "create", image=estate.name, node=f"{estate.name}-1")
    await recorder.keep(new, "create-succeeded")
    await estate.to(db, "add-disk", disk="d1")
    await recorder.keep(db, "disk-succeeded")
    await estate.refused(db, "start")
    await recorder.keep(db, "start-refused")
    await estate.fault("fail", db, verb="pause", times=1)
    await estate.do(db, "pause")
    await recorder.keep(db, "pause-failed")
    await _record_lines(recorder, estate, db)
    await estate.to(estate.node(1), "maintain")
    await recorder.keep(estate.node(1), "maintain-succeeded")
    await estate.to(estate.node(1), "enable")
    await recorder.keep(estate.node(1), "enable-succeeded")
    await estate.to(estate.node(1), "decommission")
    await recorder.keep(estate.node(1), "decommission-succeeded")
    await _record_bin(recorder, estate)
    await estate.to(estate.account, "delete", cascade=True)
    await recorder.keep(estate.account, "cascade-succeeded")


async def _record_lines(recorder: Keeper, estate: Estate, db: str) -> None:
    await estate.hang(db, "stop")
    stop = await estate.admitted(db, "stop")
    await estate.hanging(db)
    await estate.asking.cancel(db)
    await estate.outcome(stop)
    await recorder.keep(db, "stop-cancelled")
    await estate.hang(db, "migrate", 1)
    migrate = await estate.admitted(db, "migrate", node="recorded-2")
    await estate.hanging(db)
    await estate.to(db, "stop")
    await recorder.keep(db, "stop-behind-migration")
    await recorder.keep(migrate.path, "migrate-succeeded")
    await estate.to(db, "start")


async def _record_bin(recorder: Keeper, estate: Estate) -> None:
    web = estate.machine("web")
    await estate.to(web, "delete")
    await recorder.keep(web, "delete-succeeded")
    clock = estate.asking.client.get_workflow_handle(f"{estate.account}::bin")
    await TimeSkipper(estate.asking.client).fast_forward(clock, timedelta(days=8))
    await clock.result()
    await recorder.keep(clock.id, "bin-emptied")
    await recorder.keep(web, "destroy-from-bin")
    db = estate.machine()
    await estate.to(db, "delete")
    await estate.to(db, "restore")
    await recorder.keep(db, "restore-succeeded")
    await TimeSkipper(estate.asking.client).fast_forward(clock, timedelta(days=8))
    await clock.result()
    await recorder.keep(clock.id, "bin-found-empty")
