"""Records volumes: each outcome of an action."""

from __future__ import annotations

from client.actions import ActionClient
from domain.model import Request
from tests.records.recorder import HistoryRecorder
from workers.service import WorkerService

PATH = "project:recorded:volume:data"
ACTIONS = (("create", {"size": 20}), ("attach", {"server": "web-1"}), ("detach", None), ("delete", None))


async def record(recorder: HistoryRecorder, client: ActionClient, service: WorkerService) -> None:
    for action, spec in ACTIONS:
        ticket = await client.request_action(Request(path=PATH, action=action, spec=spec, requested_by="recorder"))
        await client.wait_for_outcome(PATH, ticket.run)
        await recorder.keep(PATH, f"{action}-succeeded")
