"""`python -m workers`: a worker for every queue, configured by RATCHET_* and TEMPORAL_* variables."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback

from workers.process import MakeService, run_worker
from workers.service import WorkerService
from workers.settings import WorkerSettings


def main(make: MakeService = WorkerService) -> None:
    """Serves every queue until SIGTERM or SIGINT."""
    code = 0
    try:
        asyncio.run(run_worker(WorkerSettings(), make=make))
    except Exception:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a normal exit may abort while the SDK's threads still run


if __name__ == "__main__":
    main()
