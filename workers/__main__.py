"""`python -m workers`: a worker for every queue, configured by RATCHET_* and TEMPORAL_* variables."""

from __future__ import annotations

import asyncio
import os
import sys

from workers.process import MakeService, run_worker
from workers.service import WorkerService
from workers.settings import WorkerSettings


def main(make: MakeService = WorkerService) -> None:
    """Serves every queue until SIGTERM or SIGINT."""
    asyncio.run(run_worker(WorkerSettings(), make=make))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a normal exit may abort while the SDK's threads still run


if __name__ == "__main__":
    main()
