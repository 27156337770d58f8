"""Converts refusals to Temporal errors and back. Pure, so that workflows may use it as well."""

from __future__ import annotations

from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from domain import wire
from domain.model import Refusal


def refusal_as_error(refusal: Refusal) -> ApplicationError:
    """Returns the error with which a refused run, update or read closes."""
    return ApplicationError(
        refusal.message,
        refusal,
        type=wire.REFUSED_ERROR_TYPE,
        category=ApplicationErrorCategory.BENIGN,  # an answer, not an incident
        non_retryable=True,
    )


def refusal_of_error(cause: BaseException | None) -> Refusal | None:
    """Returns the refusal in an error, or None."""
    if isinstance(cause, ApplicationError) and cause.type == wire.REFUSED_ERROR_TYPE and cause.details:
        return Refusal.model_validate(cause.details[0])
    return None
