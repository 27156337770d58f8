"""A CRM that reaches a gateway only: it works, and with its token it can do nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from domain.edge import messages
from domain.statetable import LineEffect
from gateway.app import build_gateway_app
from gateway.context import Gateway
from gateway.reads import GatewayClient
from gateway.server import serve_app
from gateway.tokens import CallerTokens, TokenFile
from providers.edge.gatewaycrm import GatewayControllerClient, GatewayCrm
from providers.edge.platform import CloudletPlatform
from providers.edge.token import CrmToken
from tests.patience import PATIENCE
from tests.test_edge.kit import QUICK, Edge, crm_polling
from workers import crmqueues
from workers.crm import platform_file
from workers.service import WorkerService


@asynccontextmanager
async def serving(stack: WorkerService, tokens: Path, port: int = 0) -> AsyncIterator[str]:
    gateway = Gateway(GatewayClient(stack.client, stack.store_reads()), CallerTokens(TokenFile(tokens)))
    try:
        async with serve_app(build_gateway_app(gateway), "127.0.0.1", port) as url:
            yield url
    finally:
        await gateway.crm_door.close()


@pytest.fixture(autouse=True)
def _a_busy_crm_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crmqueues, "SILENCE_SECONDS", PATIENCE)
    monkeypatch.setattr(crmqueues, "DELIVERY_SECONDS", PATIENCE)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    """A gateway with tokens, none of which a CRM has."""
    file = tmp_path / "tokens.yaml"
    file.write_text("tokens: []\n")
    file.chmod(0o600)
    return file


@pytest.fixture
async def url(stack: WorkerService, tokens: Path) -> AsyncIterator[str]:
    async with serving(stack, tokens) as found:
        yield found


@asynccontextmanager
async def crm_over_http(edge: Edge, url: str) -> AsyncIterator[GatewayCrm]:
    path, token = edge.at("berlin"), edge.token("berlin")
    async with crm_polling(edge.home, path, token, GatewayControllerClient(url, path, token)) as crm:
        yield crm


async def create_cloudlet(edge: Edge) -> str:
    key = edge.token("berlin").create_token()
    done = await edge.end(await edge.begun(edge.at("berlin"), "create", spec={"key": key, "patience": QUICK}))
    assert done.status == "Ready", done
    return edge.at("berlin")


def signed_poll(token: CrmToken, cloudlet: str, at: int | None = None) -> dict[str, Any]:
    message = {"version": "v9", "notify_id": 1, "received": 0, "at": at or time.time_ns() // 1_000}
    return token.sign_message(messages.CRM_POLL, cloudlet, message)


async def test_a_crm_works_over_http_also_after_its_gateway_was_restarted(
    edge: Edge, stack: WorkerService, tokens: Path
) -> None:
    async with serving(stack, tokens) as url, crm_over_http(edge, url) as crm:
        await create_cloudlet(edge)
        made = await edge.user.do(edge.at("berlin", "c1"), "create", spec={"nodes": 2})
        assert made.status == "Ready", made
        port = int(url.rpartition(":")[2])
        first = crm.notify_id
        # The same CRM, another gateway process on the port.
    async with serving(stack, tokens, port) as url, crm_over_http(edge, url) as crm:
        await until_connected(edge, first)
        made = await edge.user.do(edge.at("berlin", "c2"), "create", spec={"nodes": 1})
        assert made.status == "Ready", made
        assert crm.notify_id > first
        gone = await edge.user.do(edge.at("berlin", "c1"), "delete")
        assert gone.result == "succeeded"


async def test_an_order_outlives_the_gateway_that_should_hand_it_over(
    edge: Edge, stack: WorkerService, tokens: Path
) -> None:
    async with AsyncExitStack() as whole:
        async with serving(stack, tokens) as url:
            port = int(url.rpartition(":")[2])
            await whole.enter_async_context(crm_over_http(edge, url))
            await create_cloudlet(edge)
            ticket = await edge.begun(edge.at("berlin", "c1"), "create", spec={"nodes": 1})
        await whole.enter_async_context(serving(stack, tokens, port))
        assert (await edge.end(ticket)).status == "Ready", "the CRM went on with the next gateway"
        assert edge_instances(edge) == [edge.at("berlin", "c1")], "and made it once"


def edge_instances(edge: Edge) -> list[str]:
    platform = CloudletPlatform(platform_file(edge.home, edge.at("berlin")))
    try:
        return sorted(platform.list_instances())
    finally:
        platform.close()


async def until_connected(edge: Edge, after: int) -> None:
    """Until the cloudlet is Ready with a newer connection."""
    async with asyncio.timeout(PATIENCE):
        while await edge.notify_id() <= after or await edge.status(edge.at("berlin")) != "Ready":
            await asyncio.sleep(0.05)


async def test_only_the_cloudlets_own_token_opens_the_door_and_nothing_else(edge: Edge, url: str) -> None:
    async with crm_over_http(edge, url):
        berlin = await create_cloudlet(edge)
    munich, own, other = edge.at("munich"), edge.token("berlin"), edge.token("munich")
    await edge.begun(munich, "create", spec={"key": other.create_token(), "patience": QUICK})
    await edge.begun(edge.at("bare"), "create", spec={"patience": QUICK})
    answer = {"state": "Ready", "notify_id": 1, "version": "v1"}

    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as http:

        async def code(route: str, body: Any) -> int:
            return (await http.post(f"/v1/crm/{route}", json=body)).status_code

        assert await code(f"{berlin}/orders", signed_poll(own, berlin)) == 200
        assert await code(f"{berlin}/orders", signed_poll(other, berlin)) == 401, "the token of another cloudlet"
        assert await code(f"{munich}/orders", signed_poll(own, berlin)) == 401, "signed for another cloudlet"
        assert await code(f"{munich}/orders", signed_poll(own, munich)) == 401
        assert await code(f"{berlin}/orders", {**signed_poll(own, berlin), "notify_id": 7}) == 401, "changed"
        unsigned = {key: value for key, value in signed_poll(own, berlin).items() if key != "proof"}
        assert await code(f"{berlin}/orders", unsigned) == 401
        assert await code(f"{edge.at('bare')}/orders", unsigned) == 401, "a cloudlet without a key has no door"
        again = signed_poll(own, berlin)
        assert (await code(f"{berlin}/orders", again), await code(f"{berlin}/orders", again)) == (200, 409)
        assert await code(f"{berlin}/orders", signed_poll(own, berlin, 1)) == 422, "an old one"
        assert await code(f"{edge.at('none')}/orders", unsigned) == 404
        assert await code(f"{edge.user.mci()}/orders", unsigned) == 404
        foreign = own.sign_message(messages.CRM_RESPONSE, munich, answer)
        assert await code(f"{berlin}/messages/crm_response", {"to": munich, "message": foreign}) == 401
        assert await code(f"{munich}/messages/crm_response", {"to": munich, "message": foreign}) == 401
        assert await code(f"{berlin}/messages/continue", {"to": berlin, "message": answer}) == 422
        for route in ("/v1/kinds", f"/v1/objects/{berlin}"):
            assert (await http.get(route)).status_code == 401, "a CRM has no token of the gateway"


async def test_an_answer_that_comes_twice_or_late_is_recorded_and_changes_nothing(edge: Edge, url: str) -> None:
    async with crm_over_http(edge, url) as crm, httpx.AsyncClient(base_url=url, timeout=PATIENCE) as http:
        berlin = await create_cloudlet(edge)
        cluster = edge.at("berlin", "c1")
        await edge.user.do(cluster, "create", spec={"nodes": 1})
        before = await edge.user.see(cluster)
        late = {"state": "CreateError", "errors": ["too late"], "notify_id": crm.notify_id, "epoch": before.epoch}
        signed = edge.token().sign_message(messages.CRM_RESPONSE, cluster, late)
        for _ in range(2):
            sent = await http.post(f"/v1/crm/{berlin}/messages/crm_response", json={"to": cluster, "message": signed})
            assert sent.status_code == 202, sent.text
        async with asyncio.timeout(PATIENCE):
            while not any(line.effect is LineEffect.IGNORED for line in await edge.user.history(cluster)):
                await asyncio.sleep(0.05)
        after = await edge.user.see(cluster)
        assert (after.status, after.epoch) == (before.status, before.epoch)
