"""The native API, /v1: kinds, objects, actions, history, locks, events. Its table is the registry."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from client.launching import within
from domain import registry, wire
from domain.errors import Category, RatchetError, Refused
from domain.events import EventCursor, parse_cursor
from domain.kinds import Kind
from domain.locks import LocksView
from domain.model import (
    Admission,
    HistoryView,
    Model,
    ObjectsView,
    ObjectView,
    Progress,
    ShortText,
    TreeView,
)
from domain.model import Query as StoreQuery
from domain.model import Request as ActionRequest
from domain.paths import kind_of
from domain.runs import ActionView
from gateway.context import MAX_STREAMS, Caller, Gateway, Ratchet, TranslatedRoute, authenticate, gateway_of
from gateway.openapi import PROBLEMS
from gateway.problems import answer, refusal_answer

DEFAULT_WAIT = 30.0  # seconds until an action's outcome is asked for again
MAX_WAIT = 60.0
HEARTBEAT = 15.0  # seconds between comments in a silent stream: proxies cut off what says nothing
PAGES = 40  # read at most for one answer when a status is asked for

router = APIRouter(prefix="/v1", dependencies=[Depends(authenticate)], responses=PROBLEMS, route_class=TranslatedRoute)
ObjectPath = Annotated[str, Path(description="The object's path.", examples=["ns:default:mci:web"], max_length=500)]
RunId = Annotated[str, Path(description="The run that `Location` names.", max_length=100)]
Limit = Annotated[int, Query(ge=1, le=1_000)]


class KindView(Model):
    """A kind of object: where it stands, and its actions."""

    name: str
    help: str
    scope: list[str]
    member: str | None
    statuses: list[str]
    actions: list[str]


class StateRow(Model):
    """One row of a state table."""

    action: str
    actor: str
    source: str
    during: str | None
    then: str
    otherwise: str | None
    force: bool


class ObjectPage(Model):
    """A page of objects. `next` is the `after` of the next page; empty on the last one."""

    objects: list[ObjectView]
    next: str = ""


class ActionBody(BaseModel):
    """What an action is asked for with."""

    model_config = ConfigDict(extra="forbid")

    spec: dict[str, Any] | None = None
    reason: ShortText = ""
    force: bool = False


class RunView(Model):
    """An action, with its progress while it runs and its outcome afterwards."""

    action: ActionView
    progress: Progress | None = None


@router.get("/kinds")
async def list_kinds() -> list[KindView]:
    """Every kind of object."""
    return [_kind_view(kind) for kind in registry.KINDS.values()]


@router.get("/kinds/{kind}/states")
async def get_state_table(kind: str) -> list[StateRow]:
    """The state table of a kind: which action leads from where to where."""
    return [
        StateRow(
            action=row.action,
            actor=row.actor,
            source=row.source,
            during=row.during,
            then=row.then,
            otherwise=row.otherwise,
            force=row.force,
        )
        for row in _known_kind(kind).table.rows
    ]


@router.get("/kinds/{kind}/schema")
async def get_schemas(kind: str) -> dict[str, dict[str, Any]]:
    """The JSON Schema of each action's spec; an action that takes none is left out."""
    verbs = (verb for verb in _known_kind(kind).verbs if verb.spec and not verb.hidden)
    return {verb.action: verb.spec.model_json_schema() for verb in verbs if verb.spec}


@router.get("/objects")
async def list_objects(
    request: Request,
    ratchet: Ratchet,
    kind: Annotated[str, Query(examples=["mci"], max_length=100)],
    prefix: Annotated[str, Query(description="Only objects at or below this path.", max_length=500)] = "",
    after: Annotated[str, Query(description="The `next` of the page before.", max_length=500)] = "",
    limit: Limit = 100,
    status: Annotated[str, Query(description="Only objects in this status.", max_length=100)] = "",
) -> Response:
    """Objects of a kind, a page at a time, in the order of their paths."""
    found: list[ObjectView] = []
    for _ in range(PAGES):
        query = StoreQuery(kind=kind, path=prefix, after=after, limit=limit)
        page = (await ratchet.read(wire.READ_OBJECTS, query, ObjectsView)).objects
        found += [view for view in page if not status or view.status == status][: limit - len(found)]
        after = page[-1].path if len(page) == limit else ""
        if len(found) == limit or not after:
            break
    if len(found) == limit and status:
        after = found[-1].path
    return _conditional(request, ObjectPage(objects=found, next=after))


@router.get("/objects/{path}")
async def get_object(request: Request, ratchet: Ratchet, path: ObjectPath) -> Response:
    """One object: its status, spec and info."""
    return _conditional(request, await ratchet.get(path))


@router.get("/objects/{path}/tree")
async def get_tree(ratchet: Ratchet, path: ObjectPath, limit: Limit = 20) -> TreeView:
    """A group with its members counted by placement and status, and the first errors."""
    return await ratchet.read(wire.READ_TREE, StoreQuery(path=path, limit=limit), TreeView)


@router.get("/objects/{path}/history")
async def get_history(
    ratchet: Ratchet,
    path: ObjectPath,
    after: Annotated[int, Query(description="Only lines with a higher `seq`.", ge=0, le=2**63 - 1)] = 0,
    limit: Limit = 100,
) -> HistoryView:
    """The last status changes of an object, oldest first."""
    lines = (await ratchet.read(wire.READ_HISTORY, StoreQuery(path=path, limit=limit), HistoryView)).lines
    return HistoryView(lines=[line for line in lines if line.seq > after])


@router.get("/objects/{path}/locks")
async def get_locks(ratchet: Ratchet, path: ObjectPath) -> LocksView:
    """The locks at or below a path: which action holds what, since when."""
    return await ratchet.read(wire.READ_LOCKS, StoreQuery(path=path), LocksView)


@router.post("/objects/{path}/actions/{action}")
async def request_action(
    ratchet: Ratchet,
    caller: Caller,
    path: ObjectPath,
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
    try:
        request = ActionRequest(path=path, action=action, requested_by=caller, request_id=idempotency_key, **given)
    except ValidationError as error:
        raise RequestValidationError([{**each, "loc": ("path", *each["loc"])} for each in error.errors()]) from error
    if dry_run:
        return _admission_answer(await ratchet.check(request))
    ticket = await ratchet.ask(request)
    if ticket.admission.refusal:
        return refusal_answer(ticket.admission.refusal)
    if ticket.admission.outcome:
        return _json(ticket.admission.outcome)
    location = f"/v1/actions/{ticket.run}"
    try:
        outcome = await within(_wait_seconds(prefer), ratchet.outcome(ticket.path, ticket.run))
    except TimeoutError:
        progress = Progress(path=path, action=action, phase="running")
        return _json(progress, HTTPStatus.ACCEPTED, {"Location": location, "Retry-After": "1"})
    return _json(outcome, headers={"Content-Location": location})


@router.get("/actions/{run}")
async def get_action(ratchet: Ratchet, run: RunId) -> RunView:
    """An action: its progress while it runs, its outcome afterwards."""
    view = await ratchet.read(wire.READ_ACTION, StoreQuery(run=run), ActionView)
    if view.outcome:
        return RunView(action=view)
    return RunView(action=view, progress=await ratchet.glimpse(registry.owner_of(view.path, view.action), run))


@router.delete("/actions/{run}", status_code=HTTPStatus.ACCEPTED)
async def cancel_action(ratchet: Ratchet, run: RunId) -> RunView:
    """Ask a running action to clean up and end. Its outcome tells what became of it."""
    view = await ratchet.read(wire.READ_ACTION, StoreQuery(run=run), ActionView)
    if view.outcome:
        raise Refused(
            Category.NOT_ALLOWED, f"the action has ended: {view.outcome.result}", "there is nothing to cancel"
        )
    await ratchet.client.get_workflow_handle(registry.owner_of(view.path, view.action), run_id=run).cancel()
    return RunView(action=view)


@router.get("/events", response_class=StreamingResponse)
async def follow_events(
    request: Request,
    prefix: Annotated[str, Query(description="Only events at or below this path.", max_length=500)] = "",
    kind: Annotated[str, Query(description="Only events of this kind of object.", max_length=100)] = "",
    last_event_id: Annotated[
        str, Header(description="Resume after this event; 0 is the beginning. Without it: from now on.")
    ] = "",
) -> Response:
    """Status changes as server-sent events. `Last-Event-ID` resumes with no event lost or doubled."""
    gateway = gateway_of(request)
    if gateway.streams >= MAX_STREAMS:
        return answer(
            HTTPStatus.SERVICE_UNAVAILABLE, "too-many-streams", f"{MAX_STREAMS} event streams are open", "try again"
        )
    if kind:
        registry.kind(kind)
    cursor = parse_cursor(last_event_id) if last_event_id else await gateway.feed.newest()
    try:
        await gateway.feed.page(cursor)  # a position that is gone is an error now, not a stream that breaks off
    except Refused as refused:
        if refused.category is not Category.NOT_FOUND:
            raise
        return answer(HTTPStatus.GONE, "gone", refused.message, refused.hint)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_stream(gateway, cursor, prefix, kind), headers=headers, media_type="text/event-stream")


async def _stream(gateway: Gateway, cursor: EventCursor, prefix: str, kind: str) -> AsyncIterator[str]:
    gateway.streams += 1
    try:
        async with gateway.feed.following():
            yield f"retry: 1000\nid: {cursor}\n\n"
            while True:
                try:
                    events = await gateway.feed.after(cursor, HEARTBEAT)
                except RatchetError:
                    return  # the reader connects again, after the last event that it got
                for event in events:
                    at = event.line.path
                    if f"{at}:".startswith(f"{prefix}:" if prefix else "") and kind in ("", kind_of(at)):
                        yield f"id: {event.id}\nevent: change\ndata: {event.line.model_dump_json()}\n\n"
                if events:
                    cursor = parse_cursor(events[-1].id)
                yield f"id: {cursor}\n\n" if events else ": no news\n\n"
    finally:
        gateway.streams -= 1


def _known_kind(name: str) -> Kind:
    try:
        return registry.kind(name)
    except Refused as refused:
        raise Refused(Category.NOT_FOUND, refused.message, refused.hint) from refused


def _kind_view(kind: Kind) -> KindView:
    return KindView(
        name=kind.name,
        help=kind.help,
        scope=list(kind.scope),
        member=kind.member,
        statuses=list(kind.table.statuses),
        actions=list(kind.offered),
    )


def _wait_seconds(prefer: str) -> float:
    if "respond-async" in prefer:
        return 0
    wished = re.search(r"\bwait=(\d{1,6})\b", prefer)
    return min(float(wished[1]), MAX_WAIT) if wished else DEFAULT_WAIT


def _admission_answer(admission: Admission) -> Response:
    return refusal_answer(admission.refusal) if admission.refusal else _json(admission)


def _json(model: BaseModel, status: HTTPStatus = HTTPStatus.OK, headers: dict[str, str] | None = None) -> Response:
    return Response(model.model_dump_json(), status, headers, "application/json")


def _conditional(request: Request, model: BaseModel) -> Response:
    """The model with its ETag, or 304 if the caller has it already."""
    body = model.model_dump_json()
    tag = f'"{hashlib.sha256(body.encode()).hexdigest()[:32]}"'
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={"ETag": tag})
    return Response(body, headers={"ETag": tag}, media_type="application/json")
