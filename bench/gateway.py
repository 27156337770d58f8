"""The gateway beside the SDK: reads and admissions over HTTP, open event streams, requests at once.

Run: python3 run.py bench gateway
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from bench.stack import BenchStack, mci, measure_in_turns, memory, print_comparison, print_table_head, rig, run
from client.actions import ActionClient
from client.gateway import READS_PATH, GatewayAddress
from client.reading import GatewayReader
from domain.model import ObjectView, ReadQuery, Request
from domain.wire import READ_OBJECT
from gateway.context import Gateway
from gateway.reads import GatewayClient

READ_LIMIT, ADMISSION_LIMIT = 1.3, 1.2
STREAMS, STREAMS_MB = 1_000, 200
AT_ONCE = 200
READS, ADMISSIONS = 400, 40  # turns of each
PATH = "ns:bench:mci:one"


@dataclass
class HttpConnection:
    """One kept-alive HTTP connection: no library between the gateway and the clock."""

    port: int
    _streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = field(default=None)

    async def send_http_request(self, method: str, route: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        reader, writer = self._streams or await asyncio.open_connection("127.0.0.1", self.port)
        self._streams = reader, writer
        writer.write(_build_http_message(self.port, method, route, body, headers))
        answer = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", answer)
        return int(answer.split(b" ", 2)[1]), await reader.readexactly(int(length[1]) if length else 0)

    async def aclose(self) -> None:
        if self._streams:
            self._streams[1].close()


def _build_http_message(
    port: int, method: str, route: str, body: Any = None, headers: dict[str, str] | None = None
) -> bytes:
    content = json.dumps(body).encode() if body is not None else b""
    lines = [f"{method} {route} HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Content-Length: {len(content)}"]
    lines += ["Content-Type: application/json"] if content else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


@asynccontextmanager
async def run_gateway_process(rig: BenchStack) -> AsyncIterator[tuple[int, int]]:
    """A gateway beside the rig's store, in a process of its own; yields its process ID and its port."""
    environment = os.environ | {
        "RATCHET_HOME": str(rig.service.settings.home),
        "TEMPORAL_ADDRESS": rig.client.service_client.config.target_host,
    }
    command = (sys.executable, "-m", "starter", "gateway", "--port", "0")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=pipe, stderr=asyncio.subprocess.STDOUT
    )
    assert process.stdout
    try:
        while not (found := re.search(rb"http://127\.0\.0\.1:(\d+)", line := await process.stdout.readline())):
            assert line, "the gateway ended"
        yield process.pid, int(found[1])
    finally:
        process.terminate()
        await process.wait()


async def measure_reads(rig: BenchStack, port: int) -> None:
    through_gateway = ActionClient(rig.client)
    through_gateway.gateway = GatewayReader(
        GatewayAddress(f"http://127.0.0.1:{port}", rig.client.service_client.config.target_host, "default", "")
    )
    beside_store = Gateway(GatewayClient(rig.client, rig.service.store_reads())).ratchet
    connection, of_sdk = HttpConnection(port), HttpConnection(port)
    query = json.loads(ReadQuery(path=PATH).model_dump_json())

    async def kept_alive(_n: int) -> None:
        """The SDK's read, without the new connection that it opens for each."""
        status, body = await of_sdk.send_http_request("POST", f"{READS_PATH}/{READ_OBJECT}", query)
        assert status == 200, body
        ObjectView.model_validate_json(body)

    async def over_http(_n: int) -> None:
        status, body = await connection.send_http_request("GET", f"/v1/objects/{PATH}")
        assert status == 200, body
        ObjectView.model_validate_json(body)

    works: dict[str, Callable[[int], Awaitable[Any]]] = {
        "http": over_http,
        "worker": lambda _n: rig.asking.read_object(PATH),
        "gateway": lambda _n: through_gateway.read_object(PATH),
        "kept alive": kept_alive,
        "store": lambda _n: beside_store.read_object(PATH),
    }
    medians = await measure_in_turns(READS + 5, *works.values(), warm_up=5)
    found = dict(zip(works, medians, strict=True))
    await asyncio.gather(connection.aclose(), of_sdk.aclose())
    print_table_head("Reading one object over HTTP, on a kept-alive connection", "HTTP", "SDK")
    for which, what, limit in (
        ("worker", "the SDK asks a worker", f"<= {READ_LIMIT:g}"),
        ("gateway", "the SDK asks the same gateway", f"<= {READ_LIMIT:g}"),
        ("kept alive", "the same, on a kept-alive connection", f"<= {READ_LIMIT:g}"),
        ("store", "the SDK reads the store itself, without any process between", "told"),
    ):
        print_comparison(what, found["http"] * 1e3, found[which] * 1e3, "{:.2f} ms", limit)


async def measure_admissions(rig: BenchStack, port: int) -> None:
    """From the request to admitted: `Prefer: respond-async`, beside `request_action`."""
    connection = HttpConnection(port)
    numbers = count()
    times: dict[str, list[float]] = {"http": [], "sdk": []}
    for _ in range(ADMISSIONS):
        for which in times:
            action = ("suspend", "resume")[next(numbers) % 2]
            began = time.perf_counter()
            if which == "http":
                route = f"/v1/objects/{PATH}/actions/{action}"
                status, body = await connection.send_http_request("POST", route, {}, Prefer="respond-async")
                assert status in (200, 202), body
            else:
                ticket = await rig.asking.request_action(Request(path=PATH, action=action, requested_by="bench"))
                assert not ticket.admission.refusal, ticket
            times[which].append(time.perf_counter() - began)
            await rig.client.get_workflow_handle(PATH).result()
    await connection.aclose()
    http, sdk = (statistics.median(times[which][2:]) for which in ("http", "sdk"))
    print_table_head("From the request to admitted", "HTTP", "SDK")
    what = "a path that was acted on before"
    print_comparison(what, http * 1e3, sdk * 1e3, "{:.2f} ms", f"<= {ADMISSION_LIMIT:g}")


async def measure_streams(rig: BenchStack, pid: int, port: int) -> None:
    """Streams that are all open; then something happens, and each of them tells it."""
    before = memory(pid)
    async with AsyncExitStack() as whole:
        readers = []
        for _ in range(STREAMS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            whole.callback(writer.close)
            writer.write(_build_http_message(port, "GET", "/v1/events"))
            readers.append(reader)
        await asyncio.gather(*(reader.readuntil(b"retry: ") for reader in readers))
        began = time.perf_counter()
        await rig.do(PATH, "reboot")
        await asyncio.gather(*(reader.readuntil(b"event: change") for reader in readers))
        seconds, most = time.perf_counter() - began, memory(pid)
    print_table_head(
        f"{STREAMS:,} open event streams on one process; an action is told to all after {seconds:.1f} s", "all", "none"
    )
    print_comparison("memory of the process", most, before, "{:.0f} MB", f"< {STREAMS_MB} MB")


async def measure_concurrent_creations(port: int) -> None:
    """Creations that wait for their outcome, all sent before the first is answered."""
    spec = {"spec": mci(1, 1)}

    async def create(n: int) -> int:
        route = f"/v1/objects/ns:bench:mci:m{n}/actions/create"
        async with aclosing(HttpConnection(port)) as connection:
            return (await connection.send_http_request("POST", route, spec, Prefer="wait=60"))[0]

    began = time.perf_counter()
    answers = await asyncio.gather(*(create(n) for n in range(AT_ONCE)))
    seconds = time.perf_counter() - began
    good = sum(status in (200, 202) for status in answers)
    print_table_head(f"{AT_ONCE} creations at once, each answered with its outcome", "answered", "sent")
    print_comparison(f"all after {seconds:.1f} s", good, AT_ONCE, "{}", "= 1")


async def main() -> None:
    async with rig(simulated=False) as bench, run_gateway_process(bench) as (pid, port):
        await bench.do(PATH, "create", mci(1, 2))
        await measure_reads(bench, port)
        await measure_admissions(bench, port)
        await measure_streams(bench, pid, port)
        await measure_concurrent_creations(port)


if __name__ == "__main__":
    run(main())
