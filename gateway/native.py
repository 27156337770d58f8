"""The native API, /v1: kinds, objects, actions, history, locks, events. Its table is the registry."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, StringConstraints
from temporalio.exceptions import TemporalError
from temporalio.service import RPCError

from activities.runs import find_reset_run
from client.explaining import Explanation, explain_object
from client.patience import run_with_timeout
from domain import registry, wire
from domain.actionview import ActionView
from domain.dryrun import DryRun
from domain.errors import Category, RatchetError, Refused
from domain.events import EventCursor, parse_cursor
from domain.kinds import Kind
from domain.locks import LocksView
from domain.model import (
    FrozenModel,
    HistoryView,
    ObjectsView,
    ObjectView,
    Outcome,
    Progress,
    ShortText,
    TreeView,
)
from domain.model import ReadQuery as StoreQuery
from domain.model import Request as ActionRequest
from domain.paths import kind_of
from gateway.context import (
    MAX_STREAMS,
    CallerOf,
    ErrorTranslatingRoute,
    Gateway,
    Ratchet,
    authenticate_caller,
    gateway_of_request,
)
from gateway.openapi import PROBLEM_RESPONSES
from gateway.problems import problem_response, refusal_response
from gateway.tokens import Caller

DEFAULT_WAIT_SECONDS = 30.0  # seconds until an action's outcome is asked for again
MAX_WAIT_SECONDS = 60.0
HEARTBEAT_SECONDS = 15.0  # seconds between comments in a silent stream: proxies cut off what says nothing
MAX_PAGES = 40  # read at most for one answer when a status is asked for

router = APIRouter(
    prefix="/v1",
    dependencies=[Depends(authenticate_caller)],
    responses=PROBLEM_RESPONSES,
    route_class=ErrorTranslatingRoute,
)
PathParameter = Annotated[str, Path(description="The object's path.", examples=["ns:default:mci:web"], max_length=500)]
RunParameter = Annotated[
    str,
    Path(
        description="The run that `Location` names.", examples=["0197c1a8-7f6e-7c1e-9d2e-5b1f4c3a2d10"], max_length=100
    ),
]
KindParameter = Annotated[str, Path(description="A kind of `GET /v1/kinds`.", examples=["mci"])]
LimitParameter = Annotated[int, Query(ge=1, le=1_000)]


class KindView(FrozenModel):
    """A kind of object: where it stands, and its actions."""

    name: str
    help: str
    scope: list[str]
    member: str | None
    statuses: list[str]
    actions: list[str]
    signals: list[str]


class StateRow(FrozenModel):
    """One row of a state table."""

    action: str
    actor: str
    source: str
    during: str | None
    then: str
    otherwise: str | None
    force: bool


class ObjectPage(FrozenModel):
    """A page of objects. `next` is the `after` of the next page; empty on the last one."""

    objects: list[ObjectView]
    next: str = ""


class ActionBody(BaseModel):
    """What an action is asked for with."""

    model_config = ConfigDict(extra="forbid")

    spec: dict[str, Any] | None = None
    reason: ShortText = ""
    force: bool = False


class RunView(FrozenModel):
    """An action, with its progress while it runs and its outcome afterwards."""

    action: ActionView
    progress: Progress | None = None


_UNCHANGED: dict[int | str, dict[str, Any]] = {304: {"description": "It is as the caller's ETag says."}}
_ACTION_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"model": Outcome | DryRun, "description": "The outcome; of a dry run, what would be answered."},
    202: {"model": Progress, "description": "It is under way; `Location` names its run."},
}


@router.get("/kinds")
async def list_kinds() -> list[KindView]:
    """Every kind of object."""
    return [_kind_view(kind) for kind in registry.KINDS.values()]


@router.get("/kinds/{kind}/states")
async def get_state_table(kind: KindParameter) -> list[StateRow]:
    """The state table of a kind: which action leads from where to where."""
    return [StateRow.model_validate(row, from_attributes=True) for row in _find_kind(kind).table.rows]


@router.get("/kinds/{kind}/schema")
async def get_schemas(kind: KindParameter) -> dict[str, dict[str, Any]]:
    """The JSON Schema of each action's spec; an action that takes none is left out."""
    verbs = (verb for verb in _find_kind(kind).verbs if verb.spec and not verb.is_internal)
    return {verb.action: verb.spec.model_json_schema() for verb in verbs if verb.spec}


@router.get("/objects", responses={200: {"model": ObjectPage}, **_UNCHANGED})
async def list_objects(
    request: Request,
    ratchet: Ratchet,
    kind: Annotated[str, Query(examples=["mci"], max_length=100)],
    prefix: Annotated[str, Query(description="Only objects at or below this path.", max_length=500)] = "",
    after: Annotated[str, Query(description="The `next` of the page before.", max_length=500)] = "",
    limit: LimitParameter = 100,
    status: Annotated[str, Query(description="Only objects in this status.", max_length=100)] = "",
) -> Response:
    """Objects of a kind, a page at a time, in the order of their paths."""
    found: list[ObjectView] = []
    for pages in range(MAX_PAGES):  # noqa: B007 - read after the loop
        query = StoreQuery(kind=kind, path=prefix, after=after, limit=limit)
        page = await ratchet.run_query(wire.READ_OBJECTS, query, ObjectsView)
        found += [view for view in page.objects if not status or view.status == status][: limit - len(found)]
        after = page.after
        if len(found) == limit or not after:
            break
    if len(found) == limit and (after or status or pages):  # the last page may have more than was left to fill
        after = found[-1].path
    return _etag_response(request, ObjectPage(objects=found, next=after))


@router.get("/objects/{path}", responses={200: {"model": ObjectView}, **_UNCHANGED})
async def get_object(request: Request, ratchet: Ratchet, path: PathParameter) -> Response:
    """One object: its status, spec and info."""
    return _etag_response(request, await ratchet.read_object(path))


@router.get("/objects/{path}/tree")
async def get_tree(ratchet: Ratchet, path: PathParameter, limit: LimitParameter = 20) -> TreeView:
    """A group with its members counted by placement and status, and the first errors."""
    return await ratchet.run_query(wire.READ_TREE, StoreQuery(path=path, limit=limit), TreeView)


@router.get("/objects/{path}/history")
async def get_history(
    ratchet: Ratchet,
    path: PathParameter,
    after: Annotated[int, Query(description="Only lines with a higher `seq`.", ge=0, le=2**63 - 1)] = 0,
    limit: LimitParameter = 100,
) -> HistoryView:
    """The last status changes of an object, oldest first; with `after`, the next ones."""
    query = StoreQuery(path=path, after=str(after) if after else "", limit=limit)
    return await ratchet.run_query(wire.READ_HISTORY, query, HistoryView)


@router.get("/objects/{path}/locks")
async def get_locks(ratchet: Ratchet, path: PathParameter) -> LocksView:
    """The locks at or below a path: which action holds what, since when."""
    return await ratchet.run_query(wire.READ_LOCKS, StoreQuery(path=path), LocksView)


@router.get("/objects/{path}/explain")
async def explain(ratchet: Ratchet, path: PathParameter) -> Explanation:
    """Why an object is in its status, what it waits for, and which actions would be admitted now."""
    return await explain_object(ratchet, path)


@router.post("/objects/{path}/actions/{action}", responses=_ACTION_RESPONSES)
async def request_action(
    ratchet: Ratchet,
    caller: CallerOf,
    path: PathParameter,
    action: Annotated[str, Path(examples=["suspend"], max_length=40)],
    body: ActionBody | None = None,
    dry_run: Annotated[bool, Query(description="Only say what the answer would be; change nothing.")] = False,
    idempotency_key: Annotated[
        str,
        StringConstraints(max_length=100),
        Header(description="The same key again is the same request: it is carried out once."),
    ] = "",
    prefer: Annotated[
        str, Header(description="`wait=N` waits N seconds for the outcome, at most 60; `respond-async` does not wait.")
    ] = "",
) -> Response:
    """Request an action. Waits for its outcome: 200 with it, or 202 with the `Location` of its run."""
    given = (body or ActionBody()).model_dump()
    request = ActionRequest(path=path, action=action, requested_by=caller.name, request_id=idempotency_key, **given)
    if dry_run:
        dry = await ratchet.check_request(request)
        return refusal_response(dry.refusal) if dry.refusal else _json_response(dry)
    ticket = await ratchet.request_action(request)
    if ticket.admission.refusal:
        return refusal_response(ticket.admission.refusal)
    if ticket.admission.outcome:
        return _json_response(ticket.admission.outcome)
    location, seconds = f"/v1/actions/{ticket.run}", _wait_seconds(prefer)
    try:
        if not seconds:
            raise TimeoutError
        outcome = await run_with_timeout(seconds, ratchet.wait_for_outcome(ticket.path, ticket.run))
    except TimeoutError:
        progress = Progress(path=path, action=action, phase="running")
        return _json_response(progress, HTTPStatus.ACCEPTED, {"Location": location, "Retry-After": "1"})
    return _json_response(outcome, headers={"Content-Location": location})


@router.get("/actions/{run}")
async def get_action(ratchet: Ratchet, run: RunParameter) -> RunView:
    """An action: its progress while it runs, its outcome afterwards."""
    view = await ratchet.run_query(wire.READ_ACTION, StoreQuery(run=run), ActionView)
    if view.outcome:
        return RunView(action=view)
    workflow_id = registry.workflow_id_of(view.path, view.action)
    while later := await find_reset_run(ratchet.client, workflow_id, run):
        run = later
    return RunView(action=view, progress=await ratchet.try_read_progress(workflow_id, run))


@router.delete("/actions/{run}", status_code=HTTPStatus.ACCEPTED)
async def cancel_action(ratchet: Ratchet, run: RunParameter) -> RunView:
    """Ask a running action to clean up and end. Its outcome tells what became of it."""
    view = await ratchet.run_query(wire.READ_ACTION, StoreQuery(run=run), ActionView)
    if view.outcome:
        raise Refused(
            Category.NOT_ALLOWED, f"the action has ended: {view.outcome.result}", "there is nothing to cancel"
        )
    workflow_id = registry.workflow_id_of(view.path, view.action)
    while later := await find_reset_run(ratchet.client, workflow_id, run):
        run = later
    await ratchet.cancel_action(workflow_id, run)
    return RunView(action=view)


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={410: {"description": "The position is gone.", "content": PROBLEM_RESPONSES[404]["content"]}},
)
async def follow_events(
    request: Request,
    caller: CallerOf,
    prefix: Annotated[str, Query(description="Only events at or below this path.", max_length=500)] = "",
    kind: Annotated[str, Query(description="Only events of this kind of object.", max_length=100)] = "",
    last_event_id: Annotated[
        str, Header(description="Resume after this event; 0 is the beginning. Without it: from now on.")
    ] = "",
) -> Response:
    """Status changes as server-sent events. `Last-Event-ID` resumes with no event lost or doubled."""
    gateway = gateway_of_request(request)
    if gateway.streams >= MAX_STREAMS:
        return problem_response(
            HTTPStatus.SERVICE_UNAVAILABLE, "too-many-streams", f"{MAX_STREAMS} event streams are open", "try again"
        )
    if kind:
        registry.find_kind(kind)
    cursor = parse_cursor(last_event_id) if last_event_id else await gateway.feed.newest_position()
    try:
        await gateway.feed.read_page(cursor)  # a position that is gone is an error now, not a stream that breaks off
    except Refused as refused:
        if refused.category is not Category.NOT_FOUND:
            raise
        return problem_response(HTTPStatus.GONE, "gone", refused.message, refused.hint)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(
        _stream_events(gateway, caller, cursor, prefix, kind), headers=headers, media_type="text/event-stream"
    )


async def _stream_events(
    gateway: Gateway, caller: Caller, cursor: EventCursor, prefix: str, kind: str
) -> AsyncIterator[str]:
    gateway.streams += 1
    ratchet = gateway.ratchet.acting_for(caller.name, caller.login)
    try:
        async with gateway.feed.poll_while_following():
            yield f"retry: 1000\nid: {cursor}\n\n"
            while True:
                try:
                    events = await gateway.feed.wait_for_events(cursor, HEARTBEAT_SECONDS)
                    may_see = ratchet.authorizer.make_path_filter(ratchet.describe_caller())  # policies change
                except (RatchetError, RPCError, TemporalError):
                    return  # the reader connects again, after the last event that it got
                for event in events:
                    at = event.line.path
                    wanted = f"{at}:".startswith(f"{prefix}:" if prefix else "") and kind in ("", kind_of(at))
                    if wanted and (may_see is None or may_see(at)):
                        yield f"id: {event.id}\nevent: change\ndata: {event.line.model_dump_json()}\n\n"
                if events:
                    cursor = parse_cursor(events[-1].id)
                yield f"id: {cursor}\n\n" if events else ": no news\n\n"
    finally:
        gateway.streams -= 1


def _find_kind(name: str) -> Kind:
    try:
        return registry.find_kind(name)
    except Refused as refused:
        raise Refused(Category.NOT_FOUND, refused.message, refused.hint) from refused


def _kind_view(kind: Kind) -> KindView:
    return KindView(
        name=kind.name,
        help=kind.help,
        scope=list(kind.scope),
        member=kind.member,
        statuses=list(kind.table.statuses),
        actions=list(kind.requestable_actions),
        signals=[signal.name for signal in kind.signals],
    )


def _wait_seconds(prefer: str) -> float:
    if "respond-async" in prefer:
        return 0
    wished = re.search(r"\bwait=(\d{1,6})\b", prefer)
    return min(float(wished[1]), MAX_WAIT_SECONDS) if wished else DEFAULT_WAIT_SECONDS


def _json_response(
    model: BaseModel, status: HTTPStatus = HTTPStatus.OK, headers: dict[str, str] | None = None
) -> Response:
    return Response(model.model_dump_json(), status, headers, "application/json")


def _etag_response(request: Request, model: BaseModel) -> Response:
    """The model with its ETag, or 304 if the caller has it already."""
    body = model.model_dump_json()
    tag = f'"{hashlib.sha256(body.encode()).hexdigest()[:32]}"'
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={"ETag": tag})
    return Response(body, headers={"ETag": tag}, media_type="application/json")
