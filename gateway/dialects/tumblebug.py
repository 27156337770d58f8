"""Tumblebug's REST API for MCIs, in both of its vocabularies.

Routes are one table in the old words; `tumblebug_vocabulary.py` translates the new ones.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, FastAPI, HTTPException, Request
from starlette.responses import JSONResponse, Response

from client.sending import send_signal
from domain.errors import Category, Refused
from domain.model import ActionResult, ObjectView, Outcome
from domain.paths import check_name, name_of
from domain.statetable import NONE
from domain.wire import ACTIONS_QUEUE
from gateway.context import ErrorTranslatingRoute, gateway_of_request
from gateway.dialects import tumblebug_json as shapes
from gateway.dialects.apps import DialectErrorFormat, ErrorAnswer, build_dialect_app, failure_status
from gateway.dialects.calls import Call, DialectCall, read_json_body
from gateway.dialects.regions import REGION_OF_CONNECTION, REGIONS
from gateway.dialects.tumblebug_log import RequestIdMiddleware, RequestLog, record_answer, record_error
from gateway.dialects.tumblebug_requests import (
    check_tumblebug_name,
    parse_whole_number,
    review_creation,
    translate_mci_spec,
)
from gateway.dialects.tumblebug_vocabulary import (
    NEW_OF_OLD,
    OLD_OF_NEW,
    rename_keys,
    translate_route_to_old,
    uses_new_vocabulary,
)

MOUNT = "/tumblebug"
DEFAULT_NAMESPACE = "default"
_ACTIONS = ("suspend", "resume", "reboot", "terminate", "refine")
_DECISIONS = ("continue", "withdraw")
_ENDED_VMS = ("Terminated", "Failed", "Undefined")
_PREFETCH_HEADERS = ("purpose", "sec-purpose", "x-moz")
_ROUTES_OF_LOG = ("request", "requests")
_EMPTY_LISTS = ("vNet", "sshKey", "securityGroup", "dataDisk", "customImage", "image", "spec")
router = APIRouter(route_class=ErrorTranslatingRoute)


@dataclass(frozen=True)
class TumblebugCall:
    """One request: who asks, the names on its route, its parameters."""

    call: DialectCall
    names: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any]
    headers: Mapping[str, str]
    log: RequestLog

    @property
    def namespace_path(self) -> str:
        return self.call.check_tenant(f"ns:{check_name(self.names['ns'])}")

    @property
    def mci_path(self) -> str:
        return f"{self.namespace_path}:mci:{check_name(self.names['mci'])}"

    @property
    def vm_path(self) -> str:
        return f"{self.mci_path}:vm:{check_name(self.names['vm'])}"

    async def read_mci(self, path: str = "") -> tuple[ObjectView, list[ObjectView]]:
        path = path or self.mci_path
        view = await self.call.ratchet.read_object(path)
        return view, [vm async for vm in self.call.ratchet.iterate_objects("vm", path)]

    async def perform_action(
        self, path: str, action: str, spec: dict[str, Any] | None = None, **more: Any
    ) -> Outcome | None:
        """Requests an action under the request id of the client, so that the same id is the same request."""
        if given := self.headers.get("x-request-id"):
            more["request_id"] = given
        return await self.call.perform_action(path, action, spec, **more)


TumblebugHandler = Callable[[TumblebugCall], Awaitable[Any]]


@router.get("/readyz")
async def check_readiness(request: Request) -> dict[str, str]:
    """Says whether a worker serves actions; open to everybody."""
    await gateway_of_request(request).ratchet.check_polled(ACTIONS_QUEUE)
    return {"message": "CB-Tumblebug API of Ratchet is ready"}


@router.get("/httpVersion")
async def show_version(request: Request) -> dict[str, str]:
    """Says which HTTP the client speaks; open to everybody."""
    return {"message": f"HTTP/{request.scope.get('http_version', '1.1')}"}


@router.api_route("/{route:path}", methods=["GET", "POST", "PUT", "DELETE"])
async def dispatch_route(request: Request, call: Call, route: str) -> Response:
    """Finds the handler of a route in either vocabulary, and translates body and answer."""
    segments = [segment for segment in route.split("/") if segment]
    is_new = uses_new_vocabulary(segments)
    words = translate_route_to_old(segments) if is_new else segments
    handler, names = _find_handler(request.method, words)
    log = call.gateway.requests
    entry: dict[str, Any] = {}
    if words[0] not in _ROUTES_OF_LOG:  # its answers hold entries, and would be held by the next
        entry = log.begin_request(call.caller.name, request.state.request_id, request.method, str(request.url.path))
    try:
        body = rename_keys(await _read_body(request), OLD_OF_NEW) if is_new else await _read_body(request)
        answer = await handler(TumblebugCall(call, names, request.query_params, body, request.headers, log))
    except Exception as error:
        record_error(entry, str(error.detail if isinstance(error, HTTPException) else error))
        raise
    record_answer(entry, answer)
    answer = rename_keys(answer, NEW_OF_OLD) if is_new else answer
    return JSONResponse(answer, headers={"Cache-Control": "no-store"})


def _find_handler(method: str, words: list[str]) -> tuple[TumblebugHandler, dict[str, str]]:
    for (known, template), handler in ROUTES.items():
        pattern = template.split("/")
        if known == method and len(pattern) == len(words):
            pairs = list(zip(pattern, words, strict=True))
            if all(part == word or part.startswith("{") for part, word in pairs):
                return handler, {part[1:-1]: word for part, word in pairs if part.startswith("{")}
    raise HTTPException(HTTPStatus.NOT_IMPLEMENTED, f"{method} /{'/'.join(words)[:200]} is not built")


async def _read_body(request: Request) -> dict[str, Any]:
    found = await read_json_body(request)
    if found is not None and not isinstance(found, dict):
        raise Refused(Category.INVALID, "the body must be a JSON object")
    return found or {}


def _check_outcome(outcome: Outcome | None) -> None:
    """Raises if an action failed or was cancelled. One that takes longer shows in its object."""
    is_withdrawn = outcome is not None and outcome.result is ActionResult.CANCELLED and outcome.status == NONE
    if outcome is not None and outcome.result in (ActionResult.FAILED, ActionResult.CANCELLED) and not is_withdrawn:
        raise HTTPException(failure_status(outcome), outcome.message or f"{outcome.action} {outcome.result}")


async def _list_namespaces(visit: TumblebugCall) -> Any:
    names = {DEFAULT_NAMESPACE: None}
    async for view in visit.call.ratchet.iterate_objects("mci"):
        names[view.path.split(":")[1]] = None
    tenants = visit.call.caller.tenants
    shown = [name for name in names if not tenants or f"ns:{name}" in tenants]
    if visit.query.get("option") == "id":
        return {"output": shown}
    return {"ns": [shapes.namespace_json(name) for name in shown]}


async def _get_namespace(visit: TumblebugCall) -> Any:
    return shapes.namespace_json(visit.namespace_path.split(":")[1])


async def _create_namespace(visit: TumblebugCall) -> Any:
    name = check_tumblebug_name(visit.body.get("name"))
    visit.call.check_tenant(f"ns:{name}")
    return shapes.namespace_json(name) | {"description": str(visit.body.get("description") or "")}


async def _delete_namespace(visit: TumblebugCall) -> Any:
    async for view in visit.call.ratchet.iterate_objects("mci", visit.namespace_path):
        raise Refused(
            Category.NOT_ALLOWED, f"{visit.namespace_path} has MCIs: {name_of(view.path)}", "delete them first"
        )
    return {"message": f"The namespace {visit.names['ns']} has been deleted"}


async def _list_connections(_visit: TumblebugCall) -> Any:
    return {"connectionconfig": [shapes.connection_json(region) for region in REGIONS]}


async def _get_connection(visit: TumblebugCall) -> Any:
    region = REGION_OF_CONNECTION.get(visit.names["name"])
    if region is None:
        raise Refused(Category.NOT_FOUND, f"there is no connection {visit.names['name'][:80]}")
    return shapes.connection_json(region)


async def _create_mci(visit: TumblebugCall) -> Any:
    path = f"{visit.namespace_path}:mci:{check_tumblebug_name(visit.body.get('name'))}"
    spec = translate_mci_spec(visit.body, visit.query.get("option", ""))
    if visit.headers.get("x-request-id"):
        outcome = await visit.perform_action(path, "create", spec)
    else:
        _, outcome = await visit.call.create_object_once(lambda _key: visit.call.build_request(path, "create", spec))
    _check_outcome(outcome)
    return shapes.mci_json(*await visit.read_mci(path))


async def _review_mci(visit: TumblebugCall) -> Any:
    path = f"{visit.namespace_path}:mci:{check_tumblebug_name(visit.body.get('name'))}"
    spec = translate_mci_spec(visit.body, visit.query.get("option", ""))
    return await review_creation(visit.call, visit.call.build_request(path, "create", spec))


async def _refuse_static_mci(_visit: TumblebugCall) -> Any:
    raise HTTPException(
        HTTPStatus.NOT_IMPLEMENTED, "the static form is not built: networks and keys are prepared here; use mciDynamic"
    )


async def _list_mcis(visit: TumblebugCall) -> Any:
    option = visit.query.get("option", "")
    views = [view async for view in visit.call.ratchet.iterate_objects("mci", visit.namespace_path)]
    if option == "id":
        return {"output": [name_of(view.path) for view in views]}
    found = [(view, [] if option == "simple" else (await visit.read_mci(view.path))[1]) for view in views]
    shape = shapes.mci_status_json if option == "status" else shapes.mci_json
    return {"mci": [shape(view, vms) for view, vms in found]}


async def _get_mci(visit: TumblebugCall) -> Any:
    view, vms = await visit.read_mci()
    match visit.query.get("option", ""):
        case "id":
            return {"output": [name_of(vm.path) for vm in vms]}
        case "status":
            return {"status": shapes.mci_status_json(view, vms)}
        case "accessinfo":
            return shapes.access_json(view, vms)
    return shapes.mci_json(view, vms)


async def _control_object(visit: TumblebugCall, path: str, actions: tuple[str, ...]) -> Any:
    """A GET that changes things: not for a browser that only prefetches."""
    if any("prefetch" in visit.headers.get(name, "") for name in _PREFETCH_HEADERS):
        raise HTTPException(HTTPStatus.FORBIDDEN, "an action is not prefetched")
    action = visit.query.get("action", "")
    if action in _DECISIONS and actions is not _ACTIONS[:4]:
        await send_signal(visit.call.ratchet, path, action, {}, visit.call.caller.name)
        return {"message": f"{action} was sent to {name_of(path)}"}
    if action in ("reconcile", "abort"):
        raise HTTPException(HTTPStatus.NOT_IMPLEMENTED, f"the action {action} is not built")
    if action not in actions:
        raise Refused(Category.INVALID, f"action: {action[:40]!r} is not one of {', '.join(actions)}")
    force = visit.query.get("force") == "true"
    outcome = await visit.perform_action(path, action, force=force, repeatable=action != "reboot")
    _check_outcome(outcome)
    return {"message": f"{action} {'is under way' if outcome is None else outcome.result} on {name_of(path)}"}


async def _delete_mci(visit: TumblebugCall) -> Any:
    path, option = visit.mci_path, visit.query.get("option", "")
    vms = [vm async for vm in visit.call.ratchet.iterate_objects("vm", path)]
    if option not in ("terminate", "force") and any(vm.status not in _ENDED_VMS for vm in vms):
        message = f"{name_of(path)} has VMs that are not terminated"
        raise Refused(Category.NOT_ALLOWED, message, "terminate it first, or: option=terminate")
    outcome = await visit.perform_action(path, "delete", force=option == "force")
    _check_outcome(outcome)
    return {"output": [f"[Done] VM: {name_of(vm.path)}" for vm in vms] + [f"[Done] MCI: {name_of(path)}"]}


async def _get_vm(visit: TumblebugCall) -> Any:
    vm = await visit.call.ratchet.read_object(visit.vm_path)
    match visit.query.get("option", ""):
        case "status":
            return shapes.vm_status_json(vm)
        case "accessinfo":
            (group,) = shapes.access_json(vm, [vm])["mciSubGroupAccessInfo"]
            return group["mciVmAccessInfo"][0]
        case "idsInDetail":
            return shapes.vm_ids_json(vm)
    return shapes.vm_json(vm)


async def _list_subgroups(visit: TumblebugCall) -> Any:
    _, vms = await visit.read_mci()
    return {"output": sorted({str(vm.spec.get("subGroup", "")) for vm in vms})}


async def _get_subgroup(visit: TumblebugCall) -> Any:
    _, vms = await visit.read_mci()
    found = [name_of(vm.path) for vm in vms if vm.spec.get("subGroup") == visit.names["group"]]
    if not found:
        raise Refused(Category.NOT_FOUND, f"there is no subgroup {visit.names['group'][:80]}")
    return {"output": found}


async def _scale_out(visit: TumblebugCall) -> Any:
    group, count = visit.names["group"], parse_whole_number(visit.body.get("numVMsToAdd"), "numVMsToAdd")
    spec = {"subGroup": group, "count": count}
    _check_outcome(await visit.perform_action(visit.mci_path, "scale-out", spec, repeatable=False))
    view, vms = await visit.read_mci()
    members = [vm for vm in vms if vm.spec.get("subGroup") == group]
    newest = max((vm.info.get("generation", 0) for vm in members), default=0)  # the VMs of one action have the same
    return shapes.mci_json(view, vms, [name_of(vm.path) for vm in members if vm.info.get("generation", 0) == newest])


async def _get_request(visit: TumblebugCall) -> Any:
    if (entry := visit.log.find_request(visit.call.caller.name, visit.names["id"])) is None:
        raise Refused(Category.NOT_FOUND, f"there was no request {visit.names['id'][:80]}")
    return entry


async def _list_requests(visit: TumblebugCall) -> Any:
    return {"requests": visit.log.list_requests(visit.call.caller.name)}


async def _list_nothing(visit: TumblebugCall) -> Any:
    if visit.names["resource"] not in _EMPTY_LISTS:
        raise HTTPException(HTTPStatus.NOT_IMPLEMENTED, f"{visit.names['resource'][:80]} is not built")
    return {visit.names["resource"]: []}


# fmt: off
ROUTES: dict[tuple[str, str], TumblebugHandler] = {
    ("GET",    "ns"):                                 _list_namespaces,
    ("POST",   "ns"):                                 _create_namespace,
    ("GET",    "ns/{ns}"):                            _get_namespace,
    ("DELETE", "ns/{ns}"):                            _delete_namespace,
    ("GET",    "connConfig"):                         _list_connections,
    ("GET",    "connConfig/{name}"):                  _get_connection,
    ("POST",   "ns/{ns}/mciDynamic"):                 _create_mci,
    ("POST",   "ns/{ns}/mciDynamicReview"):           _review_mci,
    ("POST",   "ns/{ns}/mci"):                        _refuse_static_mci,
    ("GET",    "ns/{ns}/mci"):                        _list_mcis,
    ("GET",    "ns/{ns}/mci/{mci}"):                  _get_mci,
    ("DELETE", "ns/{ns}/mci/{mci}"):                  _delete_mci,
    ("GET",    "ns/{ns}/control/mci/{mci}"):          lambda visit: _control_object(visit, visit.mci_path, _ACTIONS),
    ("GET",    "ns/{ns}/control/mci/{mci}/vm/{vm}"):  lambda visit: _control_object(visit, visit.vm_path, _ACTIONS[:4]),
    ("GET",    "ns/{ns}/mci/{mci}/vm/{vm}"):          _get_vm,
    ("GET",    "ns/{ns}/mci/{mci}/subgroup"):         _list_subgroups,
    ("GET",    "ns/{ns}/mci/{mci}/subgroup/{group}"): _get_subgroup,
    ("POST",   "ns/{ns}/mci/{mci}/subgroup/{group}"): _scale_out,
    ("GET",    "request/{id}"):                       _get_request,
    ("GET",    "requests"):                           _list_requests,
    ("GET",    "ns/{ns}/resources/{resource}"):       _list_nothing,
}
# fmt: on


def _render_error(failure: ErrorAnswer) -> Response:
    text = failure.message + (f" ({failure.hint})" if failure.hint else "")
    return JSONResponse({"message": text}, failure.status)


def build_tumblebug_app() -> FastAPI:
    """Builds the application of this dialect."""
    app = build_dialect_app(router, DialectErrorFormat(_render_error))
    app.add_middleware(RequestIdMiddleware)
    return app
