"""Profiles, certificates and keys: valid ones connect, and an error says what is wrong with the others."""

from __future__ import annotations

import asyncio
import os
import socket
import tomllib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import PollActivityTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

from client.connection import KEEP_ALIVE, find_temporal_options
from starter.errors import ExitCode
from tests import cable
from tests.chaos.wire import wire_to
from tests.patience import PATIENCE
from tests.test_cli.shell import Cli, assert_told
from tests.test_platform import gates
from tests.test_platform.gates import Authority, Pair
from workers.service import WorkerService

KEY = "planted-api-key-77"
NOTICED_SECONDS = 40  # 25, and a bit


class Files:
    """The authority, those it trusts and those it does not, and a temporal.toml."""

    def __init__(self, folder: Path) -> None:
        self.authority, self.stranger = Authority(folder, "authority"), Authority(folder, "stranger")
        self.server = self.authority.issue("server")
        self.client = self.authority.issue("client")
        self.toml = folder / "temporal.toml"

    def profile(self, name: str, address: str = "", more: str = "", **tls: Path) -> None:
        where = f'address = "{address}"\n' if address else ""
        lines = "".join(f'{key} = "{file}"\n' for key, file in tls.items())
        text = f"[profile.{name}]\n{where}{more}\n" + (f"[profile.{name}.tls]\n{lines}" if tls else "")
        self.toml.write_text(text)
        tomllib.loads(text)

    def mutual(self, name: str, address: str, pair: Pair, authority: Authority | None = None) -> None:
        ca = (authority or self.authority).file
        self.profile(name, address, client_cert_path=pair.cert, client_key_path=pair.key, server_ca_cert_path=ca)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def cli(made: Files, stack: WorkerService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """No address and no folder of a stack: only a profile can lead anywhere."""
    for name in [name for name in os.environ if name.startswith(("TEMPORAL_", "RATCHET_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(made.toml))
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path))
    return Cli(monkeypatch)


@pytest.fixture
async def door(made: Files, temporal_address: str) -> AsyncIterator[str]:
    """mTLS in front of the session's server."""
    async with gates.tls(temporal_address, gates.context(made.server, made.authority.file)) as address:
        yield address


async def test_with_the_right_profile_every_command_goes_through(cli: Cli, made: Files, door: str) -> None:
    made.mutual("prod", door, made.client)
    for words in ("--profile prod list mci", "--profile=prod locks", "--profile prod doctor"):
        ran = await cli(words)
        assert ran.code == ExitCode.DONE, ran
    assert door in ran.out
    assert "TEMPORAL_PROFILE" not in os.environ, "the next command does not use it"
    ran = await cli("--profile prod worker --queues nonsense")
    assert "unknown queue" in ran.err


async def test_the_doors_of_mutual_tls_say_why_they_stay_shut(cli: Cli, made: Files, door: str) -> None:
    made.mutual("prod", door, made.authority.issue("expired", days=-1))
    ran = await cli("--profile prod list mci")
    assert_told(ran, ExitCode.USAGE, "the client certificate expired on 20")
    made.mutual("prod", door, made.stranger.issue("foreign"))
    ran = await cli("--profile prod list mci")
    assert_told(ran, ExitCode.UNREACHABLE, f"Temporal at {door}: it hung up at once")
    assert "a client certificate that it trusts" in ran.err
    made.profile("prod", door, server_ca_cert_path=made.authority.file)
    assert_told(await cli("--profile prod list mci"), ExitCode.UNREACHABLE, "it hung up at once")
    made.mutual("prod", door, made.client, made.stranger)
    ran = await cli("--profile prod list mci")
    assert_told(ran, ExitCode.UNREACHABLE, "its certificate is signed by nobody whom we trust")
    assert "server_ca_cert_path" in ran.err
    made.mutual("prod", door, Pair(made.client.cert, made.server.key))
    assert_told(await cli("--profile prod list mci"), ExitCode.UNREACHABLE, "and its key do not belong together")
    made.mutual("prod", door, Pair(made.toml, made.toml))
    assert_told(await cli("--profile prod list mci"), ExitCode.UNREACHABLE, "is no PEM file")


async def test_a_server_whose_certificate_has_expired_is_not_trusted(
    cli: Cli, made: Files, temporal_address: str
) -> None:
    async with gates.tls(temporal_address, gates.context(made.authority.issue("old", days=-1))) as door:
        made.profile("prod", door, server_ca_cert_path=made.authority.file)
        assert_told(await cli("--profile prod list mci"), ExitCode.UNREACHABLE, "its certificate has expired")


async def test_tls_where_there_is_none_and_none_where_there_is(
    cli: Cli, made: Files, door: str, temporal_address: str
) -> None:
    made.profile("prod", temporal_address, server_ca_cert_path=made.authority.file)
    assert_told(await cli("--profile prod list mci"), ExitCode.UNREACHABLE, "it does not speak TLS, and we do")
    made.profile("prod", door)
    assert_told(await cli("--profile prod list mci"), ExitCode.UNREACHABLE, "it hung up at once")


@pytest.mark.parametrize("status", [16, 7])
async def test_a_wrong_api_key_is_told_and_not_shown(cli: Cli, made: Files, status: int) -> None:
    async with gates.turning_away(gates.context(made.server), status, "Request unauthorized.") as door:
        made.profile("prod", door, f'api_key = "{KEY}"', server_ca_cert_path=made.authority.file)
        ran = await cli("--profile prod list mci")
        assert_told(ran, ExitCode.UNREACHABLE, "it does not accept our API key or certificate")
        assert "TEMPORAL_API_KEY" in ran.err
        assert KEY not in ran.err + (await cli("--profile prod list mci --debug")).err


@pytest.mark.parametrize(
    ("toml", "profile", "words"),
    [
        ("[profile.prod]\naddress = 'x:1'", "test", "Profile 'test' not found"),
        ("[profile.prod]\nnamespace = 'x'", "prod", "the profile 'prod' has no address"),
        (f"[profile.prod]\napi_key = '{KEY}", "prod", "TOML parse error at line 2"),
        (
            "[profile.prod]\naddress = 'x:1'\n[profile.prod.tls]\nclient_cert_path = '/no'",
            "prod",
            "cannot be read: /no",
        ),
    ],
)
async def test_a_profile_that_is_none_is_told(cli: Cli, made: Files, toml: str, profile: str, words: str) -> None:
    made.toml.write_text(toml)
    for command in ("list mci", "demo", "worker", "setup"):
        ran = await cli(f"--profile {profile} {command}")
        assert_told(ran, ExitCode.USAGE, words)
        assert KEY not in ran.err
    doctor = await cli(f"--profile {profile} doctor")
    assert (doctor.code, words in doctor.out) == (ExitCode.UNREACHABLE, True)


async def test_a_profile_needs_a_name(cli: Cli) -> None:
    assert_told(await cli("--profile"), ExitCode.USAGE, "--profile needs a name")


def test_a_connection_that_is_dead_is_noticed_soon_by_pings_that_a_server_bears(tmp_path: Path) -> None:
    """Temporal's frontend hangs up on pings that come more often than every 10 s."""
    alive = find_temporal_options(tmp_path)["keep_alive_config"]
    assert alive.interval_millis > 10_000
    assert alive.interval_millis + alive.timeout_millis <= 25_000


async def test_a_network_that_drops_packets_is_noticed_by_an_unanswered_ping(temporal_address: str) -> None:
    """Measured: 7.5 to 20 s after the cut. The SDK's own pings would take up to 45 s."""
    async with wire_to(temporal_address) as wire:
        client = await Client.connect(wire.address, keep_alive_config=KEEP_ALIVE)
        nothing = PollActivityTaskQueueRequest(namespace="default", task_queue=TaskQueue(name="nobody-sends-here"))
        poll = asyncio.create_task(client.workflow_service.poll_activity_task_queue(nothing))
        await asyncio.sleep(1)
        wire.cut()
        for _ in range(10 * NOTICED_SECONDS):  # a machine that stands still lets one of them pass
            await asyncio.wait({poll}, timeout=0.1)
        assert poll.done(), "it waits for an answer that cannot come"
        assert isinstance(poll.exception(), RPCError)


async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while not reader.at_eof():
        writer.write(bytes(65_536))
        await writer.drain()


def open_files() -> set[str]:
    """Of this process, by what they are, such as `socket:[4711]`."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # closed meanwhile
            found.add(os.readlink(f"/proc/self/fd/{name}"))
    return found


def sockets_at(*addresses: str) -> set[str]:
    """The sockets of this process that have one of these ports, or are connected to it. Others come and go as well."""
    ports = {int(address.split(":")[1]) for address in addresses}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    found = {f"socket:[{row[9]}]" for row in rows if ports & {int(end.split(":")[1], 16) for end in row[1:3]}}
    return found & open_files()


@pytest.mark.parametrize("open_wire", [wire_to, cable.wire_to], ids=["that swallows", "that aborts"])
async def test_a_wire_to_somebody_who_does_not_read_leaves_no_connection_open(
    open_wire: Callable[[str], AbstractAsyncContextManager[Any]],
) -> None:
    """Of the tests themselves: a socket that is left open fails another test, that in which it is collected."""
    with socket.socket() as idle:
        async with cable.listening(flood) as server, asyncio.timeout(PATIENCE):
            before = sockets_at(server) | {os.readlink(f"/proc/self/fd/{idle.fileno()}")}
            async with open_wire(server) as wire:
                host, port = wire.address.split(":")
                idle.connect((host, int(port)))
                while len(used := sockets_at(server, wire.address) - before) < 4:
                    await asyncio.sleep(0.01)  # it listens, and both connections have two ends, but for `idle`
                await asyncio.sleep(0.1)  # enough to fill the buffers; with empty ones the test proves less
            while used & open_files():
                await asyncio.sleep(0.01)
