"""The old systems' own clients, unmodified, each through the life of a lease."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.context import Gateway
from gateway.tokens import CallerTokens, TokenFile, generate_token, hash_token
from tests.patience import PATIENCE
from tests.test_dialects.clients import ClientPrograms, ForkingClients

PROPERTIES = '["and", [">=", "$vcpus", "4"], ["==", "$gpu", "True"]]'
PHYSICAL = f"resource_type=physical:host,min=1,max=1,hypervisor_properties=,resource_properties={PROPERTIES}"
INSTANCES = "resource_type=virtual:instance,vcpus=1,memory_mb=100,disk_gb=1,amount=2,affinity=False"


@pytest.fixture
def token(gateway: Gateway, tmp_path: Path) -> str:
    """The gateway wants this token from now on."""
    secret = generate_token()
    file = tmp_path / "tokens.yaml"
    file.write_text(f"tokens: [{{name: anna, hash: '{hash_token(secret)}', tenants: ['project:{gateway.project}']}}]")
    file.chmod(0o600)
    gateway.tokens = CallerTokens(TokenFile(file))
    return secret


def login(url: str, token: str, project: str) -> dict[str, str]:
    """The variables that users of OpenStack have in their openrc file."""
    return {
        "OS_AUTH_URL": f"{url}/identity/v3",
        "OS_AUTH_TYPE": "password",
        "OS_USERNAME": "anna",
        "OS_PASSWORD": token,
        "OS_PROJECT_NAME": project,
        "OS_USER_DOMAIN_NAME": "Default",
        "OS_PROJECT_DOMAIN_NAME": "Default",
        "OS_REGION_NAME": "RegionOne",
    }


async def fail_host(url: str, token: str, gateway: Gateway, host: str) -> None:
    async with httpx.AsyncClient(timeout=PATIENCE, headers={"Authorization": f"Bearer {token}"}) as http:
        answer = await http.post(f"{url}/v1/objects/pool:{gateway.pool}:host:{host}/actions/fail")
        assert answer.status_code == 200, answer.text


@pytest.fixture(scope="module")
async def clients(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ForkingClients]:
    """Programs that are loaded once: a life takes thirty commands."""
    async with ForkingClients.open(programs, tmp_path_factory.mktemp("clients")) as opened:
        yield opened


async def live_on_the_command_line(
    clients: ForkingClients, program: str, words: dict[str, list[str]], url: str, token: str, gateway: Gateway
) -> None:
    """A life by a command-line client; `words` are its names of the commands."""
    variables = login(url, token, gateway.project)

    async def do(command: str, *more: str) -> Any:
        shown = ["-f", "json"] if command.endswith(("list", "show")) else []
        code, out, err = await clients.run(variables, program, *words[command], *shown, *more)
        assert code == 0, (command, out, err)
        return json.loads(out) if shown else out

    async def see() -> dict[str, Any]:
        found: dict[str, Any] = await do("lease-show", "mine")
        reservations = found["reservations"]  # a text of JSON, or JSON, by the client
        found["reservations"] = json.loads(reservations) if isinstance(reservations, str) else reservations
        return found

    for host in ("h1", "h2"):
        await do("host-create", "--extra", "gpu=True", host)
    assert [host["hypervisor_hostname"] for host in await do("host-list")] == ["h1", "h2"]
    await do("lease-create", "--reservation", PHYSICAL, "mine")
    async with asyncio.timeout(PATIENCE):
        while (lease := await see())["status"] != "ACTIVE":
            assert lease["status"] in ("PENDING", "STARTING"), lease
    before = lease["end_date"]
    await do("lease-update", "--prolong-for", "1h", "mine")
    after = (await see())["end_date"]
    assert after > before
    assert after[14:16] == before[14:16], "an hour later"
    await do("lease-update", "--reduce-by", "30m", "--name", "mine", "mine")
    assert before < (await see())["end_date"] < after
    (first, second) = await do("allocation-list", "host")
    assert bool(first["reservations"]) is not bool(second["reservations"])
    await fail_host(url, token, gateway, "h1")
    seen = await see()
    assert str(seen["degraded"]) == "True"
    assert seen["status"] == "ACTIVE"
    if_free = ("--start-date", "2199-01-01 00:00", "--end-date", "2199-01-02 00:00")
    await do("lease-create", "--reservation", INSTANCES.replace("amount=2", "amount=1"), *if_free, "later")
    await do("lease-delete", "later")
    await do("lease-delete", "mine")
    assert await do("lease-list") == []
    assert [each["property"] for each in await do("host-property-list")] == ["gpu"]
    await do("host-property-set", "--private", "gpu")
    assert await do("host-property-list") == []
    (hidden,) = await do("host-property-list", "--all", "--detail")
    assert (hidden["property"], str(hidden["private"])) == ("gpu", "True")
    await do("host-property-set", "--public", "gpu")
    assert str((await do("host-property-show", "gpu"))["private"]) == "False"
    await do("host-delete", "h1")
    code, _, err = await clients.run(variables, program, *words["lease-show"], "mine")
    assert code != 0
    assert "mine" in err


LEASE_WORDS = ("create", "list", "show", "update", "delete")
BLAZAR_WORDS = {
    name: [name]
    for name in (
        *(f"lease-{word}" for word in LEASE_WORDS),
        *(f"host-{word}" for word in LEASE_WORDS),
        "allocation-list",
        *(f"host-property-{word}" for word in ("list", "show", "set")),
    )
}
OPENSTACK_WORDS = {name: ["reservation", *name.replace("update", "set").split("-")] for name in BLAZAR_WORDS}


async def test_blazar(clients: ForkingClients, url: str, gateway: Gateway, token: str) -> None:
    await live_on_the_command_line(clients, "blazar", BLAZAR_WORDS, url, token, gateway)


@pytest.mark.parametrize("way", ["token", "basic"])
async def test_blazar_logs_in_otherwise(programs: Path, url: str, token: str, way: str) -> None:
    """Without Keystone; a command that changes something and one that reads. The others differ in nothing but words."""
    options = {
        "token": ["--os-auth-type", "admin_token", "--os-token", token],
        "basic": ["--os-auth-type", "http_basic", "--os-username", "anna", "--os-password", token],
    }[way]
    wrong = [option.replace(token, "guess") for option in options]
    clients, endpoint = ClientPrograms(programs), ["--os-endpoint", f"{url}/reservation/v1"]
    code, _, err = await clients.run("blazar", *options, *endpoint, "host-create", "--extra", "gpu=True", "h1")
    assert code == 0, err
    code, out, err = await clients.run("blazar", *options, *endpoint, "host-list", "-f", "json")
    assert code == 0, err
    assert [host["hypervisor_hostname"] for host in json.loads(out)] == ["h1"]
    code, out, _ = await clients.run("blazar", *wrong, *endpoint, "host-list")
    assert (code, "h1" in out) == (1, False)


async def test_blazar_without_tokens(programs: Path, url: str) -> None:
    clients = ClientPrograms(programs)
    words = ["--os-auth-type", "none", "--os-endpoint", f"{url}/reservation/v1"]
    code, out, err = await clients.run("blazar", *words, "lease-list", "-f", "json")
    assert (code, json.loads(out)) == (0, []), err
    code, _, err = await clients.run("blazar", *words, "floatingip-list")
    assert (code, "ERROR: Not Found" in err) == (1, True)


async def test_openstack_reservation(
    clients: ForkingClients, programs: Path, url: str, gateway: Gateway, token: str
) -> None:
    await live_on_the_command_line(clients, "openstack", OPENSTACK_WORDS, url, token, gateway)
    wrong = ClientPrograms(programs, login(url, "guess", gateway.project))
    code, _, err = await wrong.run("openstack", "reservation", "lease", "list")
    assert (code, "HTTP 401" in err) == (1, True), err


SDK_LIFE = """
import sys, time, datetime, json
import openstack, requests
connection = openstack.connect()
api = connection.reservation
for name in ("h1", "h2"):
    answer = api.post("/os-hosts", json={"name": name, "gpu": "True"})
    assert answer.status_code == 201, answer.text
ends = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)
body = {"name": "mine", "start_date": "now", "end_date": ends.strftime("%Y-%m-%d %H:%M"), "before_end_date": None,
        "events": [], "reservations": [{"resource_type": "virtual:instance", "amount": 2, "vcpus": 1, "memory_mb": 100,
        "disk_gb": 1, "affinity": "False", "resource_properties": '["==", "$gpu", "True"]'}]}
answer = api.post("/leases", json=body)
assert answer.status_code == 201, answer.text
lease = answer.json()["lease"]
def see():
    return api.get("/leases/" + lease["id"]).json()["lease"]
while see()["status"] != "ACTIVE":
    assert see()["status"] in ("PENDING", "STARTING", "ACTIVE"), see()
    time.sleep(0.05)
later = (ends + datetime.timedelta(hours=1)).strftime("%Y-%m-%d %H:%M")
answer = api.put("/leases/" + lease["id"], json={"end_date": later})
assert answer.json()["lease"]["end_date"] == later.replace(" ", "T") + ":00.000000", answer.text
failed = requests.post(sys.argv[1], headers={"Authorization": "Bearer " + sys.argv[2]})
assert failed.status_code == 200, failed.text
assert see()["degraded"] is True and see()["reservations"][0]["missing_resources"] is True, see()
assert api.delete("/leases/" + lease["id"]).status_code == 204
assert api.get("/leases").json() == {"leases": []}
print("lived")
"""


async def test_openstacksdk(programs: Path, url: str, gateway: Gateway, token: str) -> None:
    clients = ClientPrograms(programs, login(url, token, gateway.project))
    fail = f"{url}/v1/objects/pool:{gateway.pool}:host:h1/actions/fail"
    code, out, err = await clients.run("python", "-", fail, token, text=SDK_LIFE)
    assert (code, out.strip()) == (0, "lived"), err


LIBCLOUD_LOOK = """
import json, sys
from libcloud.compute.types import Provider
from libcloud.compute.providers import get_driver
address, token, project = sys.argv[1:]
driver = get_driver(Provider.OPENSTACK)(
    "anna", token, ex_force_auth_url=address, ex_force_auth_version="3.x_password", ex_tenant_name=project,
    ex_force_service_region="RegionOne", api_version="2.0",
)
found = driver.ex_list_leases()
leases = [[lease.id, lease.name, lease.status, lease.reservations[0]["resources_changed"]] for lease in found]
hosts = [host.hypervisor_hostname for host in driver.ex_list_hosts()]
print(json.dumps([leases, hosts]))
"""


async def test_libcloud(programs: Path, url: str, gateway: Gateway, token: str) -> None:
    clients = ClientPrograms(programs)

    async def look() -> Any:
        code, out, err = await clients.run("python", "-", f"{url}/identity", token, gateway.project, text=LIBCLOUD_LOOK)
        assert code == 0, err
        return json.loads(out)

    headers = {"X-Auth-Token": token}
    async with httpx.AsyncClient(base_url=f"{url}/reservation/v1", headers=headers, timeout=PATIENCE) as http:
        for host in ("h1", "h2"):
            assert (await http.post("/os-hosts", json={"name": host})).status_code == 201
        assert await look() == [[], ["h1", "h2"]]
        reservation = {"resource_type": "physical:host", "min": 1, "max": 1}
        ends = datetime.now(UTC) + timedelta(days=1)
        body = {"name": "mine", "end_date": f"{ends:%Y-%m-%d %H:%M}", "reservations": [reservation]}
        made = (await http.post("/leases", json=body)).json()["lease"]
        async with asyncio.timeout(PATIENCE):
            while (seen := await look())[0] != [[made["id"], "mine", "ACTIVE", False]]:
                assert seen[0][0][2] in ("PENDING", "STARTING")
        await fail_host(url, token, gateway, "h1")
        assert (await look())[0] == [[made["id"], "mine", "ACTIVE", True]]
        assert (await http.delete(f"/leases/{made['id']}")).status_code == 204
        assert await look() == [[], ["h1", "h2"]]
