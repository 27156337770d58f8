"""Signals, explanations, reset runs and reads by name over HTTP; programs of the home folder read by the gateway."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from client.gateway import STATUS_ROUTE, delete_gateway_file, find_gateway
from client.homefiles import EMBEDDED_FILE
from client.reading import GatewayReader
from client.session import connect
from domain.errors import Category, Refused
from domain.paths import short_path
from gateway.process import serve_in_worker_process
from gateway.settings import GatewaySettings
from gateway.tokens import generate_token, hash_token
from starter import watch
from starter.command import run_command
from starter.reads import read_status_data
from starter.shortcut import print_gateway_status
from starter.tui import Tui
from tests.patience import PATIENCE, settled
from tests.test_runs import reset
from tests.user import User, spec
from workers.service import WorkerService

READS = 200


@pytest.fixture
def gateway_settings(stack: WorkerService) -> GatewaySettings:
    return GatewaySettings(home=stack.settings.home, gateway_port=0)


@pytest.fixture
async def url(stack: WorkerService, gateway_settings: GatewaySettings) -> AsyncIterator[str]:
    async with serve_in_worker_process(stack, gateway_settings, "") as found:
        yield found


@pytest.fixture
async def http(url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client:
        yield client


async def test_an_mci_that_holds_is_continued_by_a_signal(http: httpx.AsyncClient, user: User) -> None:
    path = user.mci()
    begun = await http.post(
        f"/v1/objects/{path}/actions/create",
        json={"spec": {**spec(1, ["aws"]), "option": "hold"}},
        headers={"Prefer": "respond-async"},
    )
    assert begun.status_code == 202, begun.text
    await user.until_status(path, "Prepared")
    explained = (await http.get(f"/v1/objects/{path}/explain")).json()
    assert explained["run"]
    assert "create since" in str(explained["remarks"]), explained
    said = {"reason": "checked", "requested_by": "mallory"}
    taken = await http.post(f"/v1/objects/{path}/signals/continue", json=said)
    assert (taken.status_code, taken.json()) == (202, {"received_by": path})
    assert (await user.asking.wait_for_outcome(path)).result == "succeeded"
    late = await http.post(f"/v1/objects/{path}/signals/continue", json={})
    assert (late.status_code, late.json()["type"]) == (409, "urn:ratchet:not_allowed")
    explained = (await http.get(f"/v1/objects/{path}/explain")).json()
    assert {"suspend", "resume"} & set(explained["allowed"]) == {"suspend"}
    assert (await http.get(f"/v1/objects/{user.mci('none')}/explain")).status_code == 404


async def test_a_signal_that_is_unknown_wrong_or_awaited_by_nobody_is_refused(
    http: httpx.AsyncClient, user: User
) -> None:
    cloudlet = f"org:{user.ns}:cloudlet:berlin"
    answers = [
        await http.post(f"/v1/objects/{user.mci()}/signals/fly", json={}),
        await http.post(f"/v1/objects/{cloudlet}/signals/crm_response", json={"state": 7}),
        await http.post(f"/v1/objects/{cloudlet}/signals/crm_response", json={"state": "Ready", "notify_id": 1}),
        await http.post(f"/v1/objects/{cloudlet}/signals/crm_response", json=["Ready"]),
    ]
    assert [answer.status_code for answer in answers] == [404, 422, 409, 422], [answer.text for answer in answers]
    kinds = {kind["name"]: kind["signals"] for kind in (await http.get("/v1/kinds")).json()}
    assert (kinds["mci"], kinds["app"], kinds["disk"]) == (["continue", "withdraw"], ["crm_response"], [])


async def test_a_run_that_was_reset_is_read_and_cancelled_under_its_first_name(
    http: httpx.AsyncClient, user: User
) -> None:
    path = user.mci()
    await user.do(path, "create", spec=spec(1, ["aws"]))
    await user.fault("hang", vm="aws0-1", verb="reboot", seconds=60)
    run = (await user.admitted(path, "reboot")).run
    await user.until_delayed(user.vm("aws0-1"))
    second = await reset(user.asking.client, path, run, -1)
    last = await reset(user.asking.client, path, second, 0)
    assert (await http.get(f"/v1/actions/{run}")).json()["progress"]["action"] == "reboot"
    assert (await http.delete(f"/v1/actions/{run}")).status_code == 202
    assert (await user.asking.wait_for_outcome(path, last)).result == "cancelled"


async def count_executions(user: User) -> tuple[int, int]:
    client = user.asking.client
    own = f"WorkflowId STARTS_WITH 'ns:{user.ns}:'"  # clocks and links of earlier tests go on by themselves
    return (await client.count_activities()).count, (await client.count_workflows(own)).count


async def test_the_tui_and_watches_leave_nothing_in_temporal(
    url: str, user: User, gateway_settings: GatewaySettings, monkeypatch: pytest.MonkeyPatch, temporal_address: str
) -> None:
    """Each of eleven views looks a dozen times or more: an hour of it adds as little as a minute."""
    path = user.mci()
    await user.do(path, "create", spec=spec(2, ["aws"]))
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
    monkeypatch.setenv("RATCHET_HOME", str(gateway_settings.home))
    monkeypatch.setattr(watch, "WATCH_SECONDS", 0.02)
    before = await settled(partial(count_executions, user))
    short = path.removeprefix("ns:").replace(":mci:", "/")
    shown = ("mci status", "history", "locks", "explain", "get")
    commands = [[*words.split(), short, "--watch"] for words in shown]
    commands += [[kind, "list", "--watch"] for kind in ("mci", "vm", "lease", "machine", "app")]
    watching = [asyncio.create_task(run_command(command)) for command in commands]
    reads = 0
    original = GatewayReader.try_read

    async def count_reads(self: GatewayReader, *given: Any) -> Any:
        nonlocal reads
        found = await original(self, *given)
        assert found is not None, given
        reads += 1
        return found

    monkeypatch.setattr(GatewayReader, "try_read", count_reads)
    async with connect(gateway_settings) as client:
        assert client.gateway
        app = Tui(client)
        async with app.run_test(size=(160, 40)) as pilot, asyncio.timeout(PATIENCE):
            while reads < READS:
                await pilot.press("r")
                await pilot.pause(0.05)
    ended = [command for command, task in zip(commands, watching, strict=True) if task.done()]
    for task in watching:
        task.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
    assert ended == []
    assert await count_executions(user) == before


async def test_the_file_in_the_home_folder_opens_reads_and_nothing_else(
    stack: WorkerService, user: User, tmp_path: Path, gateway_settings: GatewaySettings
) -> None:
    file = tmp_path / "tokens.yaml"
    file.write_text(f"tokens:\n  - {{name: ci, hash: '{hash_token(generate_token())}'}}\n")
    file.chmod(0o600)
    settings = gateway_settings.model_copy(update={"gateway_tokens": file})
    home, client = settings.home, user.asking.client
    address = client.service_client.config.target_host
    async with (
        serve_in_worker_process(stack, settings, "") as url,
        httpx.AsyncClient(base_url=url, timeout=PATIENCE) as http,
    ):
        assert os.stat(home / "gateway.json").st_mode & 0o077 == 0
        found = find_gateway(home, address, client.namespace)
        assert found
        assert find_gateway(home, address, "another") is None, "of another namespace: not this one's objects"
        reads = {"Authorization": f"Bearer {found.token}"}
        assert (await http.post("/v1/reads/read_locks", json={}, headers=reads)).status_code == 200
        assert (await http.post("/v1/reads/read_locks", json={})).status_code == 401
        assert (await http.post("/v1/reads/begin", json={}, headers=reads)).status_code == 404
        assert (await http.post(f"/v1/objects/{user.mci()}/actions/create", headers=reads)).status_code == 401
        async with connect(settings) as ratchet:
            with pytest.raises(Refused) as refused:
                await ratchet.read_object(user.mci("none"))
            assert refused.value.category is Category.NOT_FOUND
            assert refused.value.hint
    assert not (home / "gateway.json").exists()


async def test_a_worker_answers_when_the_gateway_of_the_file_is_gone(
    user: User, gateway_settings: GatewaySettings, stack: WorkerService
) -> None:
    async with serve_in_worker_process(stack, gateway_settings, ""):
        text = (gateway_settings.home / "gateway.json").read_text()
    (gateway_settings.home / "gateway.json").write_text(text)  # as after a kill
    try:
        await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
        async with connect(gateway_settings) as client:
            assert client.gateway
            assert (await client.read_object(user.mci())).kind == "mci"
    finally:
        delete_gateway_file(gateway_settings.home)


@pytest.mark.parametrize("output", ["table", "json", "yaml", "name"])
@pytest.mark.parametrize("kind", ["mci", "vm"])
async def test_a_status_by_the_gateway_is_printed_as_by_a_worker(
    kind: str,
    output: str,
    user: User,
    stack: WorkerService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, address = user.mci(), user.asking.client.service_client.config.target_host
    await user.do(path, "create", spec=spec(2, ["aws"]))
    paths = [view.path async for view in user.asking.iterate_objects(kind, path)]
    words = [kind, "status", short_path(paths[0]), "--output", output]
    for name in [name for name in os.environ if name.startswith(("TEMPORAL_", "RATCHET_", "XDG_"))]:
        monkeypatch.delenv(name)
    home, other_home = tmp_path / "home", tmp_path / "other"
    home.mkdir()
    (home / EMBEDDED_FILE).write_text(json.dumps({"address": address}))
    monkeypatch.setenv("HOME", str(tmp_path))
    with monkeypatch.context() as directly:
        directly.setenv("RATCHET_HOME", str(other_home))
        directly.setenv("TEMPORAL_ADDRESS", address)
        assert await run_command(words) == 0
    by_worker = capsys.readouterr()
    assert by_worker.out
    monkeypatch.setenv("RATCHET_HOME", str(home))
    settings = GatewaySettings(home=home, gateway_port=0)
    async with serve_in_worker_process(stack, settings, "", read_status_data):
        assert await asyncio.to_thread(print_gateway_status, words)
        assert capsys.readouterr() == by_worker
        assert not await asyncio.to_thread(print_gateway_status, [kind, "status", "none/none" + "/v" * (kind == "vm")])
        assert capsys.readouterr() == ("", ""), "what is refused is asked for again, by a command that can say why"
    assert not await asyncio.to_thread(print_gateway_status, words)


async def test_only_programs_of_the_home_folder_get_a_status_as_it_is_printed(
    stack: WorkerService, user: User, gateway_settings: GatewaySettings
) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    query = {"path": user.mci(), "requested_by": "ann"}
    home, client = gateway_settings.home, user.asking.client
    async with (
        serve_in_worker_process(stack, gateway_settings, "", read_status_data) as url,
        httpx.AsyncClient(base_url=url, timeout=PATIENCE) as http,
    ):
        found = find_gateway(home, client.service_client.config.target_host, client.namespace)
        assert found
        reads = {"Authorization": f"Bearer {found.token}"}
        assert (await http.post(STATUS_ROUTE, json=query, headers=reads)).json()["sheet"]["names"] == [user.mci()]
        assert (await http.post(STATUS_ROUTE, json=query)).status_code == 404
