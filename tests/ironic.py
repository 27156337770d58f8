"""A real Ironic for tests, in an environment of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from providers.sockets import find_free_port
from starter.leases.ironic import IronicProcess as Ironic
from starter.leases.ironic import run_ironic
from tests.locked import install_locked

__all__ = ["Ironic", "ironic_running", "programs"]


def programs() -> Path:
    """The folder of Ironic's programs."""
    return install_locked("ironic", "Ironic")


@asynccontextmanager
async def ironic_running(folder: Path, deploy: int = 0) -> AsyncIterator[Ironic]:
    async with run_ironic(Ironic(await asyncio.to_thread(programs), folder, find_free_port(), deploy)) as ironic:
        yield ironic
