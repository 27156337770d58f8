"""Every dialect answers errors of Temporal as errors of its own, and none by a bare 500."""

from __future__ import annotations

from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from fastapi.routing import APIRoute, APIRouter
from temporalio.service import RPCError, RPCStatusCode

from gateway.context import ErrorTranslatingRoute, Gateway, serve_as
from gateway.dialects import blazar, g8, keystone, tumblebug


class Away:
    """A gateway whose Temporal is away."""

    ratchet = SimpleNamespace(client=SimpleNamespace(namespace="default"))

    def __getattr__(self, _name: str) -> Any:
        raise RPCError("no", RPCStatusCode.UNAVAILABLE, b"")


@pytest.mark.parametrize("router", [blazar.router, blazar.versions, g8.router, keystone.router, tumblebug.router])
def test_every_route_of_a_dialect_translates_errors_of_temporal(router: APIRouter) -> None:
    routes = [route for route in router.routes if isinstance(route, APIRoute)]
    assert routes
    assert [route.path for route in routes if not isinstance(route, ErrorTranslatingRoute)] == []


async def test_blazar_says_that_temporal_is_away() -> None:
    app = serve_as(cast(Gateway, Away()), blazar.build_blazar_app())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://blazar") as client:
        answer = await client.get("/v1/leases", headers={"X-Auth-Token": "any"})
    assert answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE, answer.text
    assert answer.json()["error_code"] == HTTPStatus.SERVICE_UNAVAILABLE
