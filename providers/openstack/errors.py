"""Translates OpenStack's answers: whether a retry can help, and whether the outcome is known."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from domain.errors import NoCapacity, ProviderError, Rejected, Throttled, Unavailable, UnknownOutcome, format_one_line

MAX_TEXT_LENGTH = 300
_FULL = ("quota exceeded", "no valid host", "exceeded maximum number of retries", "insufficient compute resources")


class CallRejected(Rejected):
    """OpenStack rejected a call, with its HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Busy(Unavailable):
    """OpenStack says 409: something else is under way; a retry helps once that is over."""


def means_full(text: str) -> bool:
    """Tells whether a message of OpenStack says that there is no room, or that a quota is used up."""
    return any(words in text.lower() for words in _FULL)


def translate_answer(answer: Any, changing: bool, secrets: Iterable[str]) -> ProviderError | None:
    """Translates an answer into a ProviderError; returns None if it is none."""
    status = int(answer.status_code)
    if status < 400:
        return None
    said = redact_secrets(f"{status}: {_read_message(answer)}", secrets)
    if status == 429 or (status == 413 and "Retry-After" in answer.headers):
        return Throttled(said, _read_retry_after(answer.headers))
    if means_full(said) and status in (403, 409, 413):
        return NoCapacity(said)
    if status == 401:
        return CallRejected(
            "401: OpenStack does not accept these credentials; see: starter connections --check", status
        )
    if status == 409:
        return Busy(said)
    if status == 503:
        return Unavailable(said)
    if status >= 500:
        return UnknownOutcome(said) if changing else Unavailable(said)
    return CallRejected(said, status)


def translate_error(error: Exception, changing: bool, secrets: Iterable[str]) -> ProviderError | None:
    """Translates an exception of the SDK into a ProviderError; returns None for a bug of ours."""
    ours = import_module("keystoneauth1.exceptions")
    theirs = import_module("openstack.exceptions")
    said = redact_secrets(f"{type(error).__name__}: {error}", secrets)
    if isinstance(error, ours.ConnectFailure | ours.ConnectTimeout | ours.UnknownConnectionError):
        if _was_never_sent(error):
            return Unavailable(f"OpenStack cannot be reached: {said}")
        why = f"no answer from OpenStack: {said}"
        return UnknownOutcome(why) if changing else Unavailable(why)
    if isinstance(error, ours.DiscoveryFailure | theirs.ServiceDiscoveryException):
        return Unavailable(f"OpenStack's service does not describe itself: {said}")  # as one that is away does not
    if isinstance(error, ours.HttpError) and int(error.http_status or 0) >= 500:
        return Unavailable(f"OpenStack cannot sign in: {said}")
    if isinstance(error, ours.Unauthorized | ours.MissingAuthPlugin | ours.AuthPluginException):
        return Rejected(f"OpenStack does not accept these credentials ({type(error).__name__})")
    if isinstance(error, ours.ClientException | theirs.SDKException):
        return Rejected(said)
    return None


def redact_secrets(text: str, secrets: Iterable[str]) -> str:
    """Returns the text as one short line, without these secrets."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return format_one_line(text, MAX_TEXT_LENGTH)


def _was_never_sent(error: BaseException) -> bool:
    """Tells whether no connection was made: the SDK's error is the same as for one that broke off."""
    connecting = import_module("urllib3.exceptions").NewConnectionError
    timed_out = import_module("requests.exceptions").ConnectTimeout
    seen: BaseException | None = error
    while seen is not None:
        causes = [seen, *(each for each in seen.args if isinstance(each, BaseException)), getattr(seen, "reason", None)]
        if any(isinstance(each, connecting | timed_out) for each in causes):
            return True
        inner = next((each for each in seen.args if isinstance(each, BaseException)), None)
        if isinstance(getattr(inner, "reason", None), connecting):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _read_message(answer: Any) -> str:
    """Returns the message in an error body: Nova's is {kind: {message}}, Neutron's {NeutronError: {message}}."""
    try:
        [told] = answer.json().values()
        return str(told["message"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return str(answer.text)[:MAX_TEXT_LENGTH]


def _read_retry_after(headers: Any) -> float | None:
    try:
        return float(headers["Retry-After"])
    except (KeyError, ValueError):
        return None
