"""Refusals as Temporal carries them: an error with the refusal inside. Pure, so that workflows may use it as well."""

from __future__ import annotations

from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from domain import wire
from domain.model import Refusal


def refused(refusal: Refusal) -> ApplicationError:
    """The error that a run, an update or a read closes with."""
    return ApplicationError(
        refusal.message,
        refusal,
        type=wire.REFUSED,
        category=ApplicationErrorCategory.BENIGN,  # an answer, not an incident: logged quietly
        non_retryable=True,
    )


def refusal_in(cause: BaseException | None) -> Refusal | None:
    """The refusal that it closed with, if it was one."""
    if isinstance(cause, ApplicationError) and cause.type == wire.REFUSED and cause.details:
        return Refusal.model_validate(cause.details[0])
    return None
