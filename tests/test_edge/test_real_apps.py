"""Apps that are processes or containers: a CRM killed at any step comes back to them, and none is there twice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from domain.errors import Refused
from domain.model import ActionResult
from providers.sockets import find_free_port
from tests.patience import PATIENCE
from tests.test_edge.kit import QUICK, Edge
from tests.test_edge.processes import CrmProcess, crm_process
from tests.test_systems.images import BUSYBOX, make_image, why_no_containers
from workers.crm import CrmOptions, serve_crm
from workers.settings import WorkerSettings

SLEEP = os.path.realpath("/bin/sleep")
FIRST, LAST = 9, 62  # steps of `AppSite.live`, as tests.test_edge.mortal counts them
SPAWNED = 17  # the step before the first process of an app is written down; it runs
MOMENTS = {"process": range(FIRST, LAST, 7), "container": range(FIRST + 1, LAST, 17)}
needs_containers = pytest.mark.skipif(bool(why_no_containers()), reason=why_no_containers())
BACKENDS = ["process", pytest.param("container", marks=needs_containers)]


def running(path: str) -> set[int]:
    """The first processes of all instances of an app, by what is in their environment: nothing of ours is asked."""
    found: dict[str, list[int]] = {}
    for folder in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            words = dict(word.split("=", 1) for word in (folder / "environ").read_text().split("\0") if "=" in word)
            if words.get("RATCHET_SERVICE") == path:
                found.setdefault(words["RATCHET_INSTANCE"], []).append(int(folder.name))
    return {min(pids) for pids in found.values()}


@dataclass
class AppSite:
    """A cloudlet whose apps are real, and its CRMs."""

    edge: Edge
    address: str
    backend: str
    settings: Mapping[str, str]
    app: dict[str, Any]

    @property
    def cloudlet(self) -> str:
        return self.edge.at("berlin")

    @property
    def shop(self) -> str:
        return self.edge.at("berlin", "c1", "shop")

    @property
    def old(self) -> str:
        return self.edge.at("berlin", "c1", "old")

    def crm(self, step: int | None = None, **settings: str) -> AbstractAsyncContextManager[CrmProcess]:
        """A CRM that lives, or one that dies at a step."""
        program = ("workers.crm",) if step is None else ("tests.test_edge.mortal", str(step))
        more = {**self.settings, **settings}
        return crm_process(
            self.edge.home, self.address, self.cloudlet, program=program, backend=self.backend, settings=more
        )

    async def create_cluster(self, **patience: float) -> None:
        await self.edge.user.do(self.cloudlet, "create", spec={"patience": {**QUICK, **patience}})
        await self.edge.user.do(self.edge.at("berlin", "c1"), "create", spec={})

    async def live(self) -> None:
        """What happens on the site: two apps come, one grows, the other goes."""
        await self.change(self.shop, "create", self.app)
        await self.change(self.old, "create", self.app)
        await self.change(self.shop, "update", {"replicas": 2})
        await self.change(self.old, "delete")

    async def change(self, path: str, action: str, spec: dict[str, Any] | None = None) -> None:
        """An action that succeeds, as soon as the cloudlet takes changes."""
        ticket = await self.edge.begun_when_ready(path, action, self.cloudlet, spec=spec)
        assert (await self.edge.end(ticket)).result is ActionResult.SUCCEEDED


@pytest.fixture
async def site(edge: Edge, temporal_address: str, tmp_path: Path, request: Any) -> AsyncIterator[AppSite]:
    settings = {"RATCHET_PROGRAMS": SLEEP}
    app: dict[str, Any] = {"command": f"{SLEEP} 1000"}
    if request.param == "container":
        settings = {"RATCHET_IMAGES": str(make_image(tmp_path / "busybox"))}
        app = {"image": "busybox", "command": "sleep 1000"}
    site = AppSite(edge, temporal_address, request.param, settings, app)
    yield site
    left = running(site.shop) | running(site.old)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, "every test takes its apps away"


@asynccontextmanager
async def replaced(site: AppSite, step: int) -> AsyncIterator[dict[str, set[int]]]:
    """A CRM that dies at a step, and the one after it. Yields what ran when it died, once it did."""
    before: dict[str, set[int]] = {}
    async with site.crm(step) as mortal:

        async def follow() -> None:
            assert await mortal.process.wait() == -signal.SIGKILL
            before.update({path: running(path) for path in (site.shop, site.old)})
            async with site.crm():
                await asyncio.Event().wait()

        following = asyncio.create_task(follow())
        try:
            yield before
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


@pytest.mark.parametrize(
    ("site", "moment"),
    [
        pytest.param(name, moment, marks=needs_containers if name == "container" else ())
        for name, moments in MOMENTS.items()
        for moment in moments
    ],
    indirect=["site"],
)
async def test_a_crm_killed_at_any_step_comes_back_to_its_apps(site: AppSite, moment: int) -> None:
    async with asyncio.timeout(2 * PATIENCE), replaced(site, moment) as before:
        await site.create_cluster()
        await site.live()
        assert before, "it was killed in the middle"
        assert len(running(site.shop)) == 2
        assert before[site.shop] <= running(site.shop), "what ran when the CRM died is not started again"
        assert running(site.old) == set()
        await site.change(site.shop, "delete")
        assert running(site.shop) == set()
    await site.edge.at_rest()


@pytest.mark.parametrize("site", BACKENDS, indirect=True)
async def test_the_moments_above_are_in_the_middle_of_what_a_crm_does(site: AppSite, tmp_path: Path) -> None:
    count = tmp_path / "count"
    async with asyncio.timeout(2 * PATIENCE), site.crm(0, MORTAL_COUNT=str(count)):
        await site.create_cluster()
        assert int(count.read_text()) < FIRST
        await site.live()
        assert int(count.read_text()) >= LAST
        await site.edge.user.do(site.shop, "delete")


@pytest.mark.parametrize("site", ["process"], indirect=True)
async def test_an_app_whose_creation_was_given_up_meanwhile_is_stopped(site: AppSite) -> None:
    async with asyncio.timeout(2 * PATIENCE):
        async with site.crm(SPAWNED) as mortal:
            await site.create_cluster(cleanup=1)
            ticket = await site.edge.begun(site.shop, "create", spec=site.app)
            assert await mortal.process.wait() == -signal.SIGKILL
            assert len(running(site.shop)) == 1, "it was killed when the process had just been started"
        await site.edge.user.asking.cancel_action(site.shop)
        assert (await site.edge.end(ticket)).status == "None"
        assert len(running(site.shop)) == 1
        async with site.crm():
            while running(site.shop):
                await asyncio.sleep(0.05)
            await site.edge.until(site.cloudlet, "Ready")
    assert "orphans" not in (await site.edge.see(site.cloudlet)).info
    await site.edge.at_rest()


@pytest.mark.parametrize("site", BACKENDS, indirect=True)
async def test_apps_that_die_or_are_deleted_while_no_crm_is_there(site: AppSite) -> None:
    async with asyncio.timeout(2 * PATIENCE):
        async with site.crm() as first:
            await site.create_cluster()
            for path in (site.shop, site.old):
                await site.edge.user.do(path, "create", spec={**site.app, "replicas": 2})
            await first.kill()
        lost, *kept = sorted(running(site.shop))
        os.kill(lost, signal.SIGKILL)
        ticket = await site.edge.begun(site.old, "delete")
        assert len(running(site.old)) == 2
        async with site.crm():
            assert (await site.edge.end(ticket)).status == "None"
            assert running(site.old) == set()
            while len(running(site.shop)) < 2:
                await asyncio.sleep(0.05)
            assert set(kept) < running(site.shop)
            await site.change(site.shop, "delete")


@pytest.mark.skipif(not BUSYBOX.exists(), reason="there is no busybox on this machine: apt install busybox-static")
@pytest.mark.parametrize("site", BACKENDS, indirect=True)
async def test_an_app_has_a_port_a_health_check_and_secrets(site: AppSite, tmp_path: Path) -> None:
    secret = tmp_path / "secrets" / site.cloudlet.split(":")[1] / "db"
    secret.parent.mkdir(parents=True)
    secret.touch(mode=0o600)
    secret.write_text("hunter2\n")
    port, other = find_free_port(), find_free_port()
    program = "httpd" if site.backend == "container" else f"{BUSYBOX} httpd"
    app = {
        **site.app,
        "command": f"{program} -f -p {{port}} -h /bin",
        "port": port,
        "health": {"http": "/busybox", "interval": 0.1},
        "environment": {"COLOR": "blue"},
        "secretFrom": {"PASSWORD": {"file": "db"}},
    }
    user = site.edge.user
    async with (
        asyncio.timeout(2 * PATIENCE),
        site.crm(RATCHET_SECRETS=str(tmp_path / "secrets"), RATCHET_PROGRAMS=str(BUSYBOX)),
    ):
        await site.create_cluster()
        assert (await user.do(site.shop, "create", spec=app)).result is ActionResult.SUCCEEDED
        assert await _is_served(port)
        app_and_proxy = [Path(f"/proc/{pid}/environ").read_text().split("\0") for pid in running(site.shop)]
        assert [{"COLOR=blue", "PASSWORD=hunter2"} <= {*words} for words in app_and_proxy].count(True) == 1
        assert "hunter2" not in str(await user.see(site.shop))
        assert (await user.do(site.shop, "update", spec={"port": other})).result is ActionResult.SUCCEEDED
        assert (await _is_served(other), await _is_served(port)) == (True, False)
        for deadline in (3, 15, 60):  # on a busy machine it may not even run after the first
            absent = {"health": {"http": "/absent", "interval": 0.1}, "deadline": deadline}
            sick = await user.do(site.shop, "update", spec=absent)
            if "0 of 1 healthy" in sick.message:
                break
        assert (sick.result, sick.status) == (ActionResult.FAILED, "Ready")
        assert f"after {deadline} s: 0 of 1 healthy" in sick.message
        assert await _is_served(other), "what was there before is back"
        await user.do(site.shop, "delete")
        assert not await _is_served(other)


async def _is_served(port: int) -> bool:
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE) as client:
        try:
            return (await client.get(f"http://127.0.0.1:{port}/busybox")).is_success
        except httpx.TransportError:
            return False


@pytest.mark.parametrize("site", ["process"], indirect=True)
async def test_an_upgrade_of_the_crm_leaves_its_apps_alone(site: AppSite) -> None:
    async with asyncio.timeout(2 * PATIENCE), site.crm():
        await site.create_cluster()
        await site.edge.user.do(site.shop, "create", spec=site.app)
        before = running(site.shop)
        assert (await site.edge.user.do(site.cloudlet, "upgrade", spec={"version": "v2"})).status == "Ready"
        await site.edge.user.do(site.shop, "update", spec={"replicas": 2})
        assert len(running(site.shop)) == 2
        assert before < running(site.shop)
        await site.edge.user.do(site.shop, "delete")


@pytest.mark.parametrize(
    ("site", "spec", "why"),
    [
        ("process", {"command": ""}, "needs a command"),
        ("process", {"command": "/bin/cat"}, "RATCHET_PROGRAMS"),
        ("process", {"command": "sleep 'x"}, "cannot be read: No closing quotation"),
        ("process", {"replicas": 1_000}, "less than or equal to 100"),
        pytest.param("container", {"image": "none"}, "there is no image none", marks=needs_containers),
        pytest.param("container", {"command": "false"}, "ended with exit code 1", marks=needs_containers),
    ],
    indirect=["site"],
)
async def test_an_app_that_cannot_run_is_told_and_leaves_nothing(site: AppSite, spec: dict[str, Any], why: str) -> None:
    async with asyncio.timeout(2 * PATIENCE), site.crm():
        await site.create_cluster()
        failed = await site.edge.user.do(site.shop, "create", spec={**site.app, **spec})
        assert (failed.result, failed.status) == (ActionResult.FAILED, "None")
        assert why in failed.message


@pytest.mark.parametrize("site", ["process"], indirect=True)
async def test_a_crm_does_not_take_over_apps_that_it_cannot_watch(site: AppSite, tmp_path: Path) -> None:
    settings = WorkerSettings(home=site.edge.home, simulated="off")
    with pytest.raises(Refused, match="is simulated"):
        await serve_crm(settings, CrmOptions(site.cloudlet))
    async with asyncio.timeout(2 * PATIENCE):
        async with site.crm():
            await site.create_cluster()
            await site.edge.user.do(site.shop, "create", spec=site.app)
        assert not (await site.edge.user.asking.read_object(site.shop)).simulated
        with pytest.raises(Refused, match="run on the backend process, not simulated"):
            await serve_crm(WorkerSettings(home=site.edge.home), CrmOptions(site.cloudlet))
        async with site.crm():
            await site.change(site.shop, "delete")
