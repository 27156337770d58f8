"""Blazar's API over a real socket: shapes, dates, errors, ways in, and one lease for a request sent twice."""

from __future__ import annotations

import asyncio
import base64
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from gateway.app import build_gateway_app
from gateway.context import Gateway
from gateway.dialects import calls
from gateway.reads import GatewayClient
from gateway.server import serve_app
from gateway.tokens import CallerTokens, TokenFile, generate_token, hash_token
from tests.patience import PATIENCE
from workers.service import WorkerService

pytestmark = pytest.mark.stores("postgres")

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}")
HOSTS = {"resource_type": "physical:host", "min": 1, "max": 1, "hypervisor_properties": "", "resource_properties": ""}
INSTANCES = {
    "resource_type": "virtual:instance",
    "amount": 2,
    "vcpus": 1,
    "memory_mb": 100,
    "disk_gb": 1,
    "affinity": "None",
    "resource_properties": "",
}


def lease(*reservations: dict[str, Any], name: str = "mine", start: str = "2199-01-01 00:00") -> dict[str, Any]:
    return {
        "name": name,
        "start_date": start,
        "end_date": "2199-01-02 00:00",
        "before_end_date": None,
        "reservations": list(reservations) or [HOSTS],
        "events": [],
    }


async def add_hosts(http: httpx.AsyncClient, *names: str, **extra: str) -> list[dict[str, Any]]:
    answers = [await http.post("/os-hosts", json={"name": name, **extra}) for name in names]
    assert [answer.status_code for answer in answers] == [201] * len(names), [answer.text for answer in answers]
    return [answer.json()["host"] for answer in answers]


async def create(http: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    answer = await http.post("/leases", json=body)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()["lease"]
    return found


async def until_active(http: httpx.AsyncClient, lease_id: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        while (found := (await http.get(f"/leases/{lease_id}")).json()["lease"])["status"] != "ACTIVE":
            assert found["status"] in ("PENDING", "STARTING"), found
            await asyncio.sleep(0.05)
    return dict(found)


async def test_a_lease_lives(http: httpx.AsyncClient, url: str, gateway: Gateway) -> None:
    first, second = await add_hosts(http, "h1", "h2", gpu="True")
    assert first["id"].isdecimal()
    assert (first["hypervisor_hostname"], first["gpu"], first["reservable"]) == ("h1", "True", True)
    ends, later = (datetime.now(UTC) + timedelta(days=days) for days in (1, 2))
    wanted = lease(HOSTS | {"resource_properties": '["==", "$gpu", "True"]'}, start="now")
    made = await create(http, wanted | {"end_date": f"{ends:%Y-%m-%d %H:%M}"})
    assert UUID.fullmatch(made["id"])
    assert DATE.fullmatch(made["start_date"])
    assert made["end_date"] == f"{ends:%Y-%m-%dT%H:%M}:00.000000"
    assert (made["project_id"], made["user_id"], made["degraded"]) == (gateway.project, "http", False)
    assert [event["event_type"] for event in made["events"]] == ["start_lease", "before_end_lease", "end_lease"]
    (reservation,) = made["reservations"]
    assert reservation["resource_properties"] == '["==", "$gpu", "True"]'
    assert (reservation["lease_id"], reservation["min"], reservation["max"]) == (made["id"], 1, 1)
    ids = [made["id"], reservation["id"], *(event["id"] for event in made["events"])]
    assert len({*ids}) == 5
    assert all(UUID.fullmatch(each) for each in ids)
    active = await until_active(http, made["id"])
    assert active["reservations"][0]["status"] == "active"

    longer = await http.put(f"/leases/{made['id']}", json={"end_date": f"{later:%Y-%m-%d %H:%M}", "name": "ours"})
    assert (longer.status_code, longer.json()["lease"]["end_date"]) == (200, f"{later:%Y-%m-%dT%H:%M}:00.000000")
    allocations = (await http.get("/os-hosts/allocations")).json()["allocations"]
    held = {each["resource_id"]: each["reservations"] for each in allocations}
    assert (len(held[first["id"]]), held[second["id"]]) == (1, [])
    assert held[first["id"]][0]["lease_id"] == made["id"]
    assert held[first["id"]][0]["end_date"] == f"{later:%Y-%m-%dT%H:%M}:00.000000"
    one = (await http.get(f"/os-hosts/{first['id']}/allocation")).json()["allocation"]
    assert one["reservations"][0]["id"] == reservation["id"]
    busy = await http.delete(f"/os-hosts/{first['id']}")
    assert (busy.status_code, "is booked by" in busy.json()["error_message"]) == (409, True)

    failed = await http.post(f"{url}/v1/objects/pool:{gateway.pool}:host:h1/actions/fail")
    assert failed.status_code == 200, failed.text
    moved = (await http.get(f"/leases/{made['id']}.json")).json()["lease"]
    assert (moved["name"], moved["degraded"]) == ("ours", True)
    assert moved["reservations"][0]["resources_changed"] is True
    assert (await http.get(f"/os-hosts/{first['id']}")).json()["host"]["reservable"] is False

    gone = await http.delete(f"/leases/{made['id']}")
    assert (gone.status_code, gone.content) == (204, b"")
    assert (await http.get(f"/leases/{made['id']}")).status_code == 404
    assert (await http.get("/leases")).json() == {"leases": []}
    assert (await http.delete(f"/os-hosts/{first['id']}")).status_code == 204
    assert [each["id"] for each in (await http.get("/os-hosts")).json()["hosts"]] == [second["id"]]


async def test_instances_with_affinity_and_a_new_amount(http: httpx.AsyncClient) -> None:
    await add_hosts(http, "h1", "h2", vcpus="4")
    made = await create(http, lease(INSTANCES | {"affinity": "False"}))
    (reservation,) = made["reservations"]
    assert (reservation["amount"], reservation["vcpus"], reservation["affinity"]) == (2, 1, False)
    three = {"reservations": [{"id": reservation["id"], "amount": 3}]}
    too_many = await http.put(f"/leases/{made['id']}", json=three)
    assert (too_many.status_code, "each on another host" in too_many.json()["error_message"]) == (403, True)
    same = {"id": reservation["id"], "amount": 1, "vcpus": 1}
    fewer = await http.put(f"/leases/{made['id']}", json={"reservations": [same]})
    assert fewer.json()["lease"]["reservations"][0]["amount"] == 1, fewer.text
    another = await http.put(f"/leases/{made['id']}", json={"reservations": [same | {"vcpus": 2}]})
    assert (another.status_code, "reservations.vcpus" in another.json()["error_message"]) == (400, True)


async def test_a_request_that_is_sent_again_makes_one_lease(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add_hosts(http, "h1", "h2", "h3")
    now = time.time() // 60 * 60 + 59  # the last second of a minute
    monkeypatch.setattr(calls, "time", SimpleNamespace(time=lambda: now))
    first, second = await asyncio.gather(create(http, lease()), create(http, lease()))
    assert first["id"] == second["id"]
    now += 5  # the next minute: a client that waited for its answer in vain asks again
    assert (await create(http, lease()))["id"] == first["id"]
    other = await create(http, lease(name="another"))
    assert other["id"] != first["id"]
    assert (await http.delete(f"/leases/{first['id']}")).status_code == 204
    anew = await create(http, lease())
    assert anew["id"] != first["id"], "it was deleted: this is a new request"
    assert (await create(http, lease()))["id"] == anew["id"]
    now += 600
    assert (await create(http, lease()))["id"] != anew["id"]
    assert len((await http.get("/leases")).json()["leases"]) == 3


async def test_equal_leases_of_two_projects_are_two(gateway: Gateway, http: httpx.AsyncClient, ns: str) -> None:
    """Without tokens all callers have the same empty secret; the same body must still not be the same request."""
    await add_hosts(http, "h1", "h2")
    body = lease(name="equal in both")
    first = await create(http, body)
    gateway.project = f"{gateway.project}-b"
    second = await create(http, body)
    assert first["project_id"] != second["project_id"]
    for made in (first, second):
        path = f"project:{made['project_id']}:lease:{made['id']}"
        assert (await gateway.ratchet.read_object(path)).path == path, (
            "a lease has the name of its id, and no other has"
        )


BAD_LEASES: list[tuple[dict[str, Any], int, str]] = [
    ({"name": ""}, 400, "name"),
    ({"end_date": "tomorrow"}, 400, "end_date: "),
    ({"start_date": "2199-01-01T00:00"}, 400, "start_date: "),
    ({"start_date": "2199-13-01 00:00"}, 400, "bad start"),
    ({"end_date": "2198-01-01 00:00"}, 400, "ends before it starts"),
    ({"reservations": []}, 400, "say what to reserve"),
    ({"reservations": [{"resource_type": "virtual:floatingip", "amount": 1}]}, 400, "reservations.0"),
    ({"reservations": [HOSTS | {"min": "many"}]}, 400, "reservations.0.physical:host.min"),
    ({"reservations": [HOSTS | {"min": 2}]}, 400, "max 1 is less than min 2"),
    ({"reservations": [HOSTS | {"resource_properties": "gpu"}]}, 400, "resource_properties: "),
    ({"reservations": [HOSTS | {"resource_properties": '["xor", "$a", "1"]'}]}, 400, "resource_properties: "),
    ({"reservations": [HOSTS | {"resource_properties": '["' + "[" * 5000}]}, 400, "resource_properties: "),
    ({"reservations": [INSTANCES | {"affinity": "maybe"}]}, 400, "affinity"),
    ({"events": [{"event_type": "notification", "event_date": "2199-01-01 00:00"}]}, 400, "events"),
    ({"colour": "red"}, 400, "colour"),
    ({"reservations": [HOSTS | {"min": 5, "max": 5}]}, 403, "not enough hosts"),
]


async def test_bad_input_names_the_field(http: httpx.AsyncClient) -> None:
    await add_hosts(http, "h1")
    for change, code, words in BAD_LEASES:
        answer = await http.post("/leases", json=lease() | change)
        error = answer.json()
        assert (answer.status_code, error["error_code"], error["error_name"]) == (code, code, code), (change, error)
        assert words in error["error_message"], (change, error)
    made = await create(http, lease())
    cases = [
        (await http.post("/leases", content=b"{"), 400, "body"),
        (await http.put(f"/leases/{made['id']}", json={"start_date": "2001-01-01 00:00"}), 400, "in the past"),
        (await http.put(f"/leases/{made['id']}", json={"reservations": [{"id": "x", "min": 1}]}), 400, "reservations"),
        (await http.get("/leases/none"), 404, "there is no lease none"),
        (await http.get("/os-hosts/0"), 404, "there is no host 0"),
        (await http.get("/os-hosts/h1"), 404, "there is no host h1"),
        (await http.post("/os-hosts", json={"gpu": "1"}), 400, "name"),
        (await http.post("/os-hosts", json={"name": "../x"}), 400, "bad name"),
        (await http.post("/os-hosts", json={"name": "h9", "vcpus": "many"}), 400, "vcpus"),
        (await http.post("/os-hosts", json={"name": "h1", "gpu": "1"}), 409, "h1"),
        (await http.get("/floatingips"), 404, "Not Found"),
        (await http.delete("/leases"), 405, "Method Not Allowed"),
    ]
    for answer, code, words in cases:
        assert (answer.status_code, answer.json()["error_code"]) == (code, code), answer.text
        assert words in answer.json()["error_message"], answer.text


async def test_every_answer_has_blazars_headers(http: httpx.AsyncClient, url: str) -> None:
    for answer in (await http.get("/leases"), await http.get("/floatingips"), await http.get("/leases.json")):
        assert answer.headers["OpenStack-API-Version"] == "reservation 1.0"
        assert answer.headers["Vary"] == "OpenStack-API-Version"
        assert UUID.search(answer.headers["x-openstack-request-id"])
    for version, code in [
        ("reservation 1.0", 200),
        ("reservation latest", 200),
        ("compute 2.1", 200),
        ("reservation 1.7", 406),
        ("reservation one", 400),
        ("1.0", 400),
    ]:
        answer = await http.get("/leases", headers={"OpenStack-API-Version": version})
        assert answer.status_code == code, (version, answer.text)
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        found = await client.get(f"{url}/reservation/")
        assert (found.status_code, found.json()["versions"][0]["id"]) == (300, "v1.0")


async def test_the_tokens_of_the_gateway_open_every_way_in(gateway: Gateway, tmp_path: Path, ns: str) -> None:
    token, other = generate_token(), generate_token()
    file = tmp_path / "tokens.yaml"
    lines = [
        f"- {{name: anna, hash: '{hash_token(token)}', tenants: ['project:{ns}-a', 'project:{ns}-b']}}",
        f"- {{name: operator, hash: '{hash_token(other)}'}}",
    ]
    file.write_text("tokens:\n" + "\n".join(lines))
    file.chmod(0o600)
    gateway.tokens = CallerTokens(TokenFile(file))

    def login(password: str, project: str) -> dict[str, Any]:
        user = {"name": "whoever", "password": password, "domain": {"name": "Default"}}
        scope = {"project": {"name": project, "domain": {"name": "Default"}}} if project else None
        return {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope}}

    async with (
        serve_app(build_gateway_app(gateway), "127.0.0.1", 0) as url,
        httpx.AsyncClient(base_url=url, timeout=PATIENCE) as http,
    ):
        host = {"name": "h1"}
        opened = await http.post("/reservation/v1/os-hosts", json=host, headers={"X-Auth-Token": other})
        assert opened.status_code == 201, opened.text
        entered = await http.post("/identity/v3/auth/tokens", json=login(token, f"{ns}-b"))
        assert entered.status_code == 201, entered.text
        (service,) = entered.json()["token"]["catalog"]
        assert service["endpoints"][0]["url"] == f"{url}/reservation/v1"
        assert entered.json()["token"]["user"]["name"] == "anna", "the token says who asks, not the name in the login"
        scoped = entered.headers["X-Subject-Token"]
        basic = base64.b64encode(f"whoever:{token}".encode()).decode()
        ways = {
            "scoped": ({"X-Auth-Token": scoped}, f"{ns}-b"),
            "token": ({"X-Auth-Token": token}, f"{ns}-a"),
            "basic": ({"Authorization": f"Basic {basic}"}, f"{ns}-a"),
            "bearer": ({"Authorization": f"Bearer {token}"}, f"{ns}-a"),
        }
        made = (await http.post("/reservation/v1/leases", json=lease(), headers=ways["scoped"][0])).json()["lease"]
        assert (made["project_id"], made["user_id"]) == (f"{ns}-b", "anna")
        for headers, project in ways.values():
            found = await http.get("/reservation/v1/leases", headers=headers)
            assert [each["project_id"] for each in found.json()["leases"]] == [project] * (project == f"{ns}-b")
            one = await http.get(f"/reservation/v1/leases/{made['id']}", headers=headers)
            assert one.status_code == (200 if project == f"{ns}-b" else 404), "leases of other projects are not seen"
        wrong = [
            await http.get("/reservation/v1/leases"),
            await http.get("/reservation/v1/leases", headers={"X-Auth-Token": "notused"}),
            await http.get("/reservation/v1/leases", headers={"X-Auth-Token": f"{token}~{ns}-c"}),
            await http.get("/reservation/v1/leases", headers={"Authorization": "Basic ??"}),
            await http.post("/identity/v3/auth/tokens", json=login("guess", f"{ns}-b")),
            await http.post("/identity/v3/auth/tokens", json=login(token, f"{ns}-c")),
            await http.post("/identity/v3/auth/tokens", json=login(token, "a:b")),
        ]
        assert [answer.status_code for answer in wrong] == [401] * len(wrong)
        assert "error" in wrong[-1].json()
        assert wrong[0].json()["error_code"] == 401
        assert (await http.post("/identity/v3/auth/tokens", json={"auth": {}})).status_code == 400


async def test_a_worker_answers_where_the_gateway_has_no_store(
    stack: WorkerService, gateway: Gateway, http: httpx.AsyncClient
) -> None:
    await add_hosts(http, "h1")
    made = await create(http, lease())
    alone = Gateway(GatewayClient(stack.client), pool=gateway.pool, project=gateway.project)
    async with (
        serve_app(build_gateway_app(alone), "127.0.0.1", 0) as url,
        httpx.AsyncClient(base_url=f"{url}/reservation/v1", timeout=PATIENCE) as far,
    ):
        assert (await far.get("/leases")).json()["leases"] == [made]
        assert (await far.get("/os-hosts/allocations")).json() == (await http.get("/os-hosts/allocations")).json()


async def test_a_lease_that_began_meanwhile_is_not_made_a_second_time(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add_hosts(http, "h1", "h2")
    now = time.time() // 60 * 60 + 59
    monkeypatch.setattr(calls, "time", SimpleNamespace(time=lambda: now))
    body = {**lease(start="now"), "end_date": f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%d %H:%M}"}
    first = await create(http, body)
    await until_active(http, first["id"])
    now += 5
    assert (await create(http, body))["id"] == first["id"], "the newest action on the lease is another one, its start"
