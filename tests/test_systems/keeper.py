"""A supervisor of containers in a process of its own, which kills itself with -9 at one of its steps.

`FOLDER IMAGE STEP` are its words. It runs a service, updates it, and removes it, and prints how
many steps that has. A step is a call to the machine that changes something, or a write to the ledger, before and after.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

from providers.services.container import runner, runtime
from providers.services.ledger import BackendLedger
from tests.steps import StepCounter
from tests.test_systems.images import sleeper
from tests.test_systems.supervising import forget, keeping, want

STEPS = {"os.mkdir", "shutil.rmtree", "subprocess.Popen", "os.kill", "os.killpg"}


async def keep(folder: Path, image: Path, last: int) -> None:
    steps = StepCounter(last)
    sys.addaudithook(lambda event, _: steps.take() if event in STEPS else None)
    for name in ("insert_instances", "update_instances", "delete_instances"):
        steps.before_and_after(BackendLedger, name)
    steps.before_and_after(runner.ContainerRunner, "_run_shim")
    steps.before_and_after(runtime.ContainerRuntime, "delete")
    popen = subprocess.Popen

    def spawn(*words: Any, **more: Any) -> Any:
        process = popen(*words, **more)
        steps.take()
        return process

    runner.subprocess.Popen = spawn  # type: ignore[attr-defined]
    async with keeping(folder) as supervisor:
        await want(supervisor, 1, sleeper(image, environment={"VERSION": "1"}))
        await want(supervisor, 2, sleeper(image, environment={"VERSION": "2"}))
        await forget(supervisor)
    sys.stdout.write(f"{steps.count}\n")


def main() -> None:
    asyncio.run(keep(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))


if __name__ == "__main__":
    main()
