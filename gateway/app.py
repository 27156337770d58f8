"""The ASGI application: routes, error answers, limits on what comes in."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse
from starlette.types import ASGIApp

from domain.wire import ACTIONS_QUEUE
from gateway import crm, docspage, native, openapi, problems, reading, signals
from gateway.context import ErrorTranslatingRoute, Gateway, gateway_of_request, serve_as
from gateway.dialects.mounts import mount_dialects
from gateway.guard import RequestGuard

API_DESCRIPTION = (
    "Durable lifecycle actions on infrastructure. An action is requested once, survives crashes, and ends with an "
    "outcome; an object has one action at a time."
)


def build_gateway_app(gateway: Gateway) -> ASGIApp:
    """Build the application of one gateway."""
    return RequestGuard(serve_as(gateway, build_routes()), gateway.hosts, gateway.origins)


@cache
def build_routes() -> FastAPI:
    """Build what all gateways of a process share: it takes a tenth of a second."""
    app = FastAPI(
        title="Ratchet",
        version=version("ratchet"),
        description=API_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        redirect_slashes=False,
        generate_unique_id_function=lambda route: (
            route.name
        ),  # clients are generated: get_object, not get_object_v1_...
    )
    app.router.route_class = ErrorTranslatingRoute
    problems.install_error_handlers(app)
    _add_health_probes(app)
    for part in (native, signals, crm, reading):
        app.include_router(part.router)
    mount_dialects(app)
    app.openapi = lambda: openapi.build_openapi_document(app)  # type: ignore[method-assign]
    return app


def _add_health_probes(app: FastAPI) -> None:
    @app.get("/healthz", tags=["probes"])
    async def check_health() -> dict[str, str]:
        """The gateway answers."""
        return {"status": "ok"}

    @app.get("/readyz", tags=["probes"], responses=openapi.PROBLEM_RESPONSES)
    async def check_readiness(request: Request) -> dict[str, str]:
        """The gateway reaches Temporal, and a worker serves actions."""
        await gateway_of_request(request).ratchet.check_polled(ACTIONS_QUEUE)
        return {"status": "ready"}

    @app.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    async def show_docs() -> HTMLResponse:
        return HTMLResponse(
            docspage.render_docs_page(app.openapi()),
            headers={"Content-Security-Policy": docspage.CONTENT_SECURITY_POLICY},
        )
