"""Properties of hosts in Blazar's API: filters over them, and private ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from activities.access import Authorizer
from domain.access import AccessPolicy
from gateway.context import Gateway
from gateway.tokens import CallerTokens, TokenFile, generate_token, hash_token
from tests.test_dialects.test_blazar import HOSTS, add_hosts, create, lease

pytestmark = pytest.mark.stores("sqlite", "postgres")


async def test_properties_of_hosts(http: httpx.AsyncClient) -> None:
    (host,) = await add_hosts(http, "h1", gpu="a100", rack="7")
    await add_hosts(http, "h2", gpu="h100")
    changed = await http.put(f"/os-hosts/{host['id']}", json={"rack": "8", "ssd": "True"})
    assert (changed.status_code, changed.json()["host"]["rack"], changed.json()["host"]["ssd"]) == (200, "8", "True")
    found = (await http.get("/os-hosts/properties", params={"detail": "True", "all": "True"})).json()
    assert found["resource_properties"] == [
        {"property": "gpu", "private": False, "values": ["a100", "h100"]},
        {"property": "rack", "private": False, "values": ["8"]},
        {"property": "ssd", "private": False, "values": ["True"]},
    ]
    either = ["or", ["==", "$gpu", "x"], ["and", [">=", "$rack", "8"], ["<", "$rack", "10"]]]
    both = {"hypervisor_properties": '["==", "$hypervisor_hostname", "h1"]', "resource_properties": json.dumps(either)}
    made = await create(http, lease(HOSTS | both))
    allocation = (await http.get(f"/os-hosts/{host['id']}/allocation")).json()["allocation"]
    assert [each["lease_id"] for each in allocation["reservations"]] == [made["id"]]
    shown = await http.patch("/os-hosts/properties/gpu", json={"private": False})
    assert (shown.status_code, shown.json()) == (200, {"resource_property": {"property": "gpu", "private": False}})
    for name, wish, code in (
        ("nothing", {"private": True}, 404),
        ("nothing", {"private": False}, 404),
        ("gpu", {}, 400),
    ):
        refused = await http.patch(f"/os-hosts/properties/{name}", json=wish)
        assert refused.status_code == code, refused.text


POLICY = """
roles:
  operator: {kinds: ["*"], actions: ["*"]}
  tenant: {kinds: [lease], actions: ["*"]}
  looker: {kinds: [host], actions: [fail]}
users: {anna: [operator], ben: [tenant, looker]}
"""


async def test_a_private_property_is_seen_by_those_who_may_update_hosts(
    http: httpx.AsyncClient, url: str, gateway: Gateway, tmp_path: Path
) -> None:
    secrets = {name: generate_token() for name in ("anna", "ben")}
    file = tmp_path / "tokens.yaml"
    file.write_text(
        json.dumps({"tokens": [{"name": name, "hash": hash_token(each)} for name, each in secrets.items()]})
    )
    file.chmod(0o600)
    gateway.tokens = CallerTokens(TokenFile(file))
    policy = AccessPolicy.model_validate(yaml.safe_load(POLICY))
    gateway.ratchet.authorizer = Authorizer(lambda: policy)
    anna, ben = ({"X-Auth-Token": secrets[name]} for name in ("anna", "ben"))

    async def list_for(headers: dict[str, str], **params: str) -> Any:
        answer = await http.get("/os-hosts/properties", params=params, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()["resource_properties"]

    for host in ("h1", "h2"):
        made = await http.post("/os-hosts", json={"name": host, "gpu": "a100", "rack": "7"}, headers=anna)
        assert made.status_code == 201, made.text
    hidden = await http.patch("/os-hosts/properties/rack", json={"private": True}, headers=anna)
    assert (hidden.status_code, hidden.json()) == (200, {"resource_property": {"property": "rack", "private": True}})
    shown = {"property": "gpu", "private": False, "values": ["a100"]}
    assert await list_for(anna, detail="True", all="True") == [
        shown,
        {"property": "rack", "private": True, "values": ["7"]},
    ]
    assert await list_for(anna, all="True") == [{"property": "gpu"}, {"property": "rack"}]
    assert await list_for(anna, detail="True") == [shown], "all must be asked for"
    assert await list_for(ben, detail="True", all="True") == [shown]
    hosts = {
        name: (await http.get("/os-hosts", headers=who)).json()["hosts"] for name, who in (("anna", anna), ("ben", ben))
    }
    assert ["rack" in host for host in hosts["anna"]] == [True, True]
    assert [(host["gpu"], "rack" in host) for host in hosts["ben"]] == [("a100", False)] * 2
    one = (await http.get(f"/os-hosts/{hosts['ben'][0]['id']}", headers=ben)).json()["host"]
    assert "rack" not in one
    # As in Blazar, a private property can be asked for by those who know it.
    wanted = lease(HOSTS | {"resource_properties": '["==", "$rack", "7"]'})
    made = await http.post("/leases", json=wanted, headers=ben)
    assert made.status_code == 201, "also by somebody whose role is about leases, not about their parts"
    found = made.json()["lease"]
    two = {"reservations": [{"id": found["reservations"][0]["id"], "max": 2}]}
    assert (await http.put(f"/leases/{found['id']}", json=two, headers=ben)).status_code == 200
    later = await http.post("/os-hosts", json={"name": "h3", "rack": "9"}, headers=anna)
    assert later.status_code == 201, later.text
    assert await list_for(ben, all="True") == [{"property": "gpu"}]
    public = await http.patch("/os-hosts/properties/rack", json={"private": False}, headers=anna)
    assert public.status_code == 200, public.text
    assert await list_for(ben) == [{"property": "gpu"}, {"property": "rack"}]
