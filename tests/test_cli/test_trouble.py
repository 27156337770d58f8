"""No server, no worker, a locked store, a busy object: the CLI says so at once and changes nothing."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from client.actions import ActionClient
from client.patience import PollWatch
from domain.paths import expand_path
from starter import session
from starter.errors import ExitCode
from store import engine
from tests.cable import wire_to
from tests.patience import PATIENCE
from tests.test_cli.shell import EXAMPLES, Cli, Clouds, assert_told, ended, heard, under_way


async def test_without_a_server_every_command_says_how_to_start_one(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    for words in ("mci suspend default/web", "get default/web", "demo", "setup", "worker"):
        ran = await asyncio.wait_for(cli(words), PATIENCE)
        assert_told(ran, ExitCode.UNREACHABLE, "no Temporal server at 127.0.0.1:1: connection refused")
        assert "starter up" in ran.err


async def test_an_unknown_namespace_is_told(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "nowhere")
    assert_told(await cli("mci suspend default/web"), ExitCode.UNREACHABLE, "Temporal has no namespace 'nowhere'")


async def test_without_a_worker_nothing_is_started(cli: Cli, client: Client, empty_namespace: str) -> None:
    ran = await cli("mci suspend default/web")
    assert_told(ran, ExitCode.UNREACHABLE, "no worker polls the queue 'actions'")
    assert "starter worker" in ran.err
    there = await Client.connect(client.service_client.config.target_host, namespace=empty_namespace)
    with pytest.raises(RPCError, match="not found"):
        await there.get_workflow_handle("ns:default:mci:web").describe()


async def test_an_outage_of_temporal_ends_the_waiting_and_says_that_the_action_goes_on(
    cli: Cli, asking: ActionClient, ns: str, temporal_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, path = str(EXAMPLES / "mci-demo.yaml"), f"ns:{ns}:mci:web"
    async with wire_to(temporal_address) as cable:
        monkeypatch.setenv("TEMPORAL_ADDRESS", cable.address)
        waiting = await cli.start(f"mci create {ns}/web --option hold -f", spec)
        await heard(waiting, "Prepared")
        cable.cut()
        async with asyncio.timeout(PATIENCE):
            ran = await ended(waiting)
    told = ran.err[ran.err.index("error: ") :].splitlines()
    assert ran.code == ExitCode.UNREACHABLE
    assert told[0] == "error: stopped waiting: the action goes on", ran.err
    assert "Temporal was lost" in told[1]
    assert told[2].endswith(f"starter wait {path}")
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
    assert (await cli(f"mci continue {ns}/web")).code == ExitCode.DONE
    assert (await cli(f"wait {path} -o name")).code == ExitCode.DONE


async def test_an_outage_before_the_admission_says_that_nobody_knows_whether_the_action_began(
    cli: Cli, mci: str, home: Path, asking: ActionClient, temporal_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = expand_path(mci, ("ns", "mci"))
    locked = Locked(home / "inventory.db")
    try:
        async with wire_to(temporal_address) as cable:
            monkeypatch.setenv("TEMPORAL_ADDRESS", cable.address)
            waiting = await cli.start(f"mci suspend {path}")
            await under_way(asking, path)
            cable.cut()
            async with asyncio.timeout(PATIENCE):
                ran = await ended(waiting)
    finally:
        locked.release()
    assert_told(ran, ExitCode.UNREACHABLE, "no answer: it is not known whether the action began")
    assert f"starter explain {path}" in ran.err
    assert "goes on" not in ran.err
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
    assert (await cli(f"explain {path}")).code == ExitCode.DONE
    assert (await cli(f"wait {path}")).code == ExitCode.DONE


async def test_a_timeout_before_the_admission_does_not_say_that_the_action_goes_on(
    cli: Cli, mci: str, home: Path
) -> None:
    locked = Locked(home / "inventory.db")
    try:
        ran = await cli(f"mci suspend {mci} --yes --timeout 2s")
    finally:
        locked.release()
    path = expand_path(mci, ("ns", "mci"))
    assert_told(ran, ExitCode.STILL_WAITING, "within 2 s: it is not known whether the action began")
    assert f"starter explain {path}" in ran.err
    assert (await cli(f"wait {path}")).code == ExitCode.DONE


async def test_ctrl_c_before_the_admission_does_not_say_that_the_action_goes_on(
    cli: Cli, mci: str, home: Path, asking: ActionClient
) -> None:
    path = expand_path(mci, ("ns", "mci"))
    locked = Locked(home / "inventory.db")
    try:
        waiting = await cli.start(f"mci suspend {path}")
        await under_way(asking, path)
        waiting.send_signal(signal.SIGINT)
        async with asyncio.timeout(PATIENCE):
            ran = await ended(waiting)
    finally:
        locked.release()
    assert (ran.code, ran.out) == (ExitCode.INTERRUPTED, ""), ran.err
    assert f"it is not known whether the action began. See whether it runs: starter explain {path}" in ran.err
    assert (await cli(f"wait {path}")).code == ExitCode.DONE


class Locked:
    """Another process that holds a SQLite database for itself."""

    CODE = (
        "import sqlite3, sys; held = sqlite3.connect(sys.argv[1], isolation_level=None); "
        "held.execute('BEGIN EXCLUSIVE'); print('locked', flush=True); sys.stdin.read()"
    )

    def __init__(self, database: Path) -> None:
        command = [sys.executable, "-c", self.CODE, str(database)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout
        assert self._process.stdout.readline() == b"locked\n"

    def release(self) -> None:
        self._process.communicate()


async def test_an_action_waits_for_a_locked_database_and_then_succeeds(
    cli: Cli, asking: ActionClient, mci: str, home: Path
) -> None:
    locked = Locked(home / "inventory.db")
    try:
        waiting = asyncio.create_task(cli.process(f"mci suspend {mci} -o name"))
        await under_way(asking, expand_path(mci, ("ns", "mci")))
        assert not waiting.done()
    finally:
        locked.release()
    ran = await waiting
    assert (ran.code, ran.out) == (ExitCode.DONE, f"{expand_path(mci, ('ns', 'mci'))}\n"), ran.err


async def test_a_request_that_nobody_can_answer_yet_stays_and_is_carried_out_later(
    cli: Cli, asking: ActionClient, mci: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read_last_poll(_client: ActionClient) -> float:
        await under_way(asking, expand_path(mci, ("ns", "mci")))  # else there would be no request that stays
        return 1.0  # long ago: one that comes just now would make it wait on, and say so

    monkeypatch.setattr(ActionClient, "admission_seconds", 0.5)
    monkeypatch.setattr(ActionClient, "_read_last_poll", read_last_poll)
    locked = Locked(home / "inventory.db")
    try:
        ran = await cli(f"mci suspend {mci}")
    finally:
        locked.release()
    assert_told(ran, ExitCode.UNREACHABLE, "s; the request stays")
    assert f"starter wait {expand_path(mci, ('ns', 'mci'))}" in ran.err
    attached = await cli(f"wait {mci}")
    assert (attached.code, "Suspended:6 (R:0/6)" in attached.out) == (ExitCode.DONE, True), attached.err


async def test_a_request_to_workers_that_have_much_to_do_says_that_it_waits_and_is_answered(
    cli: Cli, mci: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read_last_poll(_client: ActionClient) -> float:
        return 1.0

    async def is_polled(watch: PollWatch, _seconds: float) -> bool:
        return await watch._read_last_poll() == 1  # at every look, however late it comes

    monkeypatch.setattr(ActionClient, "admission_seconds", 0.5)
    monkeypatch.setattr(ActionClient, "_read_last_poll", read_last_poll)
    monkeypatch.setattr(PollWatch, "is_polled", is_polled)
    locked, say = Locked(home / "inventory.db"), session._say_delay

    def release_and_say() -> None:
        locked.release()
        say()

    monkeypatch.setattr(session, "_say_delay", release_and_say)
    try:
        ran = await cli(f"mci suspend {mci}")
    finally:
        locked.release()
    assert (ran.code, "Suspended:6 (R:0/6)" in ran.out) == (ExitCode.DONE, True), ran.err
    assert ran.err.count("the workers have much to do: still waiting for their answer") == 1


async def test_migrating_a_locked_database_says_so(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATCHET_STORE_URL", f"sqlite:///{tmp_path / 'store.db'}")
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_SECONDS", 0.2)
    assert (await cli("migrate")).code == ExitCode.DONE
    locked = Locked(tmp_path / "store.db")
    try:
        assert_told(await cli("migrate"), ExitCode.UNREACHABLE, "database is locked")
    finally:
        locked.release()


async def test_of_two_racing_terminals_one_wins_and_the_other_names_the_winner(
    cli: Cli, clouds: Clouds, mci: str, ns: str
) -> None:
    await clouds.stall(ns)
    terminals = [asyncio.create_task(cli.process(f"mci suspend {mci} -o name")) for _ in range(2)]
    done, waiting = await asyncio.wait(terminals, return_when=asyncio.FIRST_COMPLETED)
    await clouds.relent()
    loser, winner = await done.pop(), await waiting.pop()
    path = expand_path(mci, ("ns", "mci"))
    assert_told(loser, ExitCode.BUSY, f"409 Conflict: other action currently happening on {path}: suspend since")
    assert f"starter wait {path}" in loser.err
    assert (winner.code, winner.out) == (ExitCode.DONE, f"{path}\n"), winner.err
