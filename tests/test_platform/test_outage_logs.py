"""During an outage of Temporal, a worker's log is still one JSON object per line, the SDK's own lines included."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from tests.patience import PATIENCE
from workers import embedded

CORE = "sdk_core"


async def test_every_line_of_a_worker_s_log_is_json_while_temporal_is_away(tmp_path: Path) -> None:
    server = await embedded.start_server(tmp_path / "server")
    log = tmp_path / "worker.log"
    variables = {"RATCHET_HOME": str(tmp_path / "home"), "TEMPORAL_ADDRESS": server.address, "NO_COLOR": ""}
    with log.open("wb") as file:
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "starter", "worker", stderr=file, env=os.environ | variables
        )
    try:
        async with asyncio.timeout(3 * PATIENCE):
            while b"started" not in log.read_bytes() and b"serving" not in log.read_bytes():
                await asyncio.sleep(0.2)
        await server.stop_server()
        async with asyncio.timeout(3 * PATIENCE):
            while CORE.encode() not in log.read_bytes():
                await asyncio.sleep(0.2)
    finally:
        worker.send_signal(signal.SIGKILL)
        await worker.wait()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert any(CORE in str(line["event"]) for line in lines)
    assert not [line for line in lines if "%s" in str(line["event"])]
