"""Blazar's API, version 1: leases and hosts for `blazar`, `openstack reservation`, openstacksdk and libcloud.

A project is the tenant of its leases, and all hosts are those of one pool. The name of a new lease is the key of its
request, so the same request again finds the same lease. What clients call a name is free text in the spec.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from domain.aliases import Dialect
from domain.errors import Category, Refused
from domain.leases import names
from domain.leases.messages import (
    CalendarQuery,
    CalendarView,
    LeasesView,
    LeaseView,
    PrivatePropertiesQuery,
    PrivatePropertiesView,
)
from domain.model import ActionResult, ObjectView, Outcome, ReadQuery
from domain.paths import build_path, name_of
from gateway.context import ErrorTranslatingRoute, gateway_of_request
from gateway.dialects import blazar_json as shapes
from gateway.dialects.apps import DialectErrorFormat, ErrorAnswer, build_dialect_app
from gateway.dialects.calls import DialectCall, parse_dialect_call, token_of_request
from gateway.dialects.keystone import (
    default_project,
    join_token,
    public_gateway_url,
    split_token,
    validate_project_name,
)
from gateway.guard import add_headers

SERVICE, VERSION = "reservation", "1.0"
PAGE_SIZE = 500
CALENDAR_HOSTS = 2_000
LATEST = "2199-12-31 00:00"  # allocations are shown from now on, however late they begin
_VERSION_HEADER = "OpenStack-API-Version"


@dataclass(frozen=True)
class BlazarCall:
    """A call in a project, and the pool of hosts that it uses."""

    call: DialectCall
    project: str

    @property
    def pool(self) -> str:
        return self.call.gateway.pool

    async def find_lease(self, lease: str) -> str:
        """Returns the path of a lease of this project; Refused if there is none with this ID."""
        path = await self.call.find_path_by_alias(Dialect.BLAZAR, lease, "lease")
        if not path.startswith(f"project:{self.project}:lease:"):
            raise Refused(Category.NOT_FOUND, f"there is no lease {lease[:100]} in project {self.project}")
        return path

    async def find_host(self, host: str) -> ObjectView:
        """Returns a host of the pool; Refused if there is none with this ID."""
        path = await self.call.find_path_by_alias(Dialect.BLAZAR, host, "host")
        if not path.startswith(f"pool:{self.pool}:host:"):
            raise Refused(Category.NOT_FOUND, f"there is no host {host[:100]}")
        return await self.call.ratchet.read_object(path)

    async def lease_json(self, path: str) -> dict[str, Any]:
        """Returns one lease as Blazar shows it."""
        lease = await self.call.ratchet.run_query(names.READ_LEASE, ReadQuery(path=path), LeaseView)
        return (await self.leases_json([lease]))[0]

    async def leases_json(self, leases: Sequence[LeaseView]) -> list[dict[str, Any]]:
        """Returns leases as Blazar shows them, with the ids of their parts."""
        paths = [path for lease in leases for path in shapes.paths_of_lease_parts(lease)]
        ids = await self.call.aliases_of_paths(Dialect.BLAZAR, paths)
        return [shapes.lease_json(lease, self.project, ids) for lease in leases]

    async def hosts_json(self, views: Sequence[ObjectView]) -> list[dict[str, Any]]:
        """Returns hosts as Blazar shows them: without private properties to callers who may not update the host."""
        ids = await self.call.aliases_of_paths(Dialect.BLAZAR, [view.path for view in views])
        private = await self.private_properties() if views else set()
        shown = []
        for view in views:
            hidden = private if private and not await self.call.ratchet.is_allowed("update", view.path) else set()
            shown.append(shapes.host_json(view, ids[view.path], hidden))
        return shown

    async def private_properties(self) -> set[str]:
        """Returns the names of the pool's private properties."""
        query = PrivatePropertiesQuery(pool=self.pool)
        return {*(await self.call.ratchet.run_query(names.READ_PRIVATE_PROPERTIES, query, PrivatePropertiesView)).names}

    async def list_hosts(self) -> list[ObjectView]:
        """Returns all hosts of the pool."""
        return [view async for view in self.call.ratchet.iterate_objects("host", f"pool:{self.pool}")]

    async def list_allocations(self) -> dict[str, dict[str, Any]]:
        """Returns the allocation of each host, by its path."""
        query = CalendarQuery(pool=self.pool, start="now", end=LATEST, limit=CALENDAR_HOSTS)
        calendar = await self.call.ratchet.run_query(names.READ_CALENDAR, query, CalendarView)
        hosts = {build_path(("pool", "host"), (self.pool, host.host)): host for host in calendar.hosts}
        booked = [each for host in calendar.hosts for each in host.stretches]
        paths = {*hosts, *(each.lease for each in booked), *(each.reservation for each in booked)}
        ids = await self.call.aliases_of_paths(Dialect.BLAZAR, sorted(paths))
        return {path: shapes.allocation_json(host, ids[path], ids) for path, host in hosts.items()}


async def _blazar_call(request: Request) -> BlazarCall:
    secret, project = split_token(token_of_request(request))
    gateway = gateway_of_request(request)
    caller = await gateway.identify_caller(secret)
    project = validate_project_name(project or default_project(gateway, caller))
    call = await parse_dialect_call(request, join_token(secret, project), caller)
    call.check_tenant(f"project:{project}")
    return BlazarCall(call, project)


async def _check_version(version: Annotated[str, Header(alias=_VERSION_HEADER)] = "") -> None:
    """Refuses another version than ours. Versions of other services, behind commas, are not for us."""
    for wish in version.split(",") if version else []:
        service, _, number = wish.strip().partition(" ")
        major, _, minor = number.partition(".")
        if not service or not (number == "latest" or (major.isdecimal() and minor.isdecimal())):
            raise HTTPException(HTTPStatus.BAD_REQUEST, f"{_VERSION_HEADER}: {wish[:40]!a} is not SERVICE NUMBER")
        if service == SERVICE and number not in (VERSION, "latest"):
            raise HTTPException(HTTPStatus.NOT_ACCEPTABLE, f"{_VERSION_HEADER}: this is version {VERSION}")


Blazar = Annotated[BlazarCall, Depends(_blazar_call)]
router = APIRouter(
    prefix="/v1", dependencies=[Depends(_check_version), Depends(_blazar_call)], route_class=ErrorTranslatingRoute
)
versions = APIRouter(route_class=ErrorTranslatingRoute)


@versions.get("/", status_code=HTTPStatus.MULTIPLE_CHOICES)
@versions.get("/versions", status_code=HTTPStatus.MULTIPLE_CHOICES)
async def list_versions(request: Request) -> JSONResponse:
    """Blazar's version document."""
    link = {"rel": "self", "href": f"{public_gateway_url(request)}/reservation/v1"}
    known = {"id": "v1.0", "status": "CURRENT", "links": [link], "min_version": VERSION, "max_version": VERSION}
    return JSONResponse({"versions": [known]}, HTTPStatus.MULTIPLE_CHOICES)


@router.get("/leases")
async def list_leases(blazar: Blazar) -> dict[str, Any]:
    """Lists the leases of the project."""
    leases: list[LeaseView] = []
    while not leases or len(leases) % PAGE_SIZE == 0:
        after = leases[-1].path if leases else ""
        query = ReadQuery(path=f"project:{blazar.project}", after=after, limit=PAGE_SIZE)
        page = (await blazar.call.ratchet.run_query(names.READ_LEASES, query, LeasesView)).leases
        leases += page
        if not page:
            break
    return {"leases": await blazar.leases_json(leases)}


@router.post("/leases", status_code=HTTPStatus.CREATED)
async def create_lease(blazar: Blazar, body: shapes.LeaseBody) -> dict[str, Any]:
    """Creates a lease; the same request again finds the same lease."""
    spec = body.to_spec(blazar.pool)

    def build(key: str) -> Any:
        path = build_path(("project", "lease"), (blazar.project, key))
        return blazar.call.build_request(path, "create", spec)

    path, _ = await blazar.call.create_object_once(build)
    return {"lease": await blazar.lease_json(path)}


@router.get("/leases/{lease}")
async def get_lease(blazar: Blazar, lease: str) -> dict[str, Any]:
    """Shows one lease."""
    return {"lease": await blazar.lease_json(await blazar.find_lease(lease))}


@router.put("/leases/{lease}")
async def update_lease(blazar: Blazar, lease: str, body: shapes.LeaseChangeBody) -> dict[str, Any]:
    """Changes the name, the dates or the sizes of a lease."""
    path = await blazar.find_lease(lease)
    changes = {
        "name": body.name,
        "start": body.start_date,
        "end": body.end_date,
        "before_end": body.before_end_date,
        "reservations": await _read_size_changes(blazar, path, body.reservations),
    }
    if spec := {name: value for name, value in changes.items() if value}:
        _check_outcome(await blazar.call.perform_action(path, "update", spec, repeatable=False))
    return {"lease": await blazar.lease_json(path)}


async def _read_size_changes(
    blazar: BlazarCall, path: str, wishes: Sequence[shapes.ReservationChangeBody]
) -> list[dict[str, Any]]:
    """Returns the new sizes of reservations. Refuses any other change, naming the field."""
    if not wishes:
        return []
    lease = await blazar.call.ratchet.run_query(names.READ_LEASE, ReadQuery(path=path), LeaseView)
    shown = {each["id"]: each for each in (await blazar.leases_json([lease]))[0]["reservations"]}
    names_of_ids = dict(zip(shown, (each.id for each in lease.reservations), strict=True))
    sizes = []
    for wish in wishes:
        if wish.id not in shown:
            raise Refused(Category.INVALID, f"reservations.id: the lease has no reservation {wish.id[:100]}")
        now = shown[wish.id]
        for name, value in (wish.model_extra or {}).items():
            if str(value) != str(now.get(name)):
                raise Refused(Category.INVALID, f"reservations.{name}: only min, max and amount can change")
        least = wish.amount or wish.min or now.get("min") or now.get("amount")
        most = wish.amount or wish.max or now.get("max") or now.get("amount")
        sizes.append({"id": names_of_ids[wish.id], "min": least, "max": most})
    return sizes


@router.delete("/leases/{lease}", status_code=HTTPStatus.NO_CONTENT)
async def delete_lease(blazar: Blazar, lease: str) -> Response:
    """Deletes a lease, in whatever status it is."""
    path = await blazar.find_lease(lease)
    _check_outcome(await blazar.call.perform_action(path, "delete"))
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.get("/os-hosts")
async def list_hosts(blazar: Blazar) -> dict[str, Any]:
    """Lists the hosts of the pool."""
    return {"hosts": await blazar.hosts_json(await blazar.list_hosts())}


@router.post("/os-hosts", status_code=HTTPStatus.CREATED)
async def create_host(blazar: Blazar, body: shapes.HostBody) -> dict[str, Any]:
    """Adds a host to the pool."""
    if not body.name:
        raise Refused(Category.INVALID, "name: a host needs a name")
    path = build_path(("pool", "host"), (blazar.pool, body.name))
    spec = {**body.sizes(), "properties": body.properties()}
    _, outcome = await blazar.call.create_object_once(lambda _key: blazar.call.build_request(path, "add", spec))
    _check_outcome(outcome)
    return {"host": (await blazar.hosts_json([await blazar.call.ratchet.read_object(path)]))[0]}


@router.get("/os-hosts/allocations")
async def list_allocations(blazar: Blazar) -> dict[str, Any]:
    """Lists who has booked which host, from now on."""
    return {"allocations": list((await blazar.list_allocations()).values())}


@router.get("/os-hosts/properties")
async def list_properties(blazar: Blazar, detail: bool = False, all: bool = False) -> dict[str, Any]:
    """Lists the properties that hosts have, with their values if asked for.

    Private ones are listed if all are asked for, and only those of hosts that the caller may update.
    """
    private = await blazar.private_properties()
    values: dict[str, set[str]] = {}
    for host in await blazar.list_hosts():
        shows_private = bool(private) and all and await blazar.call.ratchet.is_allowed("update", host.path)
        for name, value in shapes.extra_host_properties(host).items():
            if name not in private or shows_private:
                values.setdefault(name, set()).add(value)
    shown = [{"property": name, "private": name in private, "values": sorted(values[name])} for name in sorted(values)]
    return {"resource_properties": shown if detail else [{"property": each["property"]} for each in shown]}


@router.patch("/os-hosts/properties/{name}")
async def change_property(blazar: Blazar, name: str, body: shapes.PropertyBody) -> dict[str, Any]:
    """Hides a property of the pool's hosts, or shows it again: an update of one host that has it."""
    having = [host.path for host in await blazar.list_hosts() if name in shapes.extra_host_properties(host)]
    if not having:
        raise Refused(Category.NOT_FOUND, f"no host has a property {name[:100]}")
    spec = {"private" if body.private else "public": [name]}
    _check_outcome(await blazar.call.perform_action(having[0], "update", spec))
    return {"resource_property": {"property": name, "private": body.private}}


@router.get("/os-hosts/{host}")
async def get_host(blazar: Blazar, host: str) -> dict[str, Any]:
    """Shows one host."""
    return {"host": (await blazar.hosts_json([await blazar.find_host(host)]))[0]}


@router.put("/os-hosts/{host}")
async def update_host(blazar: Blazar, host: str, body: shapes.HostBody) -> dict[str, Any]:
    """Changes properties of a host."""
    view = await blazar.find_host(host)
    if body.name and body.name != name_of(view.path):
        raise Refused(Category.INVALID, "name: a host keeps its name")
    if body.sizes():
        raise Refused(Category.INVALID, f"{next(iter(body.sizes()))}: only the properties of a host can change")
    spec = {"properties": body.properties()}
    _check_outcome(await blazar.call.perform_action(view.path, "update", spec, repeatable=False))
    return {"host": (await blazar.hosts_json([await blazar.call.ratchet.read_object(view.path)]))[0]}


@router.delete("/os-hosts/{host}", status_code=HTTPStatus.NO_CONTENT)
async def delete_host(blazar: Blazar, host: str) -> Response:
    """Removes a host from the pool."""
    view = await blazar.find_host(host)
    _check_outcome(await blazar.call.perform_action(view.path, "remove"))
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.get("/os-hosts/{host}/allocation")
async def get_allocation(blazar: Blazar, host: str) -> dict[str, Any]:
    """Shows who has booked a host."""
    view = await blazar.find_host(host)
    empty = {"resource_id": host, "reservations": []}
    return {"allocation": (await blazar.list_allocations()).get(view.path, empty)}


def _check_outcome(outcome: Outcome | None) -> None:
    """Raises Refused if the action failed. Without an outcome it goes on: the answer shows how far it is."""
    if outcome and outcome.result in (ActionResult.FAILED, ActionResult.CANCELLED):
        raise Refused(Category.NOT_ALLOWED, f"{outcome.action} {outcome.result}: {outcome.message}")


class BlazarMiddleware:
    """ASGI middleware: takes `.json` off a path, and adds the headers of every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {_VERSION_HEADER: f"{SERVICE} {VERSION}", "Vary": _VERSION_HEADER}
        headers["x-openstack-request-id"] = f"req-{uuid.uuid4()}"
        path = scope["path"].removesuffix(".json")
        await self._app({**scope, "path": path}, receive, add_headers(send, headers))


def build_blazar_app() -> FastAPI:
    """Builds the application under /reservation."""
    both = APIRouter()
    both.include_router(versions)
    both.include_router(router)
    app = build_dialect_app(both, DialectErrorFormat(_render_error))
    app.add_middleware(BlazarMiddleware)
    return app


def _render_error(failure: ErrorAnswer) -> JSONResponse:
    message = f"{failure.message}; {failure.hint}" if failure.hint else failure.message
    code = int(failure.status)
    return JSONResponse({"error_code": code, "error_message": message, "error_name": code}, failure.status)
