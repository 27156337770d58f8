"""Tumblebug's REST API: requests as its clients send them, in both vocabularies, through an MCI's life."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from domain.errors import Refused
from gateway.app import build_gateway_app
from gateway.context import Gateway
from gateway.dialects import tumblebug_json as shapes
from gateway.dialects.prices import read_prices
from gateway.dialects.regions import REGIONS
from gateway.dialects.tumblebug_vocabulary import NEW_OF_OLD, OLD_OF_NEW, rename_keys
from gateway.reads import GatewayClient
from gateway.server import serve_app
from gateway.tokens import CallerTokens, TokenFile, generate_token, hash_token
from tests.patience import PATIENCE
from tests.user import User
from workers.service import WorkerService

PAGE = "http://127.0.0.1:1324"  # where cb-mapui is served from
SPEC = "aws+ap-northeast-2+small"

# What cb-mapui, tb-mcp.py and the documentation's recipes send, recorded in the old words (2025) and in the new (2026).
RECORDED: dict[str, dict[str, Any]] = {
    "old": {
        "mci": "mci",
        "create": ("POST", "mciDynamic"),
        "body": {
            "name": "web",
            "description": "Made in CB-TB",
            "installMonAgent": "no",
            "label": {"vm": "kept as it is"},
            "policyOnPartialFailure": "continue",
            "systemLabel": "",
            "postCommand": {"userName": "cb-user", "command": []},
            "subGroups": [
                {
                    "name": "g1",
                    "subGroupSize": "2",
                    "specId": SPEC,
                    "imageId": "ubuntu-24.04",
                    "rootDiskSize": "default",
                },
                {"subGroupSize": "1", "specId": SPEC, "imageId": "ubuntu-24.04", "connectionName": "gcp-europe-west3"},
            ],
        },
        "add": ("subgroup/g1", {"numVMsToAdd": "1"}),
        "vm": "vm",
        "new": "newVmList",
        "groups": "subgroup",
    },
    "new": {
        "mci": "infra",
        "create": ("POST", "infraDynamic"),
        "body": {
            "name": "web",
            "label": {"vm": "kept as it is"},
            "nodeGroups": [
                {"name": "g1", "nodeGroupSize": "2", "specId": SPEC, "imageId": "ubuntu-24.04"},
                {"nodeGroupSize": "1", "specId": SPEC, "imageId": "ubuntu-24.04", "connectionName": "gcp-europe-west3"},
            ],
        },
        "add": ("nodegroup/g1", {"numNodesToAdd": "1"}),
        "vm": "node",
        "new": "newNodeList",
        "groups": "nodegroup",
    },
}


@pytest.fixture
def gateway(stack: WorkerService) -> Gateway:
    return Gateway(GatewayClient(stack.client, stack.store_reads()), origins=frozenset({PAGE}), prices={SPEC: 0.005})


@pytest.fixture
async def http(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        serve_app(build_gateway_app(gateway), "127.0.0.1", 0) as url,
        httpx.AsyncClient(base_url=f"{url}/tumblebug", timeout=PATIENCE) as client,
    ):
        yield client


async def ask(http: httpx.AsyncClient, method: str, route: str, body: Any = None, **headers: str) -> Any:
    answer = await http.request(method, route, json=body, headers=headers)
    assert answer.status_code == 200, (route, answer.text)
    assert answer.headers["x-request-id"]
    return answer.json()


async def until_prepared(user: User) -> None:
    """Until the MCI of a request that was just sent exists, and holds."""
    async with asyncio.timeout(PATIENCE):
        while not [view async for view in user.asking.iterate_objects("mci", user.mci())]:
            await asyncio.sleep(0.05)
    await user.until_status(user.mci(), "Prepared")


@pytest.mark.parametrize("words", RECORDED.values(), ids=RECORDED)
async def test_an_mci_lives_in_both_vocabularies(http: httpx.AsyncClient, user: User, words: dict[str, Any]) -> None:
    ns, mci, vm = f"/ns/{user.ns}", f"/ns/{user.ns}/{words['mci']}/web", words["vm"]
    control = f"/ns/{user.ns}/control/{words['mci']}/web"
    method, route = words["create"]
    reviewed = await ask(http, method, f"{ns}/{route}Review", words["body"])
    assert (reviewed["creationViable"], reviewed["overallStatus"]) == (True, "Warning"), "one price is not known"
    assert reviewed["estimatedCost"] == "$0.0100/hour"
    created = await ask(http, method, f"{ns}/{route}", words["body"])
    assert (created["status"], created["resourceType"]) == ("Running:3 (R:3/3)", words["mci"])
    assert created["label"] == {"vm": "kept as it is"}
    assert await ask(http, method, f"{ns}/{route}", words["body"]) == created, "asked again: the same MCI"
    first, second, third = created[vm]
    assert [first["id"], second["id"], third["id"]] == ["g1-1", "g1-2", "g2-1"]
    assert (first["location"]["latitude"], first["connectionConfig"]["providerName"]) == (37.57, "aws")
    assert (third["connectionName"], third["location"]["display"]) == ("gcp-europe-west3", "Frankfurt")
    listed = await ask(http, "GET", f"{ns}/{words['mci']}")
    assert listed[words["mci"]][0][vm][0]["location"]["longitude"] == 126.98
    assert await ask(http, "GET", f"{ns}/{words['mci']}?option=id") == {"output": ["web"]}
    assert (await ask(http, "GET", f"{mci}?option=status"))["status"][vm][0]["status"] == "Running"
    assert await ask(http, "GET", f"{mci}?option=id") == {"output": ["g1-1", "g1-2", "g2-1"]}
    assert await ask(http, "GET", f"{mci}/{words['groups']}") == {"output": ["g1", "g2"]}
    assert "suspend succeeded" in (await ask(http, "GET", f"{control}?action=suspend"))["message"]
    assert "resume succeeded" in (await ask(http, "GET", f"{control}/{vm}/g1-1?action=resume"))["message"]
    assert (await ask(http, "GET", f"{mci}/{vm}/g1-1?option=status"))["status"] == "Running"
    assert (await ask(http, "GET", f"{mci}/{vm}/g1-1"))["publicIP"]
    group, body = words["add"]
    grown = await ask(http, "POST", f"{mci}/{group}", body)
    assert (grown[words["new"]], grown["statusCount"]["countTotal"]) == (["g1-3"], 4)
    access = str(await ask(http, "GET", f"{mci}?option=accessinfo"))
    assert ("nodeId" in access) == (words["mci"] == "infra")
    refused = await http.delete(mci)
    assert (refused.status_code, "option=terminate" in refused.json()["message"]) == (409, True)
    gone = await ask(http, "DELETE", f"{mci}?option=terminate")
    assert "[Done] VM: g1-3" in gone["output"]
    assert (await http.get(mci)).status_code == 404


async def test_what_is_sent_again_within_a_minute_happens_once(
    gateway: Gateway, http: httpx.AsyncClient, user: User
) -> None:
    gateway.same_request_seconds = long = 10 * PATIENCE  # than the test takes
    ns = f"/ns/{user.ns}"
    await ask(http, "POST", f"{ns}/mciDynamic", RECORDED["old"]["body"])
    calls_of_action: dict[str, tuple[Any, ...]] = {
        "scale-out": ("POST", f"{ns}/mci/web/subgroup/g1", {"numVMsToAdd": "1"}),
        "reboot": ("GET", f"{ns}/control/mci/web?action=reboot"),
    }

    async def count_runs(action: str) -> int:
        return len({line.run for line in await user.history(user.mci()) if line.action == action})

    for action, asked in calls_of_action.items():
        first = await ask(http, *asked)
        for _ in range(2):
            assert await ask(http, *asked) == first, "an answer that got lost"
        assert await count_runs(action) == 1
        await ask(http, *asked, **{"X-Request-Id": f"another-{action}"})
        assert await count_runs(action) == 2
    gateway.same_request_seconds = -1
    await ask(http, *calls_of_action["reboot"])
    assert await count_runs("reboot") == 3, "a minute later it is another request"
    gateway.same_request_seconds = long
    remove = ("DELETE", f"{ns}/mci/web?option=terminate")
    assert "[Done] VM: g1-4" in (await ask(http, *remove))["output"]
    assert (await ask(http, *remove))["output"] == ["[Done] MCI: web"], "the VMs are gone"
    gateway.same_request_seconds = -1
    assert (await http.request(*remove)).status_code == 404


async def test_an_mci_that_holds_is_continued(http: httpx.AsyncClient, user: User) -> None:
    body = RECORDED["old"]["body"]
    waiting = asyncio.create_task(http.post(f"/ns/{user.ns}/mciDynamic?option=hold", json=body))
    await until_prepared(user)
    told = await ask(http, "GET", f"/ns/{user.ns}/control/mci/web?action=continue")
    assert told == {"message": "continue was sent to web"}
    assert (await waiting).json()["status"] == "Running:3 (R:3/3)"


async def test_who_waits_for_an_action_that_was_cancelled_is_told_so(http: httpx.AsyncClient, user: User) -> None:
    body = RECORDED["old"]["body"]
    waiting = asyncio.create_task(http.post(f"/ns/{user.ns}/mciDynamic?option=hold", json=body))
    await until_prepared(user)
    await user.asking.cancel_action(user.mci())
    answer = await waiting
    assert (answer.status_code, "cancelled" in answer.json()["message"]) == (409, True), answer.text


async def test_a_request_id_names_one_request(http: httpx.AsyncClient, user: User) -> None:
    body, route = RECORDED["old"]["body"], f"/ns/{user.ns}/mciDynamic"
    key = {"X-Request-Id": f"id-{user.ns}"}
    begun = asyncio.create_task(http.post(f"{route}?option=hold", json=body, headers=key))
    await until_prepared(user)
    again = await http.post(route, json=body, headers=key)
    assert (again.status_code, "in use" in again.json()["message"]) == (409, True)
    assert (await ask(http, "GET", f"/request/id-{user.ns}"))["status"] == "Handling"
    await ask(http, "GET", f"/ns/{user.ns}/control/mci/web?action=withdraw")
    assert (await begun).status_code == 404, "nothing is left of an MCI that was withdrawn"
    ended = await ask(http, "GET", f"/request/id-{user.ns}")
    assert (ended["status"], bool(ended["endTime"])) == ("Error", True)


async def test_requests_are_listed_and_every_answer_has_its_id(http: httpx.AsyncClient) -> None:
    given = {"X-Request-Id": "mine"}
    missing = await http.get("/ns/nothing/mci/web", headers=given)
    assert (missing.status_code, missing.headers["x-request-id"]) == (404, "mine"), "an error has it, too"
    assert (await http.get("/readyz")).headers["x-request-id"]
    assert (await http.get("/nothing")).headers["x-request-id"]
    for _ in range(3):  # what was listed must not be listed again inside the next list
        listed = await ask(http, "GET", "/requests")
    found = [entry for entry in listed["requests"] if entry["requestInfo"]["url"].endswith("/ns/nothing/mci/web")]
    assert [entry["status"] for entry in found] == ["Error"]
    assert "no such" in (await ask(http, "GET", "/request/mine"))["errorResponse"]


async def test_what_is_wrong_is_said_and_what_is_not_built_has_a_name(http: httpx.AsyncClient, user: User) -> None:
    ns, good = f"/ns/{user.ns}", RECORDED["old"]["body"]

    async def refused(method: str, route: str, body: Any = None, **headers: str) -> tuple[int, str]:
        answer = await http.request(method, route, json=body, headers=headers)
        return answer.status_code, answer.json()["message"]

    group = good["subGroups"][0]
    wrong = [
        ({**good, "name": "1st"}, "name"),
        ({**good, "subGroups": []}, "subGroups"),
        ({**good, "subGroups": [{**group, "subGroupSize": "two"}]}, "subGroups[0].subGroupSize"),
        ({**good, "subGroups": [{**group, "specId": "small"}]}, "subGroups[0].connectionName"),
        ({**good, "subGroups": [{**group, "imageId": ""}]}, "subGroups[0].imageId"),
        ({**good, "policyOnPartialFailure": "pray"}, "policyOnPartialFailure"),
        ({**good, "postCommand": {"command": ["reboot"]}}, "postCommand"),
    ]
    for body, field in wrong:
        code, told = await refused("POST", f"{ns}/mciDynamic", body)
        assert (code, field in told) == (400, True), told
    for method, route in [
        ("POST", f"{ns}/mci"),
        ("POST", f"{ns}/cmd/mci/web"),
        ("GET", f"{ns}/k8sCluster"),
        ("PUT", ns),
    ]:
        code, told = await refused(method, route, {})
        assert (code, "not built" in told) == (501, True), route
    assert (await refused("GET", f"{ns}/control/mci/web?action=fly"))[0] == 400
    assert (await refused("GET", f"{ns}/control/mci/web?action=abort"))[0] == 501
    assert (await refused("GET", f"{ns}/control/mci/web?action=suspend", **{"Sec-Purpose": "prefetch"}))[0] == 403
    assert (await refused("GET", f"{ns}/control/mci/web?action=suspend"))[0] == 404
    assert (await refused("POST", "/ns", ["x"]))[0] == 400
    assert await ask(http, "GET", f"{ns}/resources/vNet") == {"vNet": []}
    assert "default" in (await ask(http, "GET", "/ns?option=id"))["output"]
    assert (await ask(http, "POST", "/ns", {"name": "n1", "description": "d"}))["id"] == "n1"
    assert (await http.get("/readyz")).json()["message"]


async def test_a_page_that_is_named_may_ask_and_another_may_not(http: httpx.AsyncClient) -> None:
    asked = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}
    before = await http.options("/ns", headers=asked)
    assert (before.status_code, before.headers["access-control-allow-origin"]) == (204, PAGE)
    answer = await http.get("/ns", headers={"Origin": PAGE})
    assert answer.headers["access-control-expose-headers"] == "X-Request-Id"
    assert (await http.get("/ns", headers={"Origin": "http://evil.example"})).status_code == 403
    large = await http.post("/ns", content=b" " * 300_000, headers={"Origin": PAGE})
    assert large.status_code == 413


async def test_a_password_is_a_token_and_a_tenant_sees_its_own(
    stack: WorkerService, tmp_path: Path, user: User
) -> None:
    token, other, file = generate_token(), generate_token(), tmp_path / "tokens.yaml"
    lines = [f"{{name: map, hash: '{hash_token(token)}', tenants: ['ns:{user.ns}']}}"]
    lines.append(f"{{name: other, hash: '{hash_token(other)}', tenants: ['ns:other']}}")
    file.write_text(f"tokens: [{', '.join(lines)}]\n")
    file.chmod(0o600)
    gateway = Gateway(GatewayClient(stack.client, stack.store_reads()), CallerTokens(TokenFile(file)))
    async with (
        serve_app(build_gateway_app(gateway), "127.0.0.1", 0) as url,
        httpx.AsyncClient(base_url=f"{url}/tumblebug", auth=("default", token), timeout=PATIENCE) as http,
    ):
        assert await ask(http, "GET", f"/ns/{user.ns}/mci", **{"X-Request-Id": "first"}) == {"mci": []}
        assert (await ask(http, "GET", "/request/first"))["responseData"] == {"mci": []}
        stranger = await http.get("/request/first", auth=("default", other))
        assert (stranger.status_code, stranger.json()["message"]) == (404, "there was no request first")
        assert (await http.get("/requests", auth=("default", other))).json() == {"requests": []}
        assert (await http.get("/ns/another/mci")).status_code == 401
        assert (await http.get("/ns", auth=("default", "wrong"))).status_code == 401
        assert (await http.get("/readyz", auth=("x", "y"))).status_code == 200


def test_the_words_are_one_table() -> None:
    """Every word of our own answers that has another name today is in the table, and a translation can be undone."""
    assert len(OLD_OF_NEW) == len(NEW_OF_OLD)
    source = Path(shapes.__file__).read_text()
    old_words = {word for word in re.findall(r'"(\w+)":', source) if re.search(r"mci|[vV]m(?!\w*mem)|subGroup", word)}
    assert old_words <= set(NEW_OF_OLD), old_words - set(NEW_OF_OLD)
    data = {"vm": [{"subGroupId": "g"}], "label": {"vm": "x"}}
    assert rename_keys(rename_keys(data, NEW_OF_OLD), OLD_OF_NEW) == data


def test_regions_have_places_on_the_earth_and_prices_are_checked(tmp_path: Path) -> None:
    assert all(-90 <= region.latitude <= 90 and -180 <= region.longitude <= 180 for region in REGIONS)
    assert len({region.connection for region in REGIONS}) == len(REGIONS)
    file = tmp_path / "prices.yaml"
    file.write_text("prices: {aws+eu-central-1+small: -1}")
    with pytest.raises(Refused, match="price file"):
        read_prices(file)


# The fields that clients read, of each shape.
SHAPES = {
    "mci": "id uid name status statusCount targetStatus targetAction installMonAgent label systemLabel systemMessage "
    "description placementAlgo vm newVmList resourceType",
    "statusCount": "countTotal countCreating countRunning countFailed countSuspended countRebooting countTerminated "
    "countSuspending countResuming countTerminating countUndefined",
    "vm": "id uid name subGroupId status targetStatus targetAction systemMessage createdTime region publicIP privateIP "
    "sshPort connectionName connectionConfig specId imageId cspResourceName cspResourceId vNetId subnetId "
    "securityGroupIds sshKeyId label location commandStatus",
    "connection": "configName providerName driverName credentialName credentialHolder verified regionRepresentative "
    "regionZoneInfoName regionZoneInfo regionDetail",
}


async def test_every_field_that_clients_read_is_there(http: httpx.AsyncClient, user: User) -> None:
    ns, body = f"/ns/{user.ns}", RECORDED["old"]["body"]
    mci = await ask(http, "POST", f"{ns}/mciDynamic", body)
    connections = (await ask(http, "GET", "/connConfig?filterVerified=true"))["connectionconfig"]
    one = await ask(http, "GET", f"/connConfig/{connections[0]['configName']}")
    found = {
        "mci": mci,
        "statusCount": mci["statusCount"],
        "vm": mci["vm"][0],
        "connection": one,
    }
    missing = {shape: set(SHAPES[shape].split()) - set(found[shape]) for shape in SHAPES}
    assert not any(missing.values()), missing
    assert {"regionId", "regionName", "description", "zones", "location"} <= set(one["regionDetail"])
    (simple,) = (await ask(http, "GET", f"{ns}/mci?option=simple"))["mci"]
    assert not simple.get("vm"), "without its VMs"
    (status,) = (await ask(http, "GET", f"{ns}/mci?option=status"))["mci"]
    assert (status["status"], status["vm"][0]["status"]) == (mci["status"], "Running")
    ids = await ask(http, "GET", f"{ns}/mci/web/vm/g1-1?option=idsInDetail")
    assert ids == {"idInTb": "g1-1", "idInSp": "g1-1", "idInCsp": mci["vm"][0]["cspResourceId"], "nameInCsp": "g1-1"}
    control = f"{ns}/control/mci/web"
    for action in ("reboot", "refine", "terminate"):
        assert (await ask(http, "GET", f"{control}?action={action}"))["message"]
    assert (await ask(http, "GET", f"{ns}/mci/web?option=status"))["status"]["status"].startswith("Terminated")
