"""A real Ironic for tests, in an environment of its own."""

from __future__ import annotations

import asyncio
import fcntl
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from providers.sockets import find_free_port
from starter.leases.ironic import CONFIG, run_ironic
from starter.leases.ironic import IronicProcess as Ironic
from tests.locked import install_locked

__all__ = ["Ironic", "ironic_running", "programs"]


def programs() -> Path:
    """The folder of Ironic's programs."""
    return install_locked("ironic", "Ironic")


def empty_database(found: Path) -> Path:
    """A database with Ironic's tables, beside its programs: made once, for that takes seconds of CPU."""
    file = found.parent / "ironic.db"
    with file.with_suffix(".lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # several test processes may want it at once
        if not file.exists():
            with tempfile.TemporaryDirectory(dir=found.parent) as folder:
                config = Path(folder, "ironic.conf")
                config.write_text(CONFIG.format(folder=folder, port=0, deploy=0))
                command = [str(found / "ironic-dbsync"), "--config-file", str(config), "create_schema"]
                subprocess.run(command, check=True, capture_output=True)
                Path(folder, "ironic.db").rename(file)
    return file


@asynccontextmanager
async def ironic_running(folder: Path, deploy: int = 0) -> AsyncIterator[Ironic]:
    found = await asyncio.to_thread(programs)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(await asyncio.to_thread(empty_database, found), folder)
    async with run_ironic(Ironic(found, folder, find_free_port(), deploy)) as ironic:
        yield ironic
