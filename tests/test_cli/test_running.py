"""Commands that run things: the embedded stack, workers, the demo, the doctor, setup; and help."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client

from client.actions import ActionClient
from client.homefiles import EMBEDDED_FILE, read_embedded_options
from domain import registry, wire
from starter.demo import request_expecting_refusal
from starter.errors import ExitCode
from starter.mci import demo
from tests.patience import PATIENCE
from tests.test_cli.shell import Cli, Clouds, Ran, assert_told, ended, heard
from tests.test_store.driver import WEB, StoreDriver
from workers.datafolder import is_folder_in_use


def commands() -> list[str]:
    """Every command that there is."""
    verbs = [f"{kind.name} {verb.action}" for kind in registry.KINDS.values() for verb in kind.verbs]
    reads = [f"{kind} {verb}" for kind in registry.KINDS for verb in ("status", "list")]
    faults = [f"cloud fault {verb}" for verb in ("add", "set", "list", "clear")]
    others = "get list history locks states check wait cancel demo up worker doctor setup migrate"
    return [*verbs, *reads, *faults, *others.split(), "build list", "build promote"]


async def test_every_command_has_help_with_an_example(cli: Cli) -> None:
    ran = {words: await cli(f"{words} --help") for words in commands()}
    examples = {words: " ".join(ran.out.partition("Example:")[2].split()) for words, ran in ran.items()}
    assert {words: ran for words, ran in ran.items() if ran.code != ExitCode.DONE} == {}
    assert {words: each for words, each in examples.items() if f"starter {words}" not in each} == {}


async def test_help_does_not_import_temporal(cli: Cli) -> None:
    code = "import asyncio, sys, starter.command as c; asyncio.run(c.run_command(['--help'])); print([*sys.modules])"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    loaded = (await process.communicate())[0].decode().splitlines()[-1]
    for heavy in ("temporalio", "sqlalchemy", "yaml", "pydantic_settings"):
        assert f"'{heavy}'" not in loaded


async def test_the_version_is_printed(cli: Cli) -> None:
    assert (await cli("--version")).out == "0.1.0\n"


async def test_a_traceback_is_shown_only_when_asked_for(cli: Cli) -> None:
    assert "Traceback" not in (await cli("list rocket")).err
    assert "Traceback" in (await cli("list rocket --debug")).err


async def test_the_doctor_finds_a_healthy_stack_healthy(cli: Cli, asking: ActionClient, home: Path) -> None:
    ran = await cli("doctor -o json")
    found = {load["about"]: load for load in json.loads(ran.out)}
    assert (ran.code, [each for each in found.values() if each["mend"]]) == (ExitCode.DONE, [])
    assert set(found) == {"versions", "names", "server", "namespace", "search attributes", "workers", "store"}
    assert str(home / "inventory.db") in found["store"]["found"]


async def test_the_doctor_says_what_is_wrong_and_how_to_mend_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    ran = await cli("doctor")
    assert ran.code == ExitCode.UNREACHABLE
    assert "connection refused" in ran.out
    assert "starter up" in ran.err


async def test_the_doctor_names_a_data_folder_that_others_may_use(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers do not start there, and of those that miss one sees only that nobody polls."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("RATCHET_HOME", str(home))
    assert "others may use" not in (await cli("doctor")).out
    home.chmod(0o755)
    ran = await cli("doctor")
    assert ran.code == ExitCode.UNREACHABLE
    assert f"others may use {home}, which has mode 0755" in ran.out
    assert f"chmod -R go-rwx {home}" in ran.err


async def test_in_an_empty_namespace_the_doctor_misses_everything_and_setup_registers_attributes(
    cli: Cli, client: Client, empty_namespace: str
) -> None:
    ill = await cli("doctor -o json")
    mend = {load["mend"] for load in json.loads(ill.out)}
    assert ill.code == ExitCode.UNREACHABLE
    assert {"starter setup", "starter worker"} <= mend
    first, second = await cli("setup"), await cli("setup")
    assert (first.code, second.code) == (ExitCode.DONE, ExitCode.DONE)
    assert "registered ObjectPath" in first.out
    assert "registered already" in second.out
    request = ListSearchAttributesRequest(namespace=empty_namespace)
    known = await client.operator_service.list_search_attributes(request)
    assert set(wire.SEARCH_ATTRIBUTES) <= set(known.custom_attributes)


async def test_migrating_twice_is_harmless(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATCHET_STORE_URL", f"sqlite:///{tmp_path / 'store.db'}")
    assert "went from schema none to" in (await cli("migrate")).out
    assert "already" in (await cli("migrate")).out


async def test_migrate_restored_ends_what_was_open_and_says_what_is_next(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    monkeypatch.setenv("RATCHET_STORE_URL", url)
    await cli("migrate")
    driver = StoreDriver(url)
    await driver.make()
    await driver.grant(WEB, "suspend")
    first, second = await cli("migrate --restored"), await cli("migrate --restored")
    assert (first.code, second.code) == (ExitCode.DONE, ExitCode.DONE)
    assert "this is incarnation 2 of the store; runs that started before now are refused" in first.out
    assert "1 action was open in the backup: ended as abandoned" in first.out
    assert "next: start the workers; then starter heal, starter verify; for what the clouds did" in first.out
    assert "this is incarnation 3 of the store" in second.out
    assert "0 actions were open in the backup" in second.out
    assert await driver.inventory.list_locks() == []
    assert set((await driver.statuses(WEB)).values()) == {"Running"}
    driver.close()


async def test_the_demo_tells_its_story(cli: Cli, clouds: Clouds, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse_and_relent(*given: Any) -> None:
        await request_expecting_refusal(*given)
        await clouds.relent()

    monkeypatch.setattr(demo, "request_expecting_refusal", refuse_and_relent)
    await clouds.stall("default", verb="resume")  # it runs until the other action was refused
    ran = await cli("demo")
    assert ran.code == ExitCode.DONE, ran.err
    for words in (
        "Running:6 (R:6/6)",
        "Suspended:6 (R:0/6)",
        "409 Conflict: other action currently happening on ns:default:mci:demo-",
        "Terminated:6 (R:0/6)",
        "/history",
        "starter --help",
    ):
        assert words in ran.out


async def test_up_runs_everything_until_it_is_told_to_stop(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEMPORAL_ADDRESS")
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path))
    up = await cli.start("up")
    try:
        await _said(up, "stop ")
        assert (await cli("doctor")).code == ExitCode.DONE
        assert_told(await cli("up"), ExitCode.BUSY, f"a stack is running in {tmp_path} already")
        up.send_signal(signal.SIGINT)
        ran = await ended(up)
    finally:
        if up.returncode is None:
            up.kill()
    assert (ran.code, ran.err) == (ExitCode.DONE, "")
    assert not (tmp_path / EMBEDDED_FILE).exists()
    assert not is_folder_in_use(tmp_path)


async def test_a_demo_of_its_own_takes_over_what_a_killed_stack_left(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEMPORAL_ADDRESS")
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path))
    monkeypatch.setenv("RATCHET_SIMULATED_LATENCY", "0.1")
    up = await cli.start("up")
    await _said(up, "stop ")
    stalling = "cloud fault add throttle --retry-after 0.1 --verb resume --vm ns:default:mci:demo-*"
    assert (await cli(stalling)).code == ExitCode.DONE  # it runs until the other action was refused
    orphan = read_embedded_options(tmp_path)["pid"]
    up.kill()
    await up.wait()
    telling = await cli.start("demo")
    await _said(telling, "409 Conflict")
    assert (await cli("cloud fault clear")).code == ExitCode.DONE
    ran = await ended(telling)
    assert (ran.code, ran.err) == (ExitCode.DONE, "")
    assert "Terminated:6 (R:0/6)  succeeded" in ran.out
    with pytest.raises(ProcessLookupError):
        os.kill(orphan, 0)


async def test_a_worker_logs_json_and_ends_gracefully(
    cli: Cli, asking: ActionClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATCHET_DRAIN", str(10 * PATIENCE))  # which is for work that runs: there is none
    worker = await cli.start("worker --queues cloud-other")
    serving = json.loads(await heard(worker, "serving"))
    assert serving["queues"] == ["cloud-other"]
    worker.send_signal(signal.SIGTERM)
    ran = await asyncio.wait_for(ended(worker), PATIENCE)
    assert ran.code == ExitCode.DONE
    assert [json.loads(line)["event"] for line in ran.err.splitlines()][-1] == "stopped"


async def test_reading_only_the_first_line_is_no_error(cli: Cli, mci: str) -> None:
    process = await cli.start(f"list vm --prefix {mci}")
    assert process.stdout
    await process.stdout.readline()
    process.stdout._transport.close()  # type: ignore[attr-defined]
    assert process.stderr
    assert Ran(await process.wait(), "", (await process.stderr.read()).decode()) == Ran(0, "", "")


async def _said(process: asyncio.subprocess.Process, words: str) -> None:
    assert process.stdout
    async with asyncio.timeout(PATIENCE):
        async for line in process.stdout:
            if words in line.decode():
                return
    raise AssertionError(f"it ended without saying {words!r}")
