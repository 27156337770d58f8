"""Records MCIs and VMs: every outcome of every action."""

from __future__ import annotations

from client.actions import ActionClient
from domain import wire
from domain.faults import Fault, FaultKind
from domain.mci.messages import CONTINUE, WITHDRAW, HoldDecision, SurveyRequest
from domain.ports import VmFacts, VmOrder
from starter.mci import requests
from tests.records.recorder import HistoryRecorder
from tests.user import User, spec
from workers.service import WorkerService


async def record(recorder: HistoryRecorder, client: ActionClient, service: WorkerService) -> None:
    user = User(client, service, "recorded")
    web = user.mci()
    await user.do(web, "create", spec=spec(2))
    await recorder.keep(web, "create-succeeded")
    await user.refused(web, "create", spec=spec(2))
    await recorder.keep(web, "create-refused")
    await user.fault("fail", verb="create", times=2)
    await user.do(user.mci("bad"), "create", spec=spec(2, ["aws"]))
    await recorder.keep(user.mci("bad"), "create-failed")
    await user.do(web, "suspend")
    await recorder.keep(web, "control-succeeded")
    await user.fault("fail", vm="aws0-1", verb="resume", times=1)
    await user.do(web, "resume")
    await recorder.keep(web, "control-partial")
    await _record_disturbed(recorder, user, web)
    await user.do(web, "terminate")
    await user.do(web, "terminate")
    await recorder.keep(web, "control-already")
    await user.do(user.mci("bad"), "refine")
    await recorder.keep(user.mci("bad"), "refine-succeeded")
    await user.do(user.mci("bad"), "delete", force=True)
    await recorder.keep(user.mci("bad"), "delete-forced")
    await user.do(web, "delete")
    await recorder.keep(web, "delete-succeeded")
    await _record_preparations(recorder, user)
    await _record_policies(recorder, user)
    await _record_sizes(recorder, user)
    stray = f"{user.vm('stray')}:orphan:nothing"
    await user.do(stray, "remove", spec={"place": "aws/r1"})
    await recorder.keep(stray, "remove-orphan")
    await _record_adoption(recorder, user)


async def _record_adoption(recorder: HistoryRecorder, user: User) -> None:
    await user.do(user.mci("adopting"), "create", spec=spec(1, ["aws"]))
    vm = user.vm("aws0-2", "adopting")
    (made,) = await user.service.simulated["aws"].perform_orders("create", "r0", [VmOrder(vm, f"late {vm}", epoch=1)])
    assert isinstance(made, VmFacts)
    gone = user.vm("aws0-3", "adopting")
    for stray, end in ((f"{vm}:orphan:{made.cloud_id}", "succeeded"), (f"{gone}:orphan:nothing", "failed")):
        await user.do(stray, "adopt", spec={"place": "aws/r0"})
        await recorder.keep(stray, f"adopt-orphan-{end}")


async def _record_disturbed(recorder: HistoryRecorder, user: User, web: str) -> None:
    await user.fault("hang", verb="reboot", seconds=30)
    first = await user.admitted(web, "reboot")
    await user.until_delayed(user.vm("gcp0-1"))
    await user.asking.cancel_action(web)
    await user.asking.wait_for_outcome(web, first.run)
    await recorder.keep(web, "control-cancelled")
    second = await user.admitted(web, "reboot")
    await user.until_delayed(user.vm("gcp0-1"))
    await user.do(web, "suspend", force=True)
    await recorder.keep(web, "control-preempted", second.run)
    below = await user.admitted(user.vm("gcp0-1"), "resume")
    await user.asking.wait_for_outcome(below.path, below.run)
    await user.admitted(user.vm("gcp0-1"), "reboot")
    await user.until_delayed(user.vm("gcp0-1"))
    await user.refused(web, "resume")
    await recorder.keep(web, "control-conflict")
    await user.do(web, "resume", force=True)
    await recorder.keep(web, "control-forced")
    await user.heal_faults()


async def _record_preparations(recorder: HistoryRecorder, user: User) -> None:
    cloud = user.service.simulated["aws"]
    await user.refused(user.mci("typo"), "create", spec=_in_region("r1", specId="gigantic"))
    await recorder.keep(user.mci("typo"), "create-refused-by-cloud")
    await cloud.add_fault(Fault(kind=FaultKind.FAIL, region="r1", verb="prepare", vm="sshKey", times=1))
    await user.do(user.mci("unlucky"), "create", spec=_in_region("r1"))
    await recorder.keep(user.mci("unlucky"), "create-preparation-failed")
    for word in (CONTINUE, WITHDRAW):
        ticket = await user.admitted(user.mci(word), "create", spec={**_in_region("r2"), "option": "hold"})
        await user.until_status(user.mci(word), "Prepared")
        await requests.send_decision(user.asking, user.mci(word), word, HoldDecision(requested_by="recorder"))
        await user.asking.wait_for_outcome(ticket.path, ticket.run)
        await recorder.keep(user.mci(word), f"create-held-{word}")
    await user.do(user.mci("named"), "create", spec={"subGroups": [{"name": "a", "connectionName": "gcp-us-west1"}]})
    await recorder.keep(user.mci("named"), "create-connection")


async def _record_policies(recorder: HistoryRecorder, user: User) -> None:
    for policy in ("refine", "rollback"):
        await user.fault("fail", vm="a-2", verb="create", times=1)
        path = user.mci(policy)
        await user.do(path, "create", spec={**_in_region("r3", size=3), "policyOnPartialFailure": policy})
        await recorder.keep(path, f"create-{policy}")


async def _record_sizes(recorder: HistoryRecorder, user: User) -> None:
    path = user.mci("wide")
    await user.do(path, "create", spec=_in_region("r4"))
    await user.do(path, "scale-out", spec={"subGroup": "a", "count": 2})
    await recorder.keep(path, "scale-out")
    await user.do(path, "scale-in", spec={"subGroup": "a"})
    await recorder.keep(path, "scale-in")
    await requests.run_survey(user.asking, SurveyRequest(path=path))
    await recorder.keep(wire.companion_id(path, "refresh"), "refresh")
    await requests.run_survey(user.asking, SurveyRequest(path=path, reconcile=True))
    await recorder.keep(wire.companion_id(path, "reconcile"), "reconcile")


def _in_region(region: str, size: int = 1, **more: object) -> dict[str, object]:
    return {"subGroups": [{"name": "a", "subGroupSize": size, "csp": "aws", "region": region, **more}]}
