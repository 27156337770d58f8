"""CRMs that run in the test's own process, where no fault of the worker hits them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError

from domain.edge import messages
from domain.edge.faults import CrmFault
from domain.wire import companion_id
from providers.edge.controller import ControllerClient
from providers.edge.crm import ReferenceCrm
from providers.edge.handover import CrmHandover
from providers.edge.platform import CloudletPlatform
from providers.edge.token import CrmToken
from tests.cable import listening, read_request
from tests.patience import PATIENCE
from workers.crm import platform_file, token_of_cloudlet
from workers.settings import WorkerSettings

PATIENT = {"cleanup": 60.0, "answer": 60.0}
SHORT = dict.fromkeys(("create", "update", "delete", "answer", "cleanup"), 2.0)


@dataclass
class Crm:
    """A running CRM."""

    cloudlet: str
    agent: ReferenceCrm
    platform: CloudletPlatform
    serving: asyncio.Task[None]

    async def end(self) -> None:
        self.agent.request_stop()
        await asyncio.wait({self.serving}, timeout=PATIENCE)
        self.serving.cancel()
        await asyncio.gather(self.serving, return_exceptions=True)
        self.platform.close()


class Webhook:
    """A CRM that is only an address: it says yes to every post until it is closed."""

    def __init__(self) -> None:
        self._listening = AsyncExitStack()
        self.url = ""

    @classmethod
    async def open(cls) -> Webhook:
        made = cls()
        made.url = f"http://{await made._listening.enter_async_context(listening(cls._answer))}/"
        return made

    @staticmethod
    async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        await writer.drain()

    async def close(self) -> None:
        await self._listening.aclose()


@dataclass
class Crms:
    """The CRMs of a world, by cloudlet and version."""

    home: Path
    running: dict[tuple[str, str], Crm] = field(default_factory=dict)
    webhooks: dict[str, Webhook] = field(default_factory=dict)  # by cloudlet
    patience: dict[str, float] = field(default_factory=lambda: dict(PATIENT))
    chance: random.Random | None = None  # with one, answers go astray
    mishaps: int = 0

    def start(self, client: Client, cloudlet: str, version: str = "v1", after: str = "") -> Crm:
        platform = CloudletPlatform(platform_file(self.home, cloudlet))
        handover = InThisProcess(self, client, cloudlet, platform, version, after)
        token = token_of_cloudlet(WorkerSettings(home=self.home), cloudlet)
        voice = Garbled(self, client, cloudlet, token)
        agent = ReferenceCrm(client, cloudlet, version, platform, handover, token, 0.02, voice)
        made = Crm(cloudlet, agent, platform, asyncio.create_task(agent.serve_until_stopped()))
        self.running[cloudlet, version] = made
        return made

    async def end(self, cloudlet: str, version: str) -> None:
        if found := self.running.pop((cloudlet, version), None):
            await found.end()

    async def leave(self, client: Client, prefix: str) -> None:
        """Disconnect all CRMs at or below a path, and end their links, so that no later fault meets them."""
        mine = [key for key in self.running if key[0].startswith(prefix)]
        for key in mine:
            await self.end(*key)
        for cloudlet in {cloudlet for cloudlet, _ in mine}:
            link = client.get_workflow_handle(companion_id(cloudlet, messages.LINK_ROLE))
            with suppress(RPCError):  # there never was one
                await asyncio.wait_for(link.result(), PATIENCE)

    def set_faults(self, cloudlet: str, faults: Iterable[CrmFault]) -> None:
        self._on(cloudlet).set_faults(faults)

    def ledger(self, path: str) -> list[str]:
        """What the CRM really did to an instance, in order."""
        platform = CloudletPlatform(platform_file(self.home, ":".join(path.split(":")[:4])))
        try:
            return platform.list_applied_verbs(path)
        finally:
            platform.close()

    def _on(self, cloudlet: str) -> CloudletPlatform:
        return next(crm.platform for (name, _), crm in self.running.items() if name == cloudlet)


class Garbled(ControllerClient):
    """Loses, delays, doubles and reorders answers while that is switched on."""

    def __init__(self, crms: Crms, client: Client, cloudlet: str, token: CrmToken) -> None:
        super().__init__(client, cloudlet, token)
        self._crms, self._about, self._late = crms, cloudlet, set[asyncio.Task[None]]()

    async def send_answer(self, workflow_id: str, message: dict[str, Any]) -> None:
        chance = self._crms.chance
        mishap = chance.choice(("none", "lost", "twice", "late", "late")) if chance else "none"
        if chance is None or mishap == "none" or workflow_id == self._about:
            await super().send_answer(workflow_id, message)
            return
        self._crms.mishaps += 1
        for _ in range(("lost", "late", "twice").index(mishap)):
            task = asyncio.create_task(self._after(chance.uniform(0, 1), workflow_id, message))
            self._late.add(task)  # others overtake it
            task.add_done_callback(self._late.discard)

    async def _after(self, seconds: float, workflow_id: str, message: dict[str, Any]) -> None:
        await asyncio.sleep(seconds)
        await super().send_answer(workflow_id, message)


class InThisProcess(CrmHandover):
    """Upgrades to a CRM in this process."""

    def __init__(
        self, crms: Crms, client: Client, cloudlet: str, platform: CloudletPlatform, version: str, after: str = ""
    ) -> None:
        super().__init__(platform, version, [], after)
        self._crms, self._client, self._cloudlet = crms, client, cloudlet

    async def start_successor(self, version: str) -> str | None:
        fault = self._platform.take_matching_fault("start", version, self._version)
        if fault:
            return fault.message
        if (self._cloudlet, version) in self._crms.running:
            return None
        started = self._crms.start(self._client, self._cloudlet, version, after=self._version)
        await asyncio.wait({started.serving})
        return f"{version} ended before it took over"

    async def end_failed_successor(self, version: str) -> None:
        await self._crms.end(self._cloudlet, version)

    async def end_predecessor(self) -> None:
        if self._predecessor and (before := self._crms.running.pop((self._cloudlet, self._predecessor), None)):
            self._predecessor = ""
            before.agent.request_stop()
            await asyncio.wait({before.serving}, timeout=PATIENCE)
            before.platform.close()
