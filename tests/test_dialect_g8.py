"""OpenvCloud's cloudapi: libcloud's unmodified driver through a machine's life, and answers to wrong requests."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest

from domain.aliases import READ_ALIASES, AliasesView, AliasQuery, Dialect
from domain.faults import Fault, FaultKind
from domain.machines.sizes import SIZE_OF_NAME, SIZES
from domain.machines.specs import NewMachineSpec
from gateway.app import build_gateway_app
from gateway.context import Gateway
from gateway.reads import GatewayClient
from gateway.server import serve_app
from gateway.tokens import CallerTokens, TokenFile, generate_jwt_token, hash_token
from tests.clients import g8_life
from tests.patience import PATIENCE
from tests.stack import family_of
from tests.test_dialects.conftest import programs as programs
from tests.user import User
from workers.machines import MachineFamily
from workers.service import WorkerService

API = "/restmachine/cloudapi"


@pytest.fixture
def token_file(tmp_path: Path, ns: str) -> tuple[str, Path]:
    """A JWT that may use one account, and the file that has its hash."""
    jwt = generate_jwt_token("ci", datetime.now(UTC) + timedelta(days=1))
    file = tmp_path / "tokens.yaml"
    file.write_text(f"tokens: [{{name: ci, hash: '{hash_token(jwt)}', tenants: ['account:{ns}']}}]\n")
    file.chmod(0o600)
    return jwt, file


@pytest.fixture
async def url(stack: WorkerService, token_file: tuple[str, Path]) -> AsyncIterator[str]:
    gateway = Gateway(GatewayClient(stack.client, stack.store_reads()), CallerTokens(TokenFile(token_file[1])))
    async with serve_app(build_gateway_app(gateway), "127.0.0.1", 0) as found:
        yield found


@pytest.fixture
async def http(url: str, token_file: tuple[str, Path]) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"bearer {token_file[0]}"}
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE, headers=headers) as client:
        yield client


@pytest.fixture
async def account(user: User, http: httpx.AsyncClient) -> int:
    """An account, an image and a node; the account's number."""
    await user.do(f"node:{user.ns}", "create", spec={"memory": 64})
    await user.do(f"image:ubuntu-{user.ns}", "create")
    await user.do(f"account:{user.ns}", "create")
    (found,) = await call(http, "accounts/list")
    return int(found["id"])


async def call(http: httpx.AsyncClient, route: str, /, **parameters: Any) -> Any:
    answer = await http.post(f"{API}/{route}", json=parameters or None)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def errors(http: httpx.AsyncClient, name: str, body: Any) -> tuple[int, str]:
    answer = await http.post(f"{API}/{name}", json=body)
    assert isinstance(answer.json(), str), "libcloud reads a JSON text"
    return answer.status_code, answer.json()


async def until_seen(
    programs: Path, words: tuple[str, ...], step: str, then: Callable[[], Awaitable[None]]
) -> dict[str, Any]:
    """What a program says of its steps; when it has said this one, something is done."""
    steps: dict[str, Any] = {}
    pipe, environment = asyncio.subprocess.PIPE, {"PATH": os.environ["PATH"], "HOME": str(programs)}
    process = await asyncio.create_subprocess_exec(
        str(programs / "python"), *words, env=environment, stdout=pipe, stderr=pipe
    )
    assert process.stdout
    assert process.stderr
    try:
        async with asyncio.timeout(PATIENCE):
            async for line in process.stdout:
                said = json.loads(line)
                steps[said["step"]] = said
                if said["step"] == step:
                    await then()
            told = (await process.stderr.read()).decode()
            assert await process.wait() == 0, told
    finally:
        if process.returncode is None:
            process.kill()
    return steps


async def test_libcloud_leads_a_machine_through_its_life(
    user: User,
    url: str,
    token_file: tuple[str, Path],
    account: int,
    stack: WorkerService,
    programs: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for limit in ("call_seconds", "total_seconds"):
        monkeypatch.setitem(vars(family_of(stack, MachineFamily).retry), limit, PATIENCE)
    hang = Fault(kind=FaultKind.HANG, csp="hypervisor", vm=f"account:{user.ns}:*", verb="start", seconds=1, times=1)
    await stack.simulated["aws"].set_faults([hang] * PATIENCE)  # its call meets one after the other until it was seen
    life = (g8_life.__file__, url, token_file[0], str(account))
    steps = await until_seen(programs, life, "busy", stack.simulated["aws"].clear_faults)
    assert (steps["create"]["state"], steps["create"]["vcpus"], steps["create"]["ram"]) == ("running", 2, 4096)
    assert len(set(steps["nodes"]["ips"])) == 2, "each has an address of its own"
    assert steps["stop"]["state"] == "stopped"
    assert steps["attach"]["node"]
    assert steps["busy"]["code"] == 409, "an action was running, and libcloud saw it"
    assert "start since" in steps["busy"]["message"]
    assert (steps["destroy"]["nodes"], steps["destroy"]["volumes"], steps["end"]["networks"]) == (0, 0, 0)
    lines = await user.history(f"account:{user.ns}:cloudspace:dev:machine:db")
    assert {line.requested_by for line in lines if line.requested_by} == {"ci"}


async def test_a_number_is_never_another_object_and_an_account_never_anothers(
    user: User, http: httpx.AsyncClient, account: int
) -> None:
    space = await call(http, "cloudspaces/create", accountId=account, name="dev")
    assert await call(http, "cloudspaces/create", accountId=account, name="dev") == space, "asked again: the same"
    (image,) = [each["id"] for each in await call(http, "images/list") if each["name"] == f"ubuntu-{user.ns}"]
    machine = {"name": "db", "cloudspaceId": space, "imageId": image, "memory": 1, "vcpus": 1}
    first = await call(http, "machines/create", **machine)
    found = await call(http, "machines/get", machineId=first)
    assert (found["memory"], found["sizeid"], found["cloudspaceid"], found["imageid"]) == (1024, 1, space, image)
    assert await call(http, "machines/addDisk", machineId=first, diskName="log", size=5) > first
    await call(http, "machines/delete", machineId=first, permanently=True)
    second = await call(http, "machines/create", **machine, description="another")
    assert second != first
    assert (await errors(http, "machines/stop", {"machineId": first}))[0] == 404, "its number died with it"
    assert (await errors(http, "machines/stop", {"machineId": space}))[0] == 404, "a number of another kind"
    await user.do(f"account:{user.ns}x", "create")
    query = AliasQuery(dialect=Dialect.G8, paths=[f"account:{user.ns}x"])
    other = await user.asking.run_query(READ_ALIASES, query, AliasesView)
    code, told = await errors(http, "disks/list", {"accountId": int(other.aliases[0].id)})
    assert (code, f"account:{user.ns}x" in told) == (401, True)


async def test_every_action_is_served_and_a_restart_that_is_sent_again_happens_once_unless_it_failed(
    user: User, http: httpx.AsyncClient, account: int, stack: WorkerService
) -> None:
    space = await call(http, "cloudspaces/create", accountId=account, name="dev")
    (image,) = [each["id"] for each in await call(http, "images/list") if each["name"] == f"ubuntu-{user.ns}"]
    asked = {"name": "db", "cloudspaceId": space, "imageId": image, "memory": 1, "vcpus": 1}
    machine, path = await call(http, "machines/create", **asked), f"account:{user.ns}:cloudspace:dev:machine:db"
    fault = Fault(kind=FaultKind.FAIL, csp="hypervisor", vm=f"account:{user.ns}:*", verb="reboot", times=1)
    await stack.simulated["aws"].add_fault(fault)
    assert (await errors(http, "machines/reboot", {"machineId": machine}))[0] == 500
    for _ in range(3):
        assert await call(http, "machines/reboot", machineId=machine) is True
    runs = {line.run: line.to for line in await user.history(path) if line.action == "reboot"}
    assert len(runs) == 2, "one failed, one succeeded"
    for action, status in [("pause", "PAUSED"), ("resume", "RUNNING"), ("reset", "RUNNING"), ("stop", "HALTED")]:
        await call(http, f"machines/{action}", machineId=machine, reason="a test")
        assert (await call(http, "machines/get", machineId=machine))["status"] == status
    await call(http, "machines/delete", machineId=machine)
    assert await call(http, "machines/list", cloudspaceId=space) == [], "it is in the recycle bin"
    await call(http, "machines/restore", machineId=machine, reason="a mistake")
    (line, *_) = [line for line in await user.history(path) if line.action == "restore"]
    assert line.reason == "a mistake"
    for action, status in [("disable", "DISABLED"), ("enable", "DEPLOYED")]:
        await call(http, f"cloudspaces/{action}", cloudspaceId=space)
        assert (await call(http, "cloudspaces/get", cloudspaceId=space))["status"] == status


async def test_wrong_requests_are_answered_with_a_text(http: httpx.AsyncClient, account: int) -> None:
    assert (await errors(http, "machines/create", {"cloudspaceId": "x"}))[0] == 400
    assert "name: a text" in (await errors(http, "cloudspaces/create", {"accountId": account}))[1]
    assert (await errors(http, "cloudspaces/create", {"accountId": account, "name": "no good"}))[0] == 400
    assert (await errors(http, "machines/get", {"machineId": 10**30}))[0] == 404
    assert (await errors(http, "machines/get", [1]))[0] == 400
    assert (await errors(http, "machines/fly", None))[0] == 404
    assert await errors(http, "portforwarding/create", {}) == (501, "portforwarding/create is not built")
    assert (await http.post(f"{API}/machines/get", content=b"{")).status_code == 400
    assert (await http.post(f"{API}/machines/list", headers={"Authorization": "bearer x"})).status_code == 401
    assert (await http.post("/restmachine/system/usermanager/whoami")).json() == {"name": "ci"}


def test_a_size_stands_for_its_numbers() -> None:
    assert set(get_args(NewMachineSpec.model_fields["size"].annotation)) == {"", *SIZE_OF_NAME}
    assert len({size.number for size in SIZES}) == len(SIZES)
    large = NewMachineSpec(image="u", size="large")
    assert (large.vcpus, large.memory) == (2, 4)
    assert NewMachineSpec.model_validate(large.model_dump()) == large
    with pytest.raises(ValueError, match="the size large has 4 memory, not 7"):
        NewMachineSpec(image="u", size="large", memory=7)
