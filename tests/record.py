"""Record a history of every workflow type in every outcome: python -m tests.record [FAMILY]

The recorded files are the promise that a newer version goes on with actions that a released one began. Until the first
release, record again whatever does not replay any more; after it, keep the old files until no such action can be open.
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

from client.actions import ActionClient
from tests.records import FAMILIES
from workers import embedded, logs
from workers.plugin import temporal_plugin
from workers.service import WorkerService
from workers.settings import WorkerSettings

FOLDER = Path(__file__).parent / "histories"


async def main(families: list[str]) -> None:
    logs.configure_logging("error", "console")
    with tempfile.TemporaryDirectory() as folder:
        server = await embedded.start_server(Path(folder))
        client = await Client.connect(server.address, plugins=[temporal_plugin()], identity="recorder")
        service = WorkerService(
            client, WorkerSettings(home=Path(folder), simulated_latency=0, call_timeout=2, patience=2)
        )
        service.prepare_databases()
        async with service.serve_queues():
            for family in families or FAMILIES:
                await FAMILIES[family](Recorder(client, family), ActionClient(client), service)
        await service.close()
        await server.stop_server()


class Recorder:
    """Keeps histories of one family."""

    def __init__(self, client: Client, family: str) -> None:
        self._client = client
        self._family = family

    async def keep(self, workflow: str, name: str, run: str | None = None) -> None:
        """The history of a run (the latest), under a name that tells what became of it."""
        history = await self._client.get_workflow_handle(workflow, run_id=run).fetch_history()
        FOLDER.mkdir(exist_ok=True)
        told = json.loads(history.to_json(), object_hook=_without_traces)
        (FOLDER / f"{self._family}-{name}.json").write_text(json.dumps(told, indent=1) + "\n")


def _without_traces(found: dict[str, Any]) -> dict[str, Any]:
    """Stack traces name folders of the machine that recorded them, and replay does not look at them."""
    return {key: value for key, value in found.items() if key != "stackTrace"}


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
    sys.stdout.flush()
    os._exit(0)
