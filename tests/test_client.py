"""The Python SDK in a customer's program: the example of docs/client.md, and what an import loads."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import client
from client import ActionClient, ClientSettings, connect, connection
from client.errors import Unreachable
from client.homefiles import TEMPORAL_DATA_FILE
from domain.errors import Category, Refused
from domain.model import Request
from domain.paths import build_path
from tests.patience import PATIENCE
from workers.service import WorkerService

PAGE = (Path(__file__).parent.parent / "docs" / "client.md").read_text()
OUTSIDE = "sqlalchemy", "alembic", "cyclopts", "rich", "boto3", "store", "providers", "workflows", "workers", "starter"


def block(language: str) -> str:
    """The first block of that language on the page."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


def environment(**ours: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "RATCHET_"))} | ours


async def run_program(text: str, folder: Path, address: str, home: Path) -> tuple[int | None, str, str]:
    """Runs a customer's program: its exit code, and what it printed."""
    program = folder / "program.py"
    program.write_text(text)
    told = environment(TEMPORAL_ADDRESS=address, RATCHET_HOME=str(home))
    pipe = asyncio.subprocess.PIPE
    run = await asyncio.create_subprocess_exec(
        *(sys.executable, str(program)), env=told, cwd=folder, stdout=pipe, stderr=pipe
    )
    try:
        out, err = await asyncio.wait_for(run.communicate(), PATIENCE)
    finally:
        if run.returncode is None:
            run.kill()
    return run.returncode, out.decode(), err.decode()


async def test_the_example_of_the_page_does_what_the_page_says(
    stack: WorkerService, temporal_address: str, home: Path, tmp_path: Path
) -> None:
    assert await run_program(block("python"), tmp_path, temporal_address, home) == (0, block("text"), "")


# The thread of Temporal's core that brings the last answer is still in the interpreter when the program ends.
LATE_THREAD = """
import asyncio, time
from client import connect

async def main():
    loop = asyncio.get_running_loop()
    wake = loop._write_to_self
    async with connect() as ratchet:
        loop._write_to_self = lambda: (wake(), time.sleep(0.5))
        await ratchet.newest_run("ns:sdk:mci:nosuch")

asyncio.run(main())
print("done")
"""

# Calls are given up as the program ends: the core's threads enter the interpreter when it is gone.
GIVEN_UP = """
import asyncio
from client import connect

async def main():
    async with connect() as ratchet:
        waiting = [asyncio.create_task(ratchet.count_pollers("actions")) for _ in range(50)]
        await asyncio.sleep(0)

asyncio.run(main())
print("done")
"""


@pytest.mark.parametrize("text", [LATE_THREAD, GIVEN_UP], ids=["late thread", "given up"])
async def test_a_program_ends_well_while_the_core_still_works(
    text: str, stack: WorkerService, temporal_address: str, home: Path, tmp_path: Path
) -> None:
    assert await run_program(text, tmp_path, temporal_address, home) == (0, "done\n", "")


async def test_an_error_of_temporal_becomes_one_of_ours(
    stack: WorkerService, home: Path, monkeypatch: pytest.MonkeyPatch, temporal_address: str
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "nowhere")
    with pytest.raises(Unreachable, match="has no namespace 'nowhere'"):
        async with connect(ClientSettings(home=home)) as ratchet:
            await ratchet.read_object("ns:sdk:mci:shop")


async def test_nobody_there_is_said_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    with pytest.raises(Unreachable, match="connection refused") as error:
        async with connect(ClientSettings(home=tmp_path)):
            pass
    assert "starter up" in error.value.hint


async def test_a_server_that_nobody_named_is_named_with_the_folder_without_a_stack(
    stack: WorkerService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temporal_address: str
) -> None:
    monkeypatch.delenv("TEMPORAL_ADDRESS", raising=False)
    monkeypatch.delenv("RATCHET_HOME", raising=False)
    settings = ClientSettings(home=tmp_path)
    for address in (temporal_address, "127.0.0.1:1"):
        monkeypatch.setattr(connection, "DEFAULT_ADDRESS", address)
        with pytest.raises((Refused, Unreachable)) as error:
            async with connect(settings) as ratchet:
                await ratchet.read_object("ns:sdk:mci:nowhere")
        assert isinstance(error.value, Refused | Unreachable)
        assert f"{address} was asked, because no stack of `starter up` was found in {tmp_path}" in str(error.value)
        assert "set RATCHET_HOME or TEMPORAL_ADDRESS" in error.value.hint
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
    with pytest.raises(Refused) as refused:
        async with connect(settings) as ratchet:
            await ratchet.read_object("ns:sdk:mci:nowhere")
    assert "was asked" not in str(refused.value)


@pytest.mark.parametrize("is_named", [True, False], ids=["named", "stopped"])
async def test_a_stack_that_does_not_run_is_not_replaced_by_the_server_at_the_usual_address(
    stack: WorkerService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temporal_address: str, is_named: bool
) -> None:
    monkeypatch.delenv("TEMPORAL_ADDRESS", raising=False)
    monkeypatch.setattr(connection, "DEFAULT_ADDRESS", temporal_address)
    if is_named:
        monkeypatch.setenv("RATCHET_HOME", str(tmp_path))
    else:
        (tmp_path / TEMPORAL_DATA_FILE).touch()
    with pytest.raises(Unreachable, match=f"no stack runs in {tmp_path}") as error:
        async with connect(ClientSettings(home=tmp_path)):
            pass
    assert "starter up" in error.value.hint
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
    async with connect(ClientSettings(home=tmp_path)) as ratchet:
        assert ratchet.client.service_client.config.target_host == temporal_address


async def test_an_object_and_its_history_are_read_by_path(asking: ActionClient, ns: str) -> None:
    path = build_path(("ns", "mci"), (ns, "shop"))
    with pytest.raises(Refused) as refused:
        await asking.read_object(path)
    assert refused.value.category is Category.NOT_FOUND
    servers = {"name": "front", "subGroupSize": 1, "csp": "aws", "region": "eu-central-1"}
    ticket = await asking.request_action(Request(path=path, action="create", spec={"subGroups": [servers]}))
    await asking.wait_for_outcome(ticket.path, ticket.run)
    assert (await asking.read_object(path)).path == path
    assert {line.action for line in await asking.read_history(path)} == {"create"}
    assert len(await asking.read_history(path, limit=1)) == 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"path": "default/web"}, "a path is kind:name pairs"), ({"path": "ns:a:mci:b", "forced": True}, "forced: ")],
)
def test_a_request_that_is_wrong_in_itself_is_refused_like_any_other(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused) as refused:
        Request(action="suspend", **fields)
    assert refused.value.category is Category.INVALID
    assert words in refused.value.message
    assert 'path="ns:default:mci:web"' in refused.value.hint
    with pytest.raises(ValidationError):
        Request.model_validate({"action": "suspend", **fields})


def test_every_name_of_the_package_is_there_and_no_other() -> None:
    assert {name: getattr(client, name).__name__ for name in client.__all__} == {name: name for name in client.__all__}
    with pytest.raises(AttributeError, match="has no attribute 'Nobody'"):
        _ = client.Nobody


@pytest.mark.parametrize(
    ("importing", "loaded"),
    [("from client import connect", OUTSIDE), ("import client.errors", (*OUTSIDE, "temporalio"))],
)
def test_a_client_brings_neither_the_store_nor_the_workers_nor_the_command_line(
    importing: str, loaded: tuple[str, ...]
) -> None:
    look = f"{importing}; import sys; print(*sorted({{name.split('.')[0] for name in sys.modules}} & set({loaded!r})))"
    told = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert told.stdout.split() == []
