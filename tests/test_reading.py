"""Commands that read through the gateway of their home folder, and do not load Temporal's SDK for it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from client.gateway import STATUS_ROUTE, GatewayAddress
from client.homefiles import EMBEDDED_FILE, LOGIN_FILE
from client.reading import find_own_gateway
from starter.output import Sheet, StatusPage
from tests.cable import listening
from tests.patience import PATIENCE

NOBODY = "127.0.0.1:1"  # no server can listen there
# A busy machine is no failure of the gateway: a child waits for its answer as long as a test does.
SHOW_MODULES = f"import client.reading as r; r.Queries.read_seconds = {PATIENCE}; "
SHOW_MODULES += "import asyncio, sys, starter.command as c; code = asyncio.run(c.run_command(sys.argv[1:])); "
SHOW_MODULES += "print('temporalio' in sys.modules, code)"
SHOW_LOADED = f"import starter.shortcut as s; s.GATEWAY_SECONDS = {PATIENCE}; "
SHOW_LOADED += "import sys, starter.__main__ as m; code = m._run(sys.argv[1:]); "
SHOW_LOADED += "print(code, sorted({'asyncio', 'cyclopts', 'pydantic'} & {*sys.modules}))"


def write_home(home: Path, url: str, namespace: str = "default") -> Path:
    home.mkdir(exist_ok=True)
    (home / EMBEDDED_FILE).write_text(json.dumps({"address": NOBODY}))
    GatewayAddress(url, NOBODY, namespace, "token").save_address(home)
    return home


@asynccontextmanager
async def answering(status: int, document: object) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A gateway that gives every read the same answer. Yields its URL and the requests."""
    body = json.dumps(document).encode()
    requests: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.0 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))
        await writer.drain()

    async with listening(answer) as address:
        yield f"http://{address}", requests


async def run_and_show(home: Path, *words: str, show: str = SHOW_MODULES) -> list[str]:
    """The lines of a command, and then whether it loaded Temporal's SDK, and its exit code."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "RATCHET_"))}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", show, *words),
        env=environ | {"RATCHET_HOME": str(home), "HOME": str(home)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(PATIENCE):
        return (await process.communicate())[0].decode().splitlines()


async def test_a_read_through_the_gateway_needs_no_sdk(tmp_path: Path) -> None:
    async with answering(200, {"locks": []}) as (url, requests):
        lines = await run_and_show(write_home(tmp_path, url), "locks")
    assert lines == ["nothing is locked", "False 0"]
    assert [request.split()[1] for request in requests] == [b"/v1/reads/read_locks"]


async def test_a_refusal_of_the_gateway_is_the_answer(tmp_path: Path) -> None:
    refusal = {"type": "urn:ratchet:not_found", "detail": "mci web does not exist", "hint": "starter mci list"}
    async with answering(404, refusal) as (url, _):
        lines = await run_and_show(write_home(tmp_path, url), "mci", "status", "default/web")
    assert "mci web does not exist" in "\n".join(lines)
    assert lines[-1].startswith("False")


async def test_what_the_gateway_cannot_answer_is_asked_of_temporal(tmp_path: Path) -> None:
    async with answering(404, {"detail": "an old version has no such read"}) as (url, _):
        lines = await run_and_show(write_home(tmp_path, url), "locks")
    assert NOBODY in "\n".join(lines), "the client tried to connect to Temporal"
    assert lines[-1].startswith("True")


def test_another_namespace_a_login_or_a_profile_needs_the_whole_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    environ = {"RATCHET_HOME": str(write_home(tmp_path, "http://127.0.0.1:1"))}
    assert find_own_gateway(environ)
    assert find_own_gateway(environ | {"RATCHET_SUBJECT": "ann", "PATH": "/bin"})
    for name in ("TEMPORAL_ADDRESS", "TEMPORAL_PROFILE", "RATCHET_KEY_FILE", "RATCHET_TRACES", "XDG_CONFIG_HOME"):
        assert find_own_gateway(environ | {name: "x"}) is None, name
    (tmp_path / LOGIN_FILE).touch()
    assert find_own_gateway(environ) is None
    (tmp_path / LOGIN_FILE).unlink()
    profiles = tmp_path / ".config" / "temporalio"
    profiles.mkdir(parents=True)
    (profiles / "temporal.toml").touch()
    assert find_own_gateway(environ) is None
    (profiles / "temporal.toml").unlink()
    write_home(tmp_path, "http://127.0.0.1:1", "another")
    assert find_own_gateway(environ) is None


async def test_a_status_by_the_gateway_needs_no_models_no_parser_and_no_event_loop(tmp_path: Path) -> None:
    rows = [["front-1", "Running"], ["front-2", "Failed"]]
    page = StatusPage("default/web  Partial", Sheet({}, ["NAME", "STATUS"], rows, ["ns:default:mci:web"]))
    async with answering(200, page.to_json_data()) as (url, requests):
        lines = await run_and_show(write_home(tmp_path, url), "mci", "status", "default/web", show=SHOW_LOADED)
    table = ["NAME     STATUS", "front-1  Running", "front-2  Failed"]
    assert lines == ["default/web  Partial", "", *table, "0 []"]
    assert [request.split()[1] for request in requests] == [STATUS_ROUTE.encode()]


@pytest.mark.parametrize("answer", [{"headline": ""}, {"headline": "", "sheet": {"of": "another version"}}, [], None])
async def test_a_status_that_cannot_be_printed_is_read_as_by_every_command(tmp_path: Path, answer: object) -> None:
    async with answering(200, answer) as (url, requests):
        lines = await run_and_show(write_home(tmp_path, url), "mci", "status", "default/web", show=SHOW_LOADED)
    assert [request.split()[1] for request in requests] == [STATUS_ROUTE.encode(), b"/v1/reads/read_object"]
    assert NOBODY in "\n".join(lines), "the gateway answers nothing that is understood, so Temporal is asked"
