"""Every kind of request that waits, and a gateway and a worker that can be killed meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from activities.runs import describe_run
from client.runs import find_run
from domain.wire import CANCEL_ACTIVITY
from providers.edge.gatewaycrm import GatewayControllerClient
from providers.edge.token import CrmToken
from providers.sockets import find_free_port
from tests.patience import PATIENCE
from tests.test_edge.kit import QUICK, crm_polling
from tests.test_platform.forkserver import Child
from tests.test_platform.site import Site

CLOUDLET = "org:acme:cloudlet:berlin"
LATER = {"start_date": "2199-01-01 00:00", "end_date": "2199-01-02 00:00"}
PHYSICAL = [{"resource_type": "physical:host", "min": 1, "max": 1}]
GROUPS = [{"name": "g", "subGroupSize": 1, "csp": "aws", "region": "eu-central-1"}]
DYNAMIC = [{"name": "g", "subGroupSize": "1", "specId": "aws+eu-central-1+small", "imageId": "ubuntu-24.04"}]

Ask = Callable[[httpx.AsyncClient], Coroutine[Any, Any, Any]]

AGAIN = {**QUICK, "create": 60}  # an order that went with the gateway is asked after then


@dataclass
class Gate:
    """A gateway in a process of its own, always on one port, so that its clients find the next one."""

    site: Site
    port: int = field(default_factory=find_free_port)
    started: int = 0
    process: Child | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self.started += 1
        log = self.site.home / f"gateway-{self.started}.log"
        log.touch()
        # A busy machine may take more than the usual minute to start everything again.
        known = {"RATCHET_GATEWAY_SAME_REQUEST": str(10 * PATIENCE)}
        variables = {**os.environ, **self.site.environment, **known}
        words, program = ["gateway", "--port", str(self.port)], "tests.test_dialects.patient"
        self.process = await self.site.forkserver.start(words, variables, log, program)
        async with asyncio.timeout(PATIENCE):
            while not re.search(rf"{re.escape(self.url)}/docs", log.read_text()):
                assert await self.process.poll() is None, log.read_text()
                await asyncio.sleep(0.05)

    async def kill(self) -> None:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def gate_open(site: Site) -> AsyncIterator[Gate]:
    gate = Gate(site)
    await gate.start()
    try:
        yield gate
    finally:
        await gate.kill()


@dataclass(frozen=True)
class WaitingRequest:
    """A kind of request. Its answer is the same however often it is asked, and it changes one object once."""

    name: str
    ask: Ask
    path: str  # the object that it changes
    arrived: Callable[[Site], Awaitable[object]]  # something that differs once the request is on its way


def call(method: str, route: str, read: Callable[[httpx.Response], Any], body: Any = None, **headers: str) -> Ask:
    """One request; while nobody can answer (503), it is asked again, as that answer says."""

    async def ask(http: httpx.AsyncClient) -> Any:
        while (answer := await http.request(method, route, json=body, headers=headers)).status_code == 503:
            assert float(answer.headers["retry-after"]) > 0
        return read(answer)

    return ask


def field_of(*names: str | int) -> Callable[[httpx.Response], Any]:
    """Reads one field of an answer that tells of success."""

    def read(answer: httpx.Response) -> Any:
        assert answer.is_success, (answer.status_code, answer.text)
        found: Any = answer.json() if answer.content else None
        for name in names:
            found = found[name]
        return found

    return read


def accepted_or(said: str) -> Callable[[httpx.Response], str]:
    """An order that nobody can give twice: accepted, or refused because it was carried out."""

    def read(answer: httpx.Response) -> str:
        assert answer.status_code == 202 or (answer.status_code == 409 and said in answer.text), answer.text
        return said

    return read


def newest_run_of(path: str) -> Callable[[Site], Awaitable[object]]:
    async def read(site: Site) -> object:
        newest = await find_run(site.client, path)
        return newest and newest.run_id

    return read


async def count_cancels(site: Site) -> object:
    return (await site.client.count_activities(f"ActivityType = '{CANCEL_ACTIVITY}'")).count


def pending_task_of(path: str) -> Callable[[Site], Awaitable[object]]:
    """An update leaves no trace in the history before a worker takes it; its task is listed."""

    async def read(site: Site) -> object:
        found = await describe_run(site.client, path, "")
        return found is not None and found.HasField("pending_workflow_task")

    return read


async def post(http: httpx.AsyncClient, route: str, body: Any = None, **headers: str) -> Any:
    answer = await http.post(route, json=body, headers=headers)
    assert answer.is_success, (route, answer.status_code, answer.text)
    return answer.json()


async def prepare_requests(site: Site, http: httpx.AsyncClient, key: str) -> list[WaitingRequest]:
    """Makes what the requests are about; returns one request of every kind."""
    return [
        *await _native(http),
        *await _blazar(http),
        *await _openvcloud(http),
        *await _tumblebug(http),
        *await _crm(http, key),
    ]


async def _native(http: httpx.AsyncClient) -> list[WaitingRequest]:
    def mci(name: str) -> str:
        return f"ns:kills:mci:{name}"

    held: dict[str, str] = {}
    await post(http, f"/v1/objects/{mci('old')}/actions/create", {"spec": {"subGroups": GROUPS}})
    for name in ("cancelled", "continued"):
        spec = {"spec": {"subGroups": GROUPS, "option": "hold"}}
        route = f"/v1/objects/{mci(name)}/actions/create"
        answer = await http.post(route, json=spec, headers={"Prefer": "respond-async"})
        held[name] = answer.headers["location"]
        while (await http.get(f"/v1/objects/{mci(name)}")).json()["status"] != "Prepared":
            await asyncio.sleep(0.05)
    outcome = field_of("status")

    def act(name: str, action: str, **body: Any) -> WaitingRequest:
        headers = {"Idempotency-Key": f"{action}-once"}
        ask = call("POST", f"/v1/objects/{mci(name)}/actions/{action}", outcome, body, **headers)
        return WaitingRequest(f"native {action}", ask, mci(name), newest_run_of(mci(name)))

    cancel = call("DELETE", held["cancelled"], accepted_or("cancelled"))
    go_on = call("POST", f"/v1/objects/{mci('continued')}/signals/continue", accepted_or("continue"), {})
    return [
        act("new", "create", spec={"subGroups": GROUPS}),
        act("old", "suspend"),
        WaitingRequest("native cancel", cancel, mci("cancelled"), count_cancels),
        WaitingRequest("native signal", go_on, mci("continued"), pending_task_of(mci("continued"))),
    ]


async def _blazar(http: httpx.AsyncClient) -> list[WaitingRequest]:
    base, found = "/reservation/v1", {}
    for number in range(3):
        await post(http, f"{base}/os-hosts", {"name": f"h{number}"})
    for name in ("changed", "deleted"):
        lease = (await post(http, f"{base}/leases", {"name": name, **LATER, "reservations": PHYSICAL}))["lease"]
        found[name] = lease["id"]

    def at(name: str) -> str:
        return f"project:default:lease:{found[name]}"

    async def count_leases(site: Site) -> object:
        return len([run async for run in site.client.list_workflows("WorkflowType = 'CreateLease'")])

    body = {"name": "new", **LATER, "reservations": PHYSICAL}
    longer = {"end_date": "2199-01-03 00:00"}
    changed, deleted = (f"{base}/leases/{found[name]}" for name in ("changed", "deleted"))
    return [
        WaitingRequest(
            "Blazar create", call("POST", f"{base}/leases", field_of("lease", "id"), body), "", count_leases
        ),
        WaitingRequest(
            "Blazar update",
            call("PUT", changed, field_of("lease", "end_date"), longer),
            at("changed"),
            newest_run_of(at("changed")),
        ),
        WaitingRequest(
            "Blazar delete", call("DELETE", deleted, field_of()), at("deleted"), newest_run_of(at("deleted"))
        ),
    ]


async def _openvcloud(http: httpx.AsyncClient) -> list[WaitingRequest]:
    base = "/restmachine/cloudapi"
    await post(http, "/v1/objects/node:n1/actions/create", {"spec": {"memory": 64}})
    await post(http, "/v1/objects/image:ubuntu/actions/create")
    (image,) = await post(http, f"{base}/images/list")
    asked: dict[str, dict[str, Any]] = {}  # what a machine of an account needs
    for name in ("acme", "umbrella"):  # of one tenant, four requests at once wait for a worker
        await post(http, f"/v1/objects/account:{name}/actions/create")
        (account,) = [each["id"] for each in await post(http, f"{base}/accounts/list") if each["name"] == name]
        space = await post(http, f"{base}/cloudspaces/create", {"accountId": account, "name": "dev"})
        asked[name] = {"cloudspaceId": space, "imageId": image["id"], "memory": 1024, "vcpus": 1}
    disk = await post(http, f"{base}/disks/create", {"accountId": account, "name": "d1", "size": 5})

    async def make(account: str, machine: str) -> int:
        return int(await post(http, f"{base}/machines/create", {"name": machine, **asked[account]}))

    def act(verb: str, account: str, machine: str, **body: Any) -> WaitingRequest:
        path = f"account:{account}:cloudspace:dev:machine:{machine}"
        ask = call("POST", f"{base}/machines/{verb}", field_of(), body)
        return WaitingRequest(f"OpenvCloud {verb}", ask, path, newest_run_of(path))

    attached = await make("umbrella", "attached")
    await post(http, f"{base}/machines/stop", {"machineId": attached})
    return [
        act("create", "acme", "new", name="new", datadisks=[1, 2], **asked["acme"]),
        act("stop", "acme", "stopped", machineId=await make("acme", "stopped")),
        act("reboot", "acme", "rebooted", machineId=await make("acme", "rebooted")),
        act("delete", "umbrella", "destroyed", machineId=await make("umbrella", "destroyed"), permanently=True),
        act("attachDisk", "umbrella", "attached", machineId=attached, diskId=disk),
    ]


async def _tumblebug(http: httpx.AsyncClient) -> list[WaitingRequest]:
    requests: list[WaitingRequest] = []
    creation = {"name": "create", "subGroups": DYNAMIC}
    for ns, verb, method, route, read, body in [
        ("bee", "create", "POST", "mciDynamic", field_of("status"), creation),
        ("bee", "suspend", "GET", "control/mci/suspend?action=suspend", field_of("message"), None),
        ("bee", "reboot", "GET", "control/mci/reboot?action=reboot", field_of("message"), None),
        ("ant", "scale-out", "POST", "mci/scale-out/subgroup/g", field_of("newVmList"), {"numVMsToAdd": "1"}),
        ("ant", "delete", "DELETE", "mci/delete?option=terminate", field_of("output", -1), None),
    ]:
        base, path = f"/tumblebug/ns/{ns}", f"ns:{ns}:mci:{verb}"
        if verb != "create":
            await post(http, f"{base}/mciDynamic", {"name": verb, "subGroups": DYNAMIC})
        ask = call(method, f"{base}/{route}", read, body)
        requests.append(WaitingRequest(f"Tumblebug {verb}", ask, path, newest_run_of(path)))
    return requests


async def _crm(http: httpx.AsyncClient, key: str) -> list[WaitingRequest]:
    """A cluster whose CRM polls for its order, and answers, over HTTP."""
    await post(http, f"/v1/objects/{CLOUDLET}/actions/create", {"spec": {"key": key, "patience": AGAIN}})
    path = f"{CLOUDLET}:cluster:c1"
    headers = {"Idempotency-Key": "once"}
    ask = call("POST", f"/v1/objects/{path}/actions/create", field_of("status"), {"spec": {"nodes": 1}}, **headers)
    return [WaitingRequest("CRM poll and answer", ask, path, newest_run_of(path))]


class RememberingController(GatewayControllerClient):
    """Remembers what it posted, so that a test can post it again."""

    posted: list[dict[str, Any]]

    async def _post(self, route: str, body: Any) -> dict[str, Any]:
        answer = await super()._post(route, body)
        if route.startswith("messages/"):
            self.posted.append({"route": f"/v1/crm/{CLOUDLET}/{route}", "json": body})
        return answer


@asynccontextmanager
async def crm_remembering(site: Site, url: str, token: CrmToken) -> AsyncIterator[RememberingController]:
    controller = RememberingController(url, CLOUDLET, token)
    controller.posted = []
    async with crm_polling(site.home, CLOUDLET, token, controller):
        yield controller


@dataclass
class EventReader:
    """Follows the event stream from its beginning, and connects again after each break."""

    url: str
    lines: list[dict[str, Any]] = field(default_factory=list)
    connections: int = 0
    _last: str = "0"

    async def follow(self) -> None:
        while True:
            try:
                async with httpx.AsyncClient(timeout=PATIENCE) as http:
                    await self._read(http)
            except httpx.HTTPError:
                await asyncio.sleep(0.1)

    async def _read(self, http: httpx.AsyncClient) -> None:
        async with http.stream("GET", f"{self.url}/v1/events", headers={"Last-Event-ID": self._last}) as stream:
            if stream.status_code == 200:
                self.connections += 1
            async for line in stream.aiter_lines():
                if line.startswith("id: "):
                    self._last = line.removeprefix("id: ")
                if line.startswith("data: "):
                    self.lines.append(json.loads(line.removeprefix("data: ")))


@asynccontextmanager
async def events_followed(url: str) -> AsyncIterator[EventReader]:
    reader = EventReader(url)
    task = asyncio.create_task(reader.follow())
    try:
        yield reader
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
