"""Fixtures and helpers of the tests with real containers."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from domain.services.definition import Node
from providers.services.ledger import SupervisedInstance
from providers.services.supervisor import Supervisor
from tests.patience import PATIENCE
from tests.test_systems.images import make_image, sleeper, why_no_containers

needs_containers = pytest.mark.skipif(bool(why_no_containers()), reason=why_no_containers())

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_image(tmp_path_factory.mktemp("images") / "busybox")


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Path]:
    """The folder of a supervisor. Nothing lives there after the test: no container, shim, cgroup or mount."""
    yield tmp_path
    tokens = living(tmp_path)
    for token in tokens:
        await runc(tmp_path, "delete", "--force", token)
    assert tokens == []
    assert not list((tmp_path / "services" / ".containers").glob("*"))
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


async def runc(folder: Path, *words: str) -> None:
    process = await asyncio.create_subprocess_exec("runc", "--root", folder / "services" / ".runc", *words)
    assert await process.wait() == 0


def living(folder: Path) -> list[str]:
    """The tokens of all containers of this folder."""
    found = subprocess.run(
        ["runc", "--root", folder / "services" / ".runc", "list", "-f", "json"], capture_output=True, check=True
    )
    return sorted(each["id"] for each in json.loads(found.stdout) or ())


async def message_of(supervisor: Supervisor, words: str) -> str:
    """What the backend says of the service, once these words are in it."""
    listener = supervisor.subscribe_to_changes("system:s")
    async with asyncio.timeout(PATIENCE):
        while True:
            facts = await supervisor.describe_services("system:s")
            if facts and words in facts[0].message:
                listener.close()
                return facts[0].message
            await listener.wait_for_change()


def instance(image: Path, script: str, **more: Any) -> SupervisedInstance:
    node = Node.model_validate(sleeper(image, **more) | {"command": ["sh", "-c", f"{script}; echo done; sleep 1000"]})
    return SupervisedInstance(os.urandom(16).hex(), "system:s:job", 1, "", node)
