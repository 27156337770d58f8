"""A worker process in which the SDK stops polling one queue, soon after its start."""

from __future__ import annotations

import asyncio
import os
import sys

from temporalio.client import Client

import workers.process
from domain.wire import cloud_queue
from tests.patience import PATIENCE
from workers.__main__ import main as run_main
from workers.service import WorkerService
from workers.settings import WorkerSettings


class DeafService(WorkerService):
    """Stops polling once it polls."""

    def __init__(self, client: Client, settings: WorkerSettings) -> None:
        super().__init__(client, settings)
        self._ending = asyncio.get_running_loop().create_task(self._stop_polling())

    async def close(self) -> None:
        if os.environ["DEAF_WORKER"] == "hangs":
            await asyncio.Event().wait()
        sys.stderr.write("drained\n")
        await super().close()

    async def _stop_polling(self) -> None:
        while not (worker := self.polling._workers.get(cloud_queue("gcp"))):
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        worker._bridge_worker.initiate_shutdown()


def main() -> None:
    """The entry point, as of `python -m workers`."""
    workers.process.EXIT_GRACE_SECONDS = 2.0 if os.environ["DEAF_WORKER"] == "hangs" else PATIENCE
    run_main(DeafService)
