"""Makes the application of a dialect: its routes, with errors in its own style."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from client.errors import AnswerTooLarge, Unreachable
from domain.errors import Category, Refused, format_one_line
from domain.model import ActionResult, Outcome
from gateway.problems import KNOWN_ERRORS, RETRY_SECONDS, STATUS_OF_CATEGORY, Unauthorized, to_field_error

USUAL_STATUSES = {**STATUS_OF_CATEGORY, Category.INVALID: HTTPStatus.BAD_REQUEST}
# Errors of every route, for the document that the tests check answers against.
ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": HTTPStatus(status).phrase}
    for status in (400, 401, 403, 404, 406, 408, 409, 413, 421, 429, 503)
}


@dataclass(frozen=True)
class ErrorAnswer:
    """An error before a dialect renders it: its HTTP status, what happened, and what to do next."""

    status: HTTPStatus
    message: str
    hint: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DialectErrorFormat:
    """How a dialect answers errors."""

    render: Callable[[ErrorAnswer], Response]
    statuses: Mapping[Category, HTTPStatus] = field(default_factory=dict)  # where they differ from the usual ones

    def describe_error(self, error: Exception) -> ErrorAnswer:
        """Returns the failure that an exception stands for."""
        if isinstance(error, Refused):
            if error.retry_after:
                later = {"Retry-After": str(error.retry_after)}
                return ErrorAnswer(HTTPStatus.TOO_MANY_REQUESTS, error.message, error.hint, later)
            status = self.statuses.get(error.category, USUAL_STATUSES[error.category])
            return ErrorAnswer(status, error.message, error.hint)
        if isinstance(error, AnswerTooLarge):
            return ErrorAnswer(HTTPStatus.BAD_REQUEST, str(error), "ask for less at once")
        if isinstance(error, Unauthorized):
            hint = "the password, or the token, is one that `starter token NAME` printed"
            return ErrorAnswer(HTTPStatus.UNAUTHORIZED, str(error), hint, {"WWW-Authenticate": "Bearer"})
        if isinstance(error, RequestValidationError):
            wrong = [to_field_error(each) for each in error.errors()]
            text = "; ".join(f"{each.field}: {each.message}" for each in wrong[:5])
            return ErrorAnswer(HTTPStatus.BAD_REQUEST, format_one_line(text))
        if isinstance(error, HTTPException):
            return ErrorAnswer(HTTPStatus(error.status_code), str(error.detail), headers=dict(error.headers or {}))
        hint = error.hint if isinstance(error, Unreachable) else "try again"
        return ErrorAnswer(HTTPStatus.SERVICE_UNAVAILABLE, str(error), hint, {"Retry-After": str(RETRY_SECONDS)})


def failure_status(outcome: Outcome) -> HTTPStatus:
    """Returns the status for an action that did not succeed: another one took over from it, or it failed itself."""
    return HTTPStatus.CONFLICT if outcome.result is ActionResult.CANCELLED else HTTPStatus.INTERNAL_SERVER_ERROR


def build_dialect_app(router: APIRouter, style: DialectErrorFormat) -> FastAPI:
    """Builds the application of one dialect. It serves no OpenAPI document: its clients have one."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)

    async def answer_error(_request: Request, error: Exception) -> Response:
        failure = style.describe_error(error)
        response = style.render(failure)
        response.headers.update(failure.headers)
        return response

    for known in KNOWN_ERRORS:
        app.add_exception_handler(known, answer_error)
    app.include_router(router, responses=ERROR_RESPONSES)
    return app
