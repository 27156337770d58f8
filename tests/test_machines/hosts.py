"""A site whose nodes are served by workers of their own, with real QEMU processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from client.actions import Ticket
from domain.model import Outcome, Request
from providers.machines.qemu import QemuOptions
from providers.machines.qemu.process import QemuProcess
from tests.patience import PATIENCE
from tests.test_machines.test_hypervisor import DB
from tests.test_platform.site import Site, Worker

SPACE = "account:a:cloudspace:dev"


@dataclass
class Hosts:
    """A site whose nodes n1 and n2 are served by two workers; `host` is in the environment of what they start."""

    site: Site
    folder: Path
    options: QemuOptions

    async def serve(self, node: str, *words: str) -> Worker:
        started = await self.site.start("--node", node, *words, HOST_OF_TEST=node)
        await started.until_said('"serving"')
        return started

    async def ask(self, path: str, action: str, **spec: Any) -> Ticket:
        ticket = await self.site.asking.request_action(
            Request(path=path, action=action, spec=spec or None, requested_by="tester")
        )
        assert ticket.admission.refusal is None, ticket.admission.refusal
        return ticket

    async def outcome(self, ticket: Ticket) -> Outcome:
        return await self.site.asking.wait_for_outcome(ticket.path, ticket.run)

    async def to(self, path: str, action: str, **spec: Any) -> str:
        outcome = await self.outcome(await self.ask(path, action, **spec))
        assert outcome.result == "succeeded", outcome
        return outcome.status

    async def make_network(self) -> None:
        for node in ("n1", "n2"):
            await self.to(f"node:{node}", "create", memory=4)
        for path in ("image:u", "account:a", SPACE):
            await self.to(path, "create")

    def processes(self) -> dict[str, str]:
        """The living processes of the machine: node -> the host whose worker has started it."""
        found = {}
        for node in self.options.nodes:
            if pid := self.process_on(node).find_pid():
                words = Path(f"/proc/{pid}/environ").read_text().split("\0")
                found[node] = next(word for word in words if word.startswith("HOST_OF_TEST")).partition("=")[2]
        return found

    def process_on(self, node: str) -> QemuProcess:
        return QemuProcess(self.options, self.options.folder_of_object(DB), node)


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not is_so():
            await asyncio.sleep(0.02)


def write_connections(hosts: Hosts, address: str = "", **more: str) -> None:
    told = hosts.options.model_copy(update={"nodes": {"n1": address, "n2": address}, **more}).model_dump(mode="json")
    file = hosts.folder / "connections.yaml"
    file.write_text(yaml.safe_dump({"hypervisor": told}))
    hosts.site.environment["RATCHET_CONNECTIONS"] = str(file)
