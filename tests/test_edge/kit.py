"""An organization per test, with CRMs in this process, and access to the inventory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from temporalio.api.activity.v1 import ActivityOptions
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import UpdateActivityOptionsRequest
from temporalio.client import Client
from temporalio.service import RPCError

from client.actions import Ticket
from domain.edge import messages
from domain.edge.faults import CrmFault
from domain.invariants import VerificationReport
from domain.model import HistoryLine, ObjectView, ReadQuery
from domain.statetable import NONE, LineEffect
from domain.wire import VERIFY_ACTIVITY, companion_id
from providers.edge.crm import ReferenceCrm
from providers.edge.gatewaycrm import GatewayControllerClient, GatewayCrm
from providers.edge.handover import CrmHandover
from providers.edge.jobs import InstanceJobs
from providers.edge.platform import CloudletPlatform
from providers.edge.token import ControllerKeys, CrmToken
from tests.patience import PATIENCE
from tests.user import User
from workers.crm import platform_file, token_of_cloudlet
from workers.settings import WorkerSettings

# What no test reaches: one that is to reach a limit says so.
QUICK: dict[str, Any] = dict.fromkeys(("connect", "create", "update", "delete", "answer"), PATIENCE)
QUICK["cap"] = 5 * PATIENCE


def fault(kind: str, verb: str = "*", path: str = "*", **more: Any) -> CrmFault:
    return CrmFault.model_validate({"kind": kind, "verb": verb, "path": path, **more})


async def wait_until_idle(jobs: InstanceJobs, path: str) -> None:
    """Waits until a CRM has no job on an instance."""
    while (job := jobs._jobs.get(path)) and not job.task.done():
        await asyncio.wait({job.task})


@asynccontextmanager
async def crm_polling(
    home: Path, cloudlet: str, token: CrmToken, controller: GatewayControllerClient
) -> AsyncIterator[GatewayCrm]:
    """A CRM in this process that reaches a gateway only, until the block ends."""
    platform = CloudletPlatform(platform_file(home, cloudlet))
    crm = GatewayCrm(None, cloudlet, "v1", platform, CrmHandover(platform, "v1", ["false"]), token, 0, controller)
    task = asyncio.create_task(crm.serve_until_stopped())
    try:
        yield crm
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        platform.close()


@dataclass
class Edge:
    """A user of the edge. `crms` are the CRMs that run in this test's process."""

    user: User
    home: Path
    client: Client
    crms: dict[str, tuple[ReferenceCrm, asyncio.Task[None], CloudletPlatform]] = field(default_factory=dict)

    def at(self, *names: str) -> str:
        """`at("berlin", "c1", "shop")` is the path of an app."""
        words = zip(("cloudlet", "cluster", "app"), names, strict=False)
        return ":".join([f"org:{self.user.ns}", *(f"{kind}:{name}" for kind, name in words)])

    async def up(self, name: str = "berlin", latency: float = 0, client: Client | None = None, **patience: Any) -> str:
        """A cloudlet with its CRM, Ready."""
        path = self.at(name)
        await self.start_crm(name, latency=latency, client=client)
        done = await self.user.do(path, "create", spec={"patience": {**QUICK, **patience}})
        assert done.status == "Ready", done
        return path

    async def start_crm(
        self,
        name: str = "berlin",
        version: str = "v1",
        latency: float = 0,
        client: Client | None = None,
        controllers: ControllerKeys | None = None,
    ) -> ReferenceCrm:
        path = self.at(name)
        platform = CloudletPlatform(platform_file(self.home, path))
        handover = CrmHandover(platform, version, ["false"])
        about = (path, version, platform, handover, self.token(name), latency)
        agent = ReferenceCrm(client or self.client, *about, controllers=controllers)
        self.crms[f"{name}-{version}"] = (agent, asyncio.create_task(agent.serve_until_stopped()), platform)
        return agent

    def token(self, name: str = "berlin") -> CrmToken:
        """Where a CRM of this test looks for its token."""
        return token_of_cloudlet(WorkerSettings(home=self.home), self.at(name))

    async def stop_crm(self, name: str = "berlin", version: str = "v1") -> None:
        """As if it was killed: no goodbye, and nothing of its work goes on."""
        _, task, platform = self.crms.pop(f"{name}-{version}")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        platform.close()

    async def close(self) -> None:
        for key in list(self.crms):
            await self.stop_crm(*key.rsplit("-", 1))

    def platform(self, name: str = "berlin", version: str = "v1") -> CloudletPlatform:
        return self.crms[f"{name}-{version}"][2]

    def set_faults(self, *faults: CrmFault, name: str = "berlin") -> None:
        self.platform(name).set_faults(faults)

    def things(self, name: str = "berlin") -> list[str]:
        """What the platform has, by the last name of each."""
        return [path.rsplit(":", 1)[-1] for path in self.platform(name).list_instances()]

    async def notify_id(self, name: str = "berlin") -> int:
        return int((await self.user.see(self.at(name))).info["crm"]["notify_id"])

    async def say(self, path: str, state: str, /, notify_id: int | None = None, **more: Any) -> None:
        """A CRM's answer, sent by hand to the action on the object."""
        current = notify_id if notify_id is not None else await self.notify_id(path.split(":")[3])
        message = {"state": state, "notify_id": current, **more}
        await self.client.get_workflow_handle(path).signal(messages.CRM_RESPONSE, message)

    async def connect(self, name: str, message: Any) -> None:
        """A CRM connects, by hand."""
        await self.client.start_workflow(
            messages.CLOUDLET_LINK,
            {"cloudlet": self.at(name)},
            id=companion_id(self.at(name), messages.LINK_ROLE),
            task_queue="actions",
            start_signal=messages.CRM_CONNECT,
            start_signal_args=[message],
        )

    async def begun(self, path: str, action: str, **more: Any) -> Ticket:
        """An action that the CRM leaves where it is: to be answered by hand."""
        return await self.user.admitted(path, action, **more)

    async def begun_when_ready(self, path: str, action: str, cloudlet: str, **more: Any) -> Ticket:
        """The same, as soon as the cloudlet takes changes: its CRM may just have died."""
        while refusal := (ticket := await self.user.ask(path, action, **more)).admission.refusal:
            assert "takes no changes now" in refusal.message
            await self.until(cloudlet, "Ready")
        return ticket

    async def end(self, ticket: Ticket) -> Any:
        async with asyncio.timeout(PATIENCE):
            return await self.user.asking.wait_for_outcome(ticket.path, ticket.run)

    async def status(self, path: str) -> str:
        found = await self.user.service.inventory.list_objects(path.split(":")[-2], path)
        return found[0].status if found else NONE

    async def until(self, path: str, *statuses: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while await self.status(path) not in statuses:
                await asyncio.sleep(0.05)

    async def until_missed(self, path: str) -> None:
        """Until it is noticed that the CRM, which is gone by now, is silent: nobody need wait as long as tests do."""
        async with asyncio.timeout(PATIENCE):
            while await self.status(path) != "Offline":
                await self._shorten_sessions(companion_id(path, messages.LINK_ROLE))
                await asyncio.sleep(0.1)

    async def _shorten_sessions(self, link: str) -> None:
        described = await self.client.get_workflow_handle(link).describe()
        for each in described.raw_description.pending_activities:
            if each.activity_type.name == messages.CRM_SESSION and each.activity_options.heartbeat_timeout.seconds > 1:
                order = UpdateActivityOptionsRequest(
                    namespace=self.client.namespace,
                    execution=WorkflowExecution(workflow_id=link),
                    id=each.activity_id,
                    activity_options=ActivityOptions(heartbeat_timeout=Duration(seconds=1)),
                    update_mask=FieldMask(paths=["heartbeat_timeout"]),
                )
                with suppress(RPCError):  # it is over
                    await self.client.workflow_service.update_activity_options(order)

    async def until_told(self, path: str, words: str) -> HistoryLine:
        """Until the history has a line with these words."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for line in reversed(await self.user.history(path)):
                    if words in line.message:
                        return line
                await asyncio.sleep(0.05)

    async def listed(self, kind: str) -> list[ObjectView]:
        return await self.user.service.inventory.list_objects(kind, f"org:{self.user.ns}")

    async def see(self, path: str) -> ObjectView:
        return await self.user.see(path)

    async def walk(self, path: str) -> list[tuple[str, str, str]]:
        """An object's way: actor, from, to of every line that changed something."""
        lines = await self.user.history(path)
        return [(line.actor, line.source, line.to) for line in lines if line.source != line.to and not _ignored(line)]

    async def ignored(self, path: str) -> list[str]:
        return [line.message for line in await self.user.history(path) if _ignored(line)]

    async def runs(self, path: str) -> int:
        """How many runs Temporal has of this workflow ID."""
        return len([workflow async for workflow in self.client.list_workflows(f"WorkflowId = '{path}'")])

    async def broken_promises(self) -> list[str]:
        """What `starter verify` finds."""
        query = ReadQuery(path=f"org:{self.user.ns}")
        found = await self.user.asking.run_query(VERIFY_ACTIVITY, query, VerificationReport, seconds=PATIENCE)
        return [f"{finding.invariant} {finding.path}: {finding.what}" for finding in found.findings]

    async def at_rest(self) -> None:
        """I1 to I5 and I11: nothing is under way, nothing is locked, and every history is a way through its table."""
        assert await self.user.service.inventory.list_locks(f"org:{self.user.ns}") == []
        found = await self.broken_promises()
        assert found == [], found
        for kind in ("cloudlet", "cluster", "app"):
            for view in await self.user.service.inventory.list_objects(kind, f"org:{self.user.ns}"):
                assert (view.target_action, view.target_status) == (NONE, NONE), view.path


def _ignored(line: HistoryLine) -> bool:
    return line.effect is LineEffect.IGNORED


@asynccontextmanager
async def edge_of(user: User, home: Path, client: Client) -> AsyncIterator[Edge]:
    found = Edge(user, home, client)
    try:
        yield found
    finally:
        await found.close()


def words(walk: Sequence[tuple[str, str, str]]) -> list[str]:
    """Only the statuses."""
    return [to for _, _, to in walk]
