"""Bodies and paths that no client sends, to every API of the gateway: refused with a text, never a server error."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.patience import PATIENCE

DEEP = b"[" * 100_000
DEEP_OBJECT = b'{"a":' * 40_000
LONG = "9" * 5_000  # digits that Python does not turn into a number
LONE = "\ud800"  # half of a character: no text has it
GROUP = {"specId": "aws+eu-central-1+small", "imageId": "ubuntu-24.04"}
MCI = {"name": "web", "subGroups": [GROUP]}
CALLS = ("machines/create", "machines/get", "cloudspaces/create", "disks/create", "disks/list")


def mci(**more: Any) -> dict[str, Any]:
    return {**MCI, **more}


BODIES: list[Any] = [
    *(b"{", b"null", b"[]", b'"x"', b"1", b"NaN", b"\xff", b'{"name": "\xff"}', DEEP, DEEP_OBJECT),
    mci(name=LONE),
    mci(name="a" * 10_000),
    mci(description=LONE),
    mci(description={"a": 1}),
    mci(label=LONE),
    mci(label=[1]),
    mci(label={"a": LONE}),
    mci(postCommand="reboot"),
    mci(postCommand=[1]),
    mci(policyOnPartialFailure=[]),
    mci(policyOnPartialFailure={"a": 1}),
    mci(installMonAgent={}),
    mci(subGroups=[{**GROUP, "subGroupSize": LONG}]),
    mci(subGroups=[{**GROUP, "subGroupSize": "\u0663"}]),
    mci(subGroups=[{**GROUP, "subGroupSize": {"a": 1}}]),
    mci(subGroups=[{**GROUP, "connectionName": LONE}]),
    mci(subGroups=[{**GROUP, "connectionName": ["x"]}]),
    mci(subGroups=[{**GROUP, "label": "x"}]),
    mci(subGroups=[{**GROUP, "imageId": LONE}]),
    mci(subGroups=[{**GROUP, "rootDiskSize": [1]}]),
    {"accountId": LONG, "cloudspaceId": LONG, "machineId": LONG, "name": "x", "size": 1},
    {"accountId": -1, "cloudspaceId": 10**18, "machineId": 10**40, "name": "x", "size": 1},
    {"accountId": 1.5, "cloudspaceId": True, "machineId": None, "name": ["x"], "size": {}},
]


@pytest.mark.parametrize("route", ["ns/{ns}/mciDynamic", "ns/{ns}/mciDynamicReview", "ns/{ns}/infraDynamic", "ns"])
async def test_tumblebug_refuses_hostile_bodies(url: str, ns: str, route: str) -> None:
    await check_refusals(f"{url}/tumblebug/{route.format(ns=ns)}", "message")


@pytest.mark.parametrize("call", CALLS)
async def test_openvcloud_refuses_hostile_bodies(url: str, call: str) -> None:
    await check_refusals(f"{url}/restmachine/cloudapi/{call}", "")


@pytest.mark.parametrize("route", ["/reservation/v1/leases", "/reservation/v1/os-hosts", "/identity/v3/auth/tokens"])
async def test_openstack_refuses_hostile_bodies(url: str, route: str) -> None:
    await check_refusals(f"{url}{route}", "error_message" if "reservation" in route else "error")


async def test_the_native_api_refuses_hostile_bodies(url: str, ns: str) -> None:
    await check_refusals(f"{url}/v1/objects/ns:{ns}:mci:web/actions/create", "detail")


@pytest.mark.parametrize("password", ["geheim-\u20ac", "two\nlines", "a~b"])
async def test_without_tokens_any_text_is_a_password(url: str, ns: str, password: str) -> None:
    identity = {"methods": ["password"], "password": {"user": {"name": "anna", "password": password}}}
    body = {"auth": {"identity": identity, "scope": {"project": {"name": ns}}}}
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as http:
        entered = await http.post("/identity/v3/auth/tokens", json=body)
        assert entered.status_code == 201, entered.text
        headers = {"X-Auth-Token": entered.headers["X-Subject-Token"]}
        assert (await http.get("/reservation/v1/leases", headers=headers)).json() == {"leases": []}


@pytest.mark.parametrize(
    ("method", "route", "field"),
    [
        ("GET", "/tumblebug/ns/a%0Ab", "message"),
        ("GET", "/tumblebug/ns/a%5Db", "message"),
        ("GET", "/tumblebug/ns/default:mci:web", "message"),
        ("GET", "/tumblebug/ns/default/mci/web:vm:g1-1", "message"),
        ("POST", "/restmachine/cloudapi/a%0Ab", ""),
        ("GET", "/reservation/v1/a%0Ab", "error_message"),
        ("GET", "/identity/v3/a%0Ab", "error"),
    ],
)
async def test_a_path_with_other_characters_is_refused_in_the_style_of_its_api(
    url: str, method: str, route: str, field: str
) -> None:
    async with httpx.AsyncClient(timeout=PATIENCE) as http:
        answer = await http.request(method, f"{url}{route}")
    assert answer.status_code in (400, 404), answer.text
    assert answer.json()[field] if field else isinstance(answer.json(), str), answer.text


async def check_refusals(route: str, field: str) -> None:
    async with httpx.AsyncClient(timeout=PATIENCE) as http:
        for body in BODIES:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            answer = await http.post(route, content=content, headers={"Content-Type": "application/json"})
            assert answer.status_code < 500, (route, content[:120], answer.status_code, answer.text[:200])
            if answer.status_code >= 400:
                told = answer.json()
                assert told[field] if field else isinstance(told, str), (route, content[:120], told)
