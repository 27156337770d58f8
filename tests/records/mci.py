"""MCIs and VMs: every action, in every way that it can end."""

from __future__ import annotations

from starter.asking import Asking
from tests.records.keeper import Keeper
from tests.user import User, spec
from workers.service import Service


async def record(recorder: Keeper, asking: Asking, service: Service) -> None:
    user = User(asking, service, "recorded")
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


async def _record_disturbed(recorder: Keeper, user: User, web: str) -> None:
    await user.fault("hang", verb="reboot", seconds=30)
    first = await user.admitted(web, "reboot")
    await user.until_called(user.vm("gcp0-1"))
    await user.asking.cancel(web)
    await user.asking.outcome(web, first.run)
    await recorder.keep(web, "control-cancelled")
    second = await user.admitted(web, "reboot")
    await user.until_called(user.vm("gcp0-1"))
    await user.do(web, "suspend", force=True)
    await recorder.keep(web, "control-preempted", second.run)
    below = await user.admitted(user.vm("gcp0-1"), "resume")
    await user.asking.outcome(below.path, below.run)
    await user.admitted(user.vm("gcp0-1"), "reboot")
    await user.until_called(user.vm("gcp0-1"))
    await user.refused(web, "resume")
    await recorder.keep(web, "control-conflict")
    await user.do(web, "resume", force=True)
    await recorder.keep(web, "control-forced")
    await user.heal_faults()
