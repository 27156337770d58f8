"""`starter demo metal`: the real `blazar` books real Ironic nodes, and Ironic is killed in the middle of a deploy."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.ironic import programs
from tests.patience import PATIENCE
from tests.test_dialects.clients import ClientsMissing, install_clients

ROOT = Path(__file__).parents[2]


async def run_demo(path: str, home: Path) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "starter", "demo", "metal"),
        cwd=ROOT,
        env={**os.environ, "PATH": path, "RATCHET_HOME": str(home), "RATCHET_GATEWAY_PORT": "0"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(4 * PATIENCE):
        out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


async def test_blazar_books_bare_metal_and_ironic_dies_in_the_deploy(tmp_path: Path) -> None:
    try:
        clients = await asyncio.to_thread(install_clients)
    except ClientsMissing as missing:
        pytest.skip(str(missing))
    path = os.pathsep.join([str(await asyncio.to_thread(programs)), str(clients), os.environ["PATH"]])
    code, said = await run_demo(path, tmp_path / "home")
    assert code == 0, said
    steps = [
        "$ blazar lease-create",
        "is deploying",
        "killed Ironic with -9",
        "Ironic is back",
        "night-run is ACTIVE",
        "metal-1 is available",
        "metal-2 is available",
    ]
    places = [said.find(step) for step in steps]
    assert -1 not in places, said
    assert places == sorted(places), said


async def test_without_ironic_the_demo_says_what_it_needs(tmp_path: Path) -> None:
    code, said = await run_demo(os.path.dirname(sys.executable), tmp_path / "home")
    assert code != 0
    assert "needs the program ironic" in said
