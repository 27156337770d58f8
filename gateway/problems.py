"""Errors as RFC 9457 problems: what happened, why, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from client.errors import AnswerTooLarge, Unreachable
from domain.errors import Category, Refused, StoreUnavailable, format_one_line
from domain.model import LockHolder, Refusal

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 2

STATUS_OF_CATEGORY = {
    Category.CONFLICT: HTTPStatus.CONFLICT,
    Category.NOT_ALLOWED: HTTPStatus.CONFLICT,
    Category.NOT_FOUND: HTTPStatus.NOT_FOUND,
    Category.INVALID: HTTPStatus.UNPROCESSABLE_ENTITY,
    Category.QUOTA: HTTPStatus.FORBIDDEN,
    Category.FORBIDDEN: HTTPStatus.FORBIDDEN,
}


class FieldError(BaseModel):
    """One wrong field of a request."""

    field: str
    message: str


class Problem(BaseModel):
    """The body of every error."""

    type: str
    title: str
    status: int
    detail: str
    hint: str = ""
    holders: list[LockHolder] = []
    errors: list[FieldError] = []


class Unauthorized(Exception):
    """The caller did not prove who it is."""


class TokensUnusable(Exception):
    """Nobody can prove who they are, because the file of tokens is wrong."""


KNOWN_ERRORS = (
    Refused,
    Unreachable,
    StoreUnavailable,
    Unauthorized,
    TokensUnusable,
    RequestValidationError,
    HTTPException,
)


def problem_response(
    status: HTTPStatus,
    kind: str,
    detail: str,
    hint: str = "",
    holders: list[LockHolder] | None = None,
    errors: list[FieldError] | None = None,
    retry_after: int = 0,
) -> JSONResponse:
    """The response for one problem."""
    body = Problem(
        type=f"urn:ratchet:{kind}",
        title=status.phrase,
        status=status,
        detail=detail,
        hint=hint,
        holders=holders or [],
        errors=errors or [],
    )
    retry_after = retry_after or (RETRY_SECONDS if status is HTTPStatus.SERVICE_UNAVAILABLE else 0)
    headers = {"Retry-After": str(retry_after)} if retry_after else {}
    return JSONResponse(body.model_dump(mode="json"), status, headers, MEDIA_TYPE)


def refusal_response(refusal: Refusal, wrong_fields: Sequence[tuple[str, str]] = ()) -> JSONResponse:
    """The response for a request that was refused."""
    too_many = refusal.retry_after > 0
    return problem_response(
        HTTPStatus.TOO_MANY_REQUESTS if too_many else STATUS_OF_CATEGORY[refusal.category],
        refusal.category.value,
        refusal.message,
        refusal.hint,
        holders=refusal.holders,
        errors=[FieldError(field=field, message=format_one_line(message)) for field, message in wrong_fields[:50]],
        retry_after=refusal.retry_after,
    )


def install_error_handlers(app: FastAPI) -> None:
    """Answer every error of the app with a problem."""
    for known in KNOWN_ERRORS:
        app.add_exception_handler(known, _answer_error)


async def _answer_error(request: Request, error: Exception) -> JSONResponse:
    match error:
        case Refused():
            return refusal_response(Refusal.from_error(error), error.wrong_fields)
        case RequestValidationError():
            return _invalid_request_response(request, error)
        case AnswerTooLarge():
            hint = "pass a smaller limit, or a prefix"
            return problem_response(HTTPStatus.UNPROCESSABLE_ENTITY, "too-much", str(error), hint)
        case Unauthorized():
            hint = "send: Authorization: Bearer TOKEN; see: starter token NAME"
            response = problem_response(HTTPStatus.UNAUTHORIZED, "unauthorized", str(error), hint)
            response.headers["WWW-Authenticate"] = "Bearer"
            return response
        case HTTPException():
            status = HTTPStatus(error.status_code)
            response = problem_response(status, status.phrase.lower().replace(" ", "-"), str(error.detail), "see /docs")
            response.headers.update(error.headers or {})
            return response
        case Unreachable():
            kind, why, hint = "unreachable", f"{error.headline}: {error}", error.hint
        case TokensUnusable():
            kind, why, hint = "tokens-unusable", str(error), "the gateway's log says why"
        case _:
            kind, why, hint = "store-unavailable", str(error), "try again"
    return problem_response(HTTPStatus.SERVICE_UNAVAILABLE, kind, why, hint)


def _invalid_request_response(request: Request, error: RequestValidationError) -> JSONResponse:
    errors = [to_field_error(each) for each in error.errors()]
    detail = "; ".join(f"{each.field}: {each.message}" for each in errors[:5])
    hint = "see /docs"
    if [each.field for each in errors] == ["body"] and "json" not in request.headers.get("content-type", ""):
        hint = "send the header Content-Type: application/json"  # curl -d says that a body is a form
    return problem_response(
        HTTPStatus.UNPROCESSABLE_ENTITY, "invalid", format_one_line(detail), hint, errors=errors[:50]
    )


def to_field_error(error: dict[str, Any]) -> FieldError:
    """Names the wrong field of a validation error."""
    place, *names = error["loc"]
    return FieldError(field=".".join(map(str, names)) or str(place), message=format_one_line(error["msg"]))
