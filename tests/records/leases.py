"""Records leases: every outcome of every action, and the clock."""

from __future__ import annotations

from contextlib import suppress

from temporalio.service import RPCError

from client.actions import ActionClient
from domain.leases.names import pool_clock_id
from tests.records.recorder import HistoryRecorder
from tests.test_leases.tenant import HOUR, Tenant
from workers.service import WorkerService


async def record(recorder: HistoryRecorder, client: ActionClient, service: WorkerService) -> None:
    tenant = Tenant(client, service, "recorded")
    lease = tenant.lease()
    await tenant.add_hosts("h1", "h2", "h3")
    await recorder.keep(tenant.host("h1"), "host-added")
    await tenant.create(start="+1h", end="+3h")
    await recorder.keep(lease, "create-succeeded")
    await tenant.refused(lease, "create", {"end": "+1h", "hosts": 1, "pool": "recorded"})
    await recorder.keep(lease, "create-refused")
    updated = await tenant.ask(lease, "update", {"start": "now", "end": "+5h"})
    await tenant.asking.wait_for_outcome(lease, updated.run)
    await recorder.keep(lease, "update-pending", updated.run)  # not the latest: the clock may have started it by now
    await tenant.until_status("ACTIVE")
    await recorder.keep(lease, "start-succeeded")
    await _record_running(recorder, tenant)
    await _record_trouble(recorder, tenant)
    with suppress(RPCError):  # it may have ended already, with nothing left to wait for
        await tenant.forward(HOUR * 9)
    await tenant.clock().result()
    await recorder.keep(pool_clock_id("recorded"), "clock")


async def _record_running(recorder: HistoryRecorder, tenant: Tenant) -> None:
    lease = tenant.lease()
    await tenant.update(hosts=2)
    await recorder.keep(lease, "update-grown")
    await tenant.fault("fail", "h3", verb="create")
    await tenant.update(hosts=3)
    await recorder.keep(lease, "update-failed")
    await tenant.heal_faults()
    await tenant.do(tenant.host("h1"), "fail")
    await recorder.keep(tenant.host("h1"), "host-failed")
    await tenant.do(tenant.host("h1"), "recover")
    await tenant.forward(HOUR * 4.5)
    await tenant.until(lambda seen: seen.events[1].status == "DONE")
    await tenant.closed(tenant.event("before_end_lease"))
    await recorder.keep(tenant.event("before_end_lease"), "announce-succeeded")
    await tenant.do(lease, "end")
    await recorder.keep(lease, "end-succeeded")
    await tenant.do(lease, "delete")
    await recorder.keep(lease, "delete-succeeded")


async def _record_trouble(recorder: HistoryRecorder, tenant: Tenant) -> None:
    two = [{"resource_type": "physical:host"}, {"resource_type": "physical:host"}]
    await tenant.fault("fail", "h2", verb="create", times=1)
    await tenant.create("bad", start="now", end="+6h", reservations=two)
    await tenant.until_status("ERROR", "bad")
    await recorder.keep(tenant.lease("bad"), "start-partly")
    await tenant.fault("fail", tenant.reservation(1, "bad"), verb="terminate")
    await tenant.do(tenant.lease("bad"), "end")
    await recorder.keep(tenant.lease("bad"), "end-failed")
    await tenant.do(tenant.lease("bad"), "delete")
    await recorder.keep(tenant.lease("bad"), "delete-failed")
    await tenant.heal_faults()
    await tenant.do(tenant.lease("bad"), "delete")
    await _record_taken_over(recorder, tenant)
    vms = {"subGroups": [{"name": "a", "csp": "aws", "region": "r1"}]}
    mci = {"resource_type": "mci", "mci": "ns:recorded:mci:leased", "spec": vms}
    await tenant.create("mci", start="now", end="+6h", reservations=[mci])
    await tenant.until_status("ACTIVE", "mci")
    await recorder.keep(tenant.lease("mci"), "start-mci")
    await tenant.do(tenant.lease("mci"), "end")
    await recorder.keep(tenant.lease("mci"), "end-mci")


async def _record_taken_over(recorder: HistoryRecorder, tenant: Tenant) -> None:
    await tenant.fault("hang", "h1", verb="create", seconds=30, times=2)
    await tenant.create("slow", start="now", end="+6h")
    await tenant.until_status("STARTING", "slow")
    starting = await tenant.asking.newest_run(tenant.lease("slow"))
    await tenant.do(tenant.lease("slow"), "delete")
    assert starting
    await recorder.keep(tenant.lease("slow"), "start-taken-over", starting.run_id)
