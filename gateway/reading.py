"""Every read of the inventory by its name, for `starter` and other programs of this project: not in the document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from http import HTTPStatus
from typing import Annotated, Any, get_type_hints

from fastapi import APIRouter, Body, Depends, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ValidationError

from client.gateway import READS_PATH, STATUS_ROUTE
from domain.model import ReadQuery
from domain.validation import describe_validation_errors
from gateway.context import ErrorTranslatingRoute, authenticate_reader, gateway_of_request
from gateway.problems import problem_response
from gateway.tokens import Caller

Reader = Annotated[Caller | None, Depends(authenticate_reader)]  # None: the query says who asks
router = APIRouter(
    route_class=ErrorTranslatingRoute,
    include_in_schema=False,
)


@router.post(STATUS_ROUTE)
async def answer_status(request: Request, reader: Reader, query: ReadQuery) -> Response:
    """Answer a status as `starter` prints it, for a command that then needs no models. Only for own programs."""
    gateway = gateway_of_request(request)
    if gateway.read_status is None or reader is not None or not gateway.ratchet.store_reads:
        return _no_such_read()
    page = await gateway.read_status(gateway.ratchet.claiming_client(query.requested_by), query.path)
    return JSONResponse(page)


@router.post(READS_PATH + "/{name}")
async def answer_named_query(
    request: Request, reader: Reader, name: str, query: Annotated[dict[str, Any], Body()]
) -> Response:
    """Answer a read that this gateway can answer without a worker."""
    ratchet = gateway_of_request(request).ratchet
    read = ratchet.store_reads.get(name)
    if read is None:
        return _no_such_read()
    asked, answer = _types_of_read(read)
    try:
        parsed = asked.model_validate(query)
    except ValidationError as error:
        why = describe_validation_errors(error, "query")
        return problem_response(HTTPStatus.UNPROCESSABLE_ENTITY, "bad-query", why, "use programs of one version")
    client = ratchet.acting_for(reader.name, reader.login) if reader is not None else ratchet.forwarding_client()
    found = await client.run_query(name, parsed, answer)
    return Response(found.model_dump_json(), media_type="application/json")


def _no_such_read() -> Response:
    return problem_response(HTTPStatus.NOT_FOUND, "no-such-read", "this gateway does not answer that", "ask a worker")


@cache
def _types_of_read(read: Callable[..., Awaitable[Any]]) -> tuple[type[BaseModel], type[BaseModel]]:
    """The models of a read's query and answer. Kept: to resolve them takes longer than the read itself."""
    types = get_type_hints(read)
    answer: type[BaseModel] = types.pop("return")
    (asked,) = types.values()
    return asked, answer
