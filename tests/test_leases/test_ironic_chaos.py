"""Ironic when things go wrong: killed, slow, without an answer, called twice, full. Nodes equal the records."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import httpx
import pytest
import yaml

from domain.invariants import VerificationReport
from domain.model import ReadQuery
from domain.wire import VERIFY_ACTIVITY
from providers.leases.ironic import IronicHosts, IronicOptions
from tests.cable import listening, read_request
from tests.ironic import Ironic, ironic_running
from tests.patience import PATIENCE
from tests.stack import opened, until_polled
from tests.test_leases.tenant import Tenant

ORDERS = ("PUT", "PATCH")
FULL = b'{"error_message": "Requested action cannot be performed due to lack of free conductor workers."}'


@dataclass
class FaultyWire:
    """What lies between us and Ironic. A fault strikes every order but the retry that follows it."""

    ironic: Ironic
    fault: str = ""
    struck: Counter[str] = field(default_factory=Counter)
    _seen: Counter[bytes] = field(default_factory=Counter)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(httpx.HTTPError):  # Ironic is dead
            while answer := await self._answer(*await read_request(reader)):
                writer.write(answer)
                await writer.drain()

    async def _answer(self, head: bytes, body: bytes) -> bytes:
        method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
        fault = self._fault_of(method, head.split(b"\r\n", 1)[0] + body)
        if fault == "slow":
            await asyncio.sleep(1)
        if fault == "full":
            return _answer_bytes(503, FULL)
        if fault == "lost before":
            return b""
        answer = await self.ironic.call(method, path, content=body, headers=_headers(head))
        if fault == "twice":
            answer = await self.ironic.call(method, path, content=body, headers=_headers(head))
        return b"" if fault == "lost after" else _answer_bytes(answer.status_code, answer.content)

    def _fault_of(self, method: str, call: bytes) -> str:
        if method not in ORDERS or not self.fault:
            return ""
        self._seen[call] += 1
        if self.fault != "twice" and self._seen[call] % 2 == 0:
            return ""
        self.struck[self.fault] += 1
        return self.fault


def _headers(head: bytes) -> dict[str, str]:
    lines = head.decode().split("\r\n")[1:]
    told = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name}
    return {name: value for name, value in told.items() if name in ("content-length", "content-type")}


def _answer_bytes(status: int, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} {httpx.codes.get_reason_phrase(status)}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Content-Type: application/json\r\n\r\n".encode() + (body if status != 204 else b"")


@dataclass
class MetalSite:
    """A tenant of two Ironic nodes, and what lies between."""

    ironic: Ironic
    wire: FaultyWire
    tenant: Tenant

    async def compare(self) -> None:
        """Nodes that are held are exactly those that reservations have, on record."""
        hosts = IronicHosts(IronicOptions.model_validate({"provider": "ironic", "url": self.ironic.url}))
        there = {tenant.host: tenant.reservation for tenant in await hosts.list_existing_objects("", ("", ""))}
        recorded: dict[str, str] = {}
        for view in await self.tenant.service.inventory.list_objects("lease", f"project:{self.tenant.name}"):
            if view.status == "ACTIVE":
                seen = await self.tenant.see(view.path.rpartition(":")[2])
                for each in seen.reservations:
                    recorded |= {self.tenant.host(name): f"{view.path}:reservation:{each.id}" for name in each.hosts}
        assert there == recorded
        query = ReadQuery(path=f"project:{self.tenant.name}")
        report = await self.tenant.asking.run_query(VERIFY_ACTIVITY, query, VerificationReport, seconds=PATIENCE)
        assert report.findings == []


@pytest.fixture(scope="module")
async def metal(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MetalSite]:
    folder = tmp_path_factory.mktemp("metal")
    async with ironic_running(folder / "ironic", deploy=1) as ironic, faulty_wire(ironic) as (wire, url):
        await ironic.enroll("h1", "h2")
        file = folder / "connections.yaml"
        file.write_text(yaml.safe_dump({"hosts": {"provider": "ironic", "url": url}}))
        patience = str(PATIENCE)
        async with opened(folder / "home", connections=str(file), call_timeout="60", patience=patience) as running:
            tenant = Tenant(await until_polled(running.client), running.stack, "metal")
            await tenant.add_hosts("h1", "h2")
            yield MetalSite(ironic, wire, tenant)
            await tenant.stop_clock()


@asynccontextmanager
async def faulty_wire(ironic: Ironic) -> AsyncIterator[tuple[FaultyWire, str]]:
    wire = FaultyWire(ironic)
    async with listening(wire.serve) as address:
        yield wire, f"http://{address}"


@pytest.mark.parametrize("fault", ["slow", "full", "lost before", "lost after", "twice"])
async def test_a_lease_lives_and_ends_whatever_happens_to_its_orders(metal: MetalSite, fault: str) -> None:
    name = fault.replace(" ", "-")
    metal.wire.fault = fault
    try:
        async with asyncio.timeout(2 * PATIENCE):
            await metal.tenant.create(name, start="now", end="+2h", hosts=2)
            await metal.tenant.until_status("ACTIVE", name)
            assert [await metal.ironic.state(node) for node in ("h1", "h2")] == ["active", "active"]
            await metal.compare()
            assert (await metal.tenant.do(metal.tenant.lease(name), "delete")).result == "succeeded"
            for node in ("h1", "h2"):
                await metal.ironic.until(node, "available")
            await metal.compare()
    finally:
        metal.wire.fault = ""
    assert metal.wire.struck[fault] >= 2


async def test_ironic_killed_while_it_takes_nodes_back_ends_with_nobody_on_them(metal: MetalSite) -> None:
    async with asyncio.timeout(2 * PATIENCE):
        await metal.tenant.create("killed", start="now", end="+2h", hosts=2)
        await metal.tenant.until_status("ACTIVE", "killed")
        ticket = await metal.tenant.ask(metal.tenant.lease("killed"), "delete")
        while {await metal.ironic.state(node) for node in ("h1", "h2")} == {"active"}:
            await asyncio.sleep(0.01)
        await metal.ironic.kill()
        await metal.ironic.start()
        outcome = await metal.tenant.asking.wait_for_outcome(ticket.path, ticket.run)
        assert outcome.result == "succeeded"
        for node in ("h1", "h2"):
            await metal.ironic.until(node, "available", "clean failed")  # the latter is what Ironic makes of it
        await metal.compare()
