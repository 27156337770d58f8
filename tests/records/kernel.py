"""Records the kernel's own workflows: sweeps of self-healing, and wait queues that are drained."""

from __future__ import annotations

from datetime import UTC, datetime

from client.actions import ActionClient
from domain import wire
from domain.healing import SweepOptions
from domain.waitqueue import QueueCommand
from tests.records.recorder import HistoryRecorder
from tests.user import User, spec
from workers.service import WorkerService


async def record(recorder: HistoryRecorder, client: ActionClient, service: WorkerService) -> None:
    await client.client.execute_workflow(wire.HEAL_WORKFLOW, SweepOptions(), id="sweep", task_queue=wire.ACTIONS_QUEUE)
    await recorder.keep("sweep", "heal-succeeded")
    user = User(client, service, "drained")
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    await user.fault("hang", verb="reboot", seconds=0.5)
    await user.admitted(user.mci(), "reboot")
    order = QueueCommand(path=user.mci(), run="", at=datetime.now(UTC))
    drain = wire.companion_id(user.mci(), wire.DRAIN)
    await client.client.execute_workflow(wire.DRAIN_QUEUE, order, id=drain, task_queue=wire.ACTIONS_QUEUE)
    await recorder.keep(drain, "drain-succeeded")
    await user.heal_faults()
