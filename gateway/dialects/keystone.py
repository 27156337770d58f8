"""Keystone's login, as much as the clients of other OpenStack services need: a version document and tokens.

The password is a token of the gateway. The answer's token is the same secret with the project behind it, so every
gateway understands it, it survives restarts, and a token that is taken back stops working at once.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any, Literal

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from domain.errors import Refused
from domain.paths import check_name
from gateway.context import ANONYMOUS, ErrorTranslatingRoute, Gateway, gateway_of_request
from gateway.dialects.apps import DialectErrorFormat, ErrorAnswer, build_dialect_app
from gateway.dialects.calls import parse_dialect_call
from gateway.problems import Unauthorized
from gateway.tokens import Caller

SEPARATOR = "~"  # between the secret and the project; no token of ours has it
TOKEN_LIFETIME = timedelta(days=1)  # after which a client logs in again
REGION = "RegionOne"
_DOMAIN = {"id": "default", "name": "Default"}

router = APIRouter(route_class=ErrorTranslatingRoute)


class NameOrId(BaseModel):
    """A project, a user or a domain: by its name or its ID, which are the same here."""

    name: str = ""
    id: str = ""
    domain: dict[str, Any] = {}


class PasswordUser(NameOrId):
    """Who logs in. Only the password counts: it is a token, and the token says who that is."""

    password: str


class PasswordLogin(BaseModel):
    """A login by password."""

    user: PasswordUser


class TokenLogin(BaseModel):
    """A login by a token."""

    id: str


class LoginIdentity(BaseModel):
    """How the caller proves who they are."""

    methods: list[Literal["password", "token"]] = Field(min_length=1)
    password: PasswordLogin | None = None
    token: TokenLogin | None = None

    def secret(self) -> str:
        """Returns the password or the token."""
        if self.password:
            return self.password.user.password
        return self.token.id if self.token else ""


class LoginScope(BaseModel):
    """What the caller wants to use."""

    project: NameOrId = NameOrId()


class KeystoneLogin(BaseModel):
    """Who logs in, and for what."""

    identity: LoginIdentity
    scope: LoginScope | Literal["unscoped"] | None = None


class LoginBody(BaseModel):
    """The body of a login."""

    auth: KeystoneLogin


@router.get("/v3")
@router.get("/v3/")
async def get_version(request: Request) -> dict[str, Any]:
    """Keystone's version document."""
    link = {"rel": "self", "href": f"{public_gateway_url(request)}/identity/v3/"}
    return {"version": {"id": "v3.14", "status": "stable", "links": [link], "media-types": []}}


@router.get("/", status_code=HTTPStatus.MULTIPLE_CHOICES)
async def list_versions(request: Request) -> JSONResponse:
    """The only version, as clients that begin at the root look for it."""
    found = [(await get_version(request))["version"]]
    return JSONResponse({"versions": {"values": found}}, HTTPStatus.MULTIPLE_CHOICES)


@router.post("/v3/auth/tokens", status_code=HTTPStatus.CREATED)
async def log_in(request: Request, body: LoginBody) -> JSONResponse:
    """Log in: the answer's header has a token for one project, its body the address of the reservation service."""
    secret, given_project = split_token(body.auth.identity.secret())
    caller = await gateway_of_request(request).identify_caller(secret)
    scope = body.auth.scope if isinstance(body.auth.scope, LoginScope) else LoginScope()
    project = (
        scope.project.name or scope.project.id or given_project or default_project(gateway_of_request(request), caller)
    )
    (await parse_dialect_call(request, secret, caller)).check_tenant(f"project:{validate_project_name(project)}")
    now = datetime.now(UTC)
    token = {
        "methods": body.auth.identity.methods,
        "issued_at": _format_time(now),
        "expires_at": _format_time(now + TOKEN_LIFETIME),
        "user": {"id": caller.name, "name": caller.name, "domain": _DOMAIN},
        "project": {"id": project, "name": project, "domain": _DOMAIN},
        "roles": [{"id": "member", "name": "member"}],
        "catalog": [_catalog_entry(public_gateway_url(request))],
    }
    proof = secret if gateway_of_request(request).tokens else ANONYMOUS  # then any text is a password
    headers = {"X-Subject-Token": join_token(proof, project), "Vary": "X-Auth-Token"}
    return JSONResponse({"token": token}, HTTPStatus.CREATED, headers)


def join_token(secret: str, project: str) -> str:
    """Returns the token for one project."""
    return f"{secret}{SEPARATOR}{project}"


def split_token(text: str) -> tuple[str, str]:
    """Splits a token of ours into the secret and the project, which is empty if it is not scoped."""
    secret, _, project = text.partition(SEPARATOR)
    return secret, project


def default_project(gateway: Gateway, caller: Caller) -> str:
    """Returns the project of a caller who names none: the first that the token may use, else that of the settings."""
    usable = [tenant.removeprefix("project:") for tenant in caller.tenants if tenant.startswith("project:")]
    return usable[0] if usable else gateway.project


def validate_project_name(name: str) -> str:
    """Returns a project's name; raises Unauthorized if no project can have it."""
    try:
        return check_name(name)
    except Refused as refused:
        raise Unauthorized(f"there is no such project: {refused.message}") from refused


def public_gateway_url(request: Request) -> str:
    """Returns the gateway's URL as its clients know it."""
    return gateway_of_request(request).public_url or f"{request.url.scheme}://{request.headers['host']}"


def build_keystone_app() -> FastAPI:
    """Builds the application under /identity."""
    return build_dialect_app(router, DialectErrorFormat(_render_error))


def _render_error(failure: ErrorAnswer) -> JSONResponse:
    error = {"code": int(failure.status), "title": failure.status.phrase, "message": failure.message}
    return JSONResponse({"error": error}, failure.status)


def _catalog_entry(url: str) -> dict[str, Any]:
    place = {"interface": "public", "region": REGION, "region_id": REGION, "url": f"{url}/reservation/v1"}
    return {
        "id": "reservation",
        "type": "reservation",
        "name": "blazar",
        "endpoints": [{"id": "reservation-public", **place}],
    }


def _format_time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
