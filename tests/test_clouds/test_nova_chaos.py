"""Nova when things go wrong, through the workflows: killed, slow, called twice, full. Its servers equal the records."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from domain.faults import Fault, FaultKind
from domain.invariants import VerificationReport
from domain.model import ActionResult, ReadQuery
from domain.orphans import OrphanQuery, OrphansPage
from domain.wire import READ_ORPHANS, VERIFY_ACTIVITY
from providers.openstack.servers import parse_server, path_hash
from tests.openstack.rig import OpenStack
from tests.openstack.tokens import MEMBER_TOKEN
from tests.patience import PATIENCE, ended
from tests.stack import opened, until_polled
from tests.test_clouds.kit import REGION
from tests.user import User

OWNER = "chaos"
NUMBER = 2
_numbers = count(1)


class NovaSite:
    """A user of an OpenStack, and what Nova's own database says."""

    def __init__(self, openstack: OpenStack, user: User) -> None:
        self.openstack = openstack
        self.user = user

    async def until_living(self, expected: dict[str, list[str]]) -> None:
        """Until Nova has these servers: it takes its time to delete a second one."""
        deadline = time.monotonic() + PATIENCE
        while (found := await asyncio.to_thread(self.living)) != expected:
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.5)  # every look costs Nova more than an order

    def living(self) -> dict[str, list[str]]:
        """Nova's living servers of this user by path, each with its state."""
        found: dict[str, list[str]] = {}
        for server in self.read("/servers/detail")["servers"]:
            path = server["metadata"].get("ratchet:path", "")
            if path.startswith(f"ns:{self.user.ns}:"):
                found.setdefault(path, []).append(server["status"])
        return found

    def read(self, path: str, **body: object) -> Any:
        """Nova's answer, without our proxy; with a body, to an order."""
        url = f"{self.openstack.proxy.upstream['compute']}/v2.1{path}"
        headers = {"X-Auth-Token": MEMBER_TOKEN, "OpenStack-API-Version": "compute 2.90"}
        method = "POST" if body else "GET"
        answer = httpx.request(method, url, headers=headers, json=body or None, timeout=PATIENCE, trust_env=False)
        assert answer.is_success, answer.text
        return answer.json()

    def rows(self) -> list[dict[str, Any]]:
        """Every server that Nova ever had for this user, as its database has it."""
        marks = [path_hash(f"{OWNER}/{REGION}", self.user.vm(f"lab-{number + 1}")) for number in range(NUMBER)]
        names = [f"lab-{number + 1}-{mark}" for number, mark in enumerate(marks)]
        return [row for row in self.openstack.servers(OWNER) if row["display_name"] in names]

    def hold(self, is_held: bool) -> None:
        """Holds up Nova's hypervisor when it builds or stops a server, or lets it go on."""
        file = self.openstack.folder / "hold"
        file.touch() if is_held else file.unlink(missing_ok=True)

    async def kill_nova_when(self, moment: Callable[[], bool]) -> None:
        """Kills Nova at a moment, and starts it again. What was held up for that goes on."""
        async with asyncio.timeout(PATIENCE):
            while not moment():
                await asyncio.sleep(0.01)
        self.openstack.nova.kill()
        self.hold(False)
        self.openstack.proxy.end_hangs()
        self.openstack.nova.start()
        await asyncio.to_thread(self.openstack.nova.wait)

    def add_faults(self, faults: list[Fault]) -> None:
        for fault in faults:
            self.openstack.proxy.add_fault(fault)

    async def compare(self, status: str) -> None:
        """One server for each record, and nothing else; `verify` agrees."""
        members = (await self.user.see(self.user.mci())).members
        await self.until_living({vm.path: [status] for vm in members if vm.status in ("Running", "Suspended")})
        query = ReadQuery(path=f"ns:{self.user.ns}")
        report = await self.user.asking.run_query(VERIFY_ACTIVITY, query, VerificationReport, seconds=PATIENCE)
        assert report.findings == []


@pytest.fixture(scope="module")
async def stack(openstack: OpenStack, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[User]:
    folder: Path = tmp_path_factory.mktemp("nova")
    file = folder / "connections.yaml"
    file.write_text(yaml.safe_dump({"connections": {"lab": openstack.document(REGION, OWNER, **openstack.there)}}))
    patience = str(2 * PATIENCE)
    async with opened(folder / "home", connections=str(file), call_timeout=patience, patience=patience) as running:
        yield User(await until_polled(running.client), running.stack, "")


@pytest.fixture
async def site(openstack: OpenStack, stack: User) -> AsyncIterator[NovaSite]:
    site = NovaSite(openstack, User(stack.asking, stack.service, f"chaos{next(_numbers)}"))
    yield site
    site.hold(False)
    openstack.proxy.clear()


def spec(number: int = NUMBER) -> dict[str, object]:
    return {"subGroups": [{"name": "lab", "connectionName": "lab", "subGroupSize": number}]}


@pytest.mark.parametrize(
    "faults",
    [
        [Fault(kind=FaultKind.LOSE_ANSWER, times=NUMBER)],
        # The slow ones are more: some of them are carried out.
        [
            Fault(kind=FaultKind.SLOW, seconds=0.5, times=3 * NUMBER),
            Fault(kind=FaultKind.UNAVAILABLE, times=2 * NUMBER),
        ],
    ],
    ids=["lose-answer", "slow and unavailable"],
)
async def test_an_mci_lives_its_life_whatever_happens_to_its_orders(site: NovaSite, faults: list[Fault]) -> None:
    """The faults strike the orders of every action anew; creations are carried out twice besides."""
    path, lives = site.user.mci(), {"create": "ACTIVE", "suspend": "SHUTOFF", "resume": "ACTIVE"}
    for action, status in lives.items():
        site.add_faults(faults)
        site.openstack.proxy.twice = 1
        outcome = await site.user.do(path, action, spec=spec() if action == "create" else None)
        assert outcome.result is ActionResult.SUCCEEDED, outcome
        await site.compare(status)
    site.add_faults(faults)
    assert (await site.user.do(path, "delete")).result is ActionResult.SUCCEEDED
    await site.until_living({})


async def test_a_nova_that_is_full_leaves_records_of_what_it_has_and_no_more(site: NovaSite) -> None:
    site.openstack.proxy.add_fault(Fault(kind=FaultKind.CAPACITY, verb="create", vm="*-2"))
    outcome = await site.user.do(site.user.mci(), "create", spec=spec())
    assert outcome.result is ActionResult.PARTIAL, outcome
    assert "Quota exceeded" in (await site.user.see(site.user.vm("lab-2"))).error
    await site.compare("ACTIVE")
    assert (await site.user.do(site.user.mci(), "delete")).result is ActionResult.SUCCEEDED
    await site.until_living({})


async def test_nova_killed_before_it_has_taken_a_creation_makes_one_server(site: NovaSite) -> None:
    site.openstack.proxy.calls.clear()
    site.openstack.proxy.add_fault(Fault(kind=FaultKind.HANG, verb="create", seconds=PATIENCE))
    ticket = await site.user.ask(site.user.mci(), "create", spec=spec(1))
    await site.kill_nova_when(lambda: site.openstack.proxy.calls["create"] > 0)
    assert (await ended(site.user.asking, ticket)).result is ActionResult.SUCCEEDED
    assert len(site.rows()) == 1
    await site.compare("ACTIVE")
    assert (await site.user.do(site.user.mci(), "delete")).result is ActionResult.SUCCEEDED
    await site.until_living({})


async def test_nova_killed_while_it_builds_a_server_leaves_none_behind_and_the_reason(site: NovaSite) -> None:
    """Nova itself gives the server up when it starts again."""
    site.hold(True)
    ticket = await site.user.ask(site.user.mci(), "create", spec=spec(1))
    await site.kill_nova_when(lambda: any(row["task_state"] == "spawning" for row in site.rows()))
    outcome = await ended(site.user.asking, ticket)
    assert outcome.result is ActionResult.FAILED, outcome
    assert "could not be built" in (await site.user.see(site.user.vm("lab-1"))).error
    assert len(site.rows()) == 1
    await site.until_living({})
    await site.compare("ACTIVE")
    assert (await site.user.do(site.user.mci(), "delete")).result is ActionResult.SUCCEEDED


async def test_nova_killed_while_it_stops_servers_has_stopped_all_of_them_in_the_end(site: NovaSite) -> None:
    path = site.user.mci()
    await site.user.do(path, "create", spec=spec())
    site.hold(True)
    ticket = await site.user.ask(path, "suspend")
    await site.kill_nova_when(lambda: any(row["task_state"] == "powering-off" for row in site.rows()))
    assert (await ended(site.user.asking, ticket)).result is ActionResult.SUCCEEDED
    assert len(site.rows()) == NUMBER
    await site.compare("SHUTOFF")
    assert (await site.user.do(path, "delete")).result is ActionResult.SUCCEEDED
    await site.until_living({})


async def test_a_second_server_of_a_worker_that_died_is_named_and_removed_and_the_records_own_stays(
    site: NovaSite,
) -> None:
    """Nova has no client token: two workers that create at one moment may make two, and one may die before it looks."""
    path = site.user.mci()
    await site.user.do(path, "create", spec=spec())
    own = next(
        server
        for server in site.read("/servers/detail")["servers"]
        if server["metadata"].get("ratchet:path") == site.user.vm("lab-1")
    )
    marks = {key: own[key] for key in ("name", "description", "metadata")}
    ordered = {"flavorRef": "1", "imageRef": own["image"]["id"], "networks": "none", **marks}
    twin = site.read("/servers", server=ordered)["server"]["id"]
    async with asyncio.timeout(PATIENCE):
        while len(site.living()[site.user.vm("lab-1")]) < 2:
            await asyncio.sleep(0.5)
    query = OrphanQuery(path=path)
    (orphan,) = (await site.user.asking.run_query(READ_ORPHANS, query, OrphansPage, seconds=PATIENCE)).orphans
    assert (orphan.id, orphan.record) == (twin, f"Running as {parse_server(own).cloud_id}")
    asked = ReadQuery(path=path)
    report = await site.user.asking.run_query(VERIFY_ACTIVITY, asked, VerificationReport, seconds=PATIENCE)
    assert [twin in str(finding) for finding in report.findings] == [True]
    assert (await site.user.do(path, "reboot")).result is ActionResult.SUCCEEDED, "its own servers are acted on"
    removed = await site.user.do(f"{orphan.path}:orphan:{twin}", "remove", spec={"place": orphan.provider})
    assert removed.result is ActionResult.SUCCEEDED
    await site.compare("ACTIVE")
    assert (await site.user.do(path, "delete")).result is ActionResult.SUCCEEDED
    await site.until_living({})
