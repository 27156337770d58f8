"""Record a history of every workflow type in every outcome: python -m tests.record

The recorded files are the promise that a newer version goes on with actions that an older one began. Record again only
when a change of behaviour is meant, and then keep the old files beside the new ones until no such action can be open.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from temporalio.client import Client

from starter.asking import Asking
from tests.user import User, spec
from workers import embedded, logs
from workers.plugin import plugin
from workers.service import Service
from workers.settings import Settings

FOLDER = Path(__file__).parent / "histories"


async def main() -> None:
    logs.configure("error", "console")
    with tempfile.TemporaryDirectory() as folder:
        server = await embedded.start(Path(folder))
        client = await Client.connect(server.address, plugins=[plugin()], identity="recorder")
        service = Service(client, Settings(home=Path(folder), simulated_latency=0, call_timeout=2, patience=2))
        service.prepare()
        async with service.serve():
            await _record(User(Asking(client), service, "recorded"))
        await service.close()
        await server.stop()


async def _record(user: User) -> None:
    web = user.mci()
    await user.do(web, "create", spec=spec(2))
    await _keep(user, web, "create-succeeded")
    await user.refused(web, "create", spec=spec(2))
    await _keep(user, web, "create-refused")
    await user.fault("fail", verb="create", times=2)
    await user.do(user.mci("bad"), "create", spec=spec(2, ["aws"]))
    await _keep(user, user.mci("bad"), "create-failed")
    await user.do(web, "suspend")
    await _keep(user, web, "control-succeeded")
    await user.fault("fail", vm="aws0-1", verb="resume", times=1)
    await user.do(web, "resume")
    await _keep(user, web, "control-partial")
    await _record_disturbed(user, web)
    await user.do(web, "terminate")
    await user.do(web, "terminate")
    await _keep(user, web, "control-already")
    await user.do(user.mci("bad"), "refine")
    await _keep(user, user.mci("bad"), "refine-succeeded")
    await user.do(user.mci("bad"), "delete", force=True)
    await _keep(user, user.mci("bad"), "delete-forced")
    await user.do(web, "delete")
    await _keep(user, web, "delete-succeeded")


async def _record_disturbed(user: User, web: str) -> None:
    await user.fault("hang", verb="reboot", seconds=30)
    first = await user.admitted(web, "reboot")
    await user.until_called(user.vm("gcp0-1"))
    await user.asking.cancel(web)
    await user.asking.outcome(web, first.run)
    await _keep(user, web, "control-cancelled")
    second = await user.admitted(web, "reboot")
    await user.until_called(user.vm("gcp0-1"))
    await user.do(web, "suspend", force=True)
    await _keep(user, web, "control-preempted", second.run)
    below = await user.admitted(user.vm("gcp0-1"), "resume")
    await user.asking.outcome(below.path, below.run)
    await user.admitted(user.vm("gcp0-1"), "reboot")
    await user.until_called(user.vm("gcp0-1"))
    await user.refused(web, "resume")
    await _keep(user, web, "control-conflict")
    await user.do(web, "resume", force=True)
    await _keep(user, web, "control-forced")
    await user.heal_faults()


async def _keep(user: User, path: str, name: str, run: str | None = None) -> None:
    history = await user.asking.client.get_workflow_handle(path, run_id=run).fetch_history()
    FOLDER.mkdir(exist_ok=True)
    told = json.loads(history.to_json(), object_hook=_without_traces)
    (FOLDER / f"{name}.json").write_text(json.dumps(told, indent=1) + "\n")


def _without_traces(found: dict[str, Any]) -> dict[str, Any]:
    """Stack traces name folders of the machine that recorded them, and replay does not look at them."""
    return {key: value for key, value in found.items() if key != "stackTrace"}


if __name__ == "__main__":
    asyncio.run(main())
    sys.stdout.flush()
    os._exit(0)
