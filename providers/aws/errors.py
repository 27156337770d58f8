"""Translates EC2's errors: whether a retry can help, and whether the outcome is known.

EC2's message about a failed signature repeats parts of the request: such messages are replaced, all others scrubbed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from domain.errors import NoCapacity, ProviderError, Rejected, Throttled, Unavailable, UnknownOutcome, format_one_line

MAX_TEXT_LENGTH = 300

# fmt: off
THROTTLED_CODES = {
    "RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled",
    "RequestThrottledException", "TooManyRequestsException", "EC2ThrottledException", "SlowDown",
}
NO_CAPACITY_CODES = {
    "InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity",
    "InsufficientCapacity", "InsufficientFreeAddressesInSubnet", "InstanceLimitExceeded", "VcpuLimitExceeded",
    "MaxSpotInstanceCountExceeded", "VolumeLimitExceeded", "Server.InsufficientInstanceCapacity",
}
OVERLOADED_CODES = {"Unavailable", "ServiceUnavailable"}  # EC2 did not accept the call
EXPIRED_CODES = {"ExpiredToken", "ExpiredTokenException", "RequestExpired"}
NOT_TRUSTED_CODES = {
    "AuthFailure", "InvalidClientTokenId", "SignatureDoesNotMatch", "InvalidSignatureException", "IncompleteSignature",
    "MissingAuthenticationToken", "UnrecognizedClientException", "OptInRequired", "Blocked", "PendingVerification",
}
NOT_PERMITTED_CODES = {"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"}
# fmt: on

# The token was used before: the VM of its first call must be looked up.
TOKEN_REUSED_CODES = {"IdempotentParameterMismatch", "IdempotentInstanceTerminated"}

_ACCESS_KEY = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b")


class Ec2CallRejected(Rejected):
    """EC2 rejected a call, with its own error code."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def is_not_found(self) -> bool:
        """Whether the error is about a resource that does not exist."""
        return self.code.endswith((".NotFound", ".NotAttached"))


def translate_error(error: Exception, changing: bool, secrets: Iterable[str] = ()) -> ProviderError | None:
    """Translates an exception of boto3 into a ProviderError; returns None for a bug of ours."""
    botocore = import_module("botocore.exceptions")
    not_reached = (botocore.EndpointConnectionError, botocore.ConnectTimeoutError, botocore.ProxyConnectionError)
    if isinstance(error, botocore.ClientError):
        return _translate_error_response(error, changing, secrets)
    said = redact_secrets(f"{type(error).__name__}: {error}", secrets)
    if isinstance(error, botocore.ProfileNotFound | botocore.NoCredentialsError | botocore.PartialCredentialsError):
        return Rejected(f"AWS credentials: {said}")
    if isinstance(error, not_reached):
        return Unavailable(f"EC2 cannot be reached: {said}")
    broken_off = isinstance(error, botocore.HTTPClientError | botocore.ConnectionError)
    if broken_off or type(error).__name__ == "ResponseParserError":
        return UnknownOutcome(f"no answer from EC2: {said}") if changing else Unavailable(f"no answer from EC2: {said}")
    if isinstance(error, botocore.BotoCoreError):
        return Rejected(said)
    return None


def _translate_error_response(error: Any, changing: bool, secrets: Iterable[str]) -> ProviderError:
    told, meta = error.response.get("Error", {}), error.response.get("ResponseMetadata", {})
    code, status = str(told.get("Code", "")), int(meta.get("HTTPStatusCode", 0))
    said = redact_secrets(f"{code}: {told.get('Message', '')}", secrets)
    if code in THROTTLED_CODES or status == 429:
        return Throttled(said, _read_retry_after(meta.get("HTTPHeaders", {})))
    if code in NO_CAPACITY_CODES:
        return NoCapacity(said)
    if code in EXPIRED_CODES:
        return Unavailable(f"{code}: the AWS credentials have expired; renew them")
    if code in NOT_TRUSTED_CODES:
        return Ec2CallRejected(f"{code}: AWS does not accept these credentials; see: starter connections --check", code)
    if code in NOT_PERMITTED_CODES:
        return Ec2CallRejected(f"{code}: these AWS credentials may not do this; docs/aws.md lists what they need", code)
    if code in OVERLOADED_CODES:
        return Unavailable(said)
    if status >= 500 or not code:
        return UnknownOutcome(said) if changing else Unavailable(said)
    return Ec2CallRejected(said, code)


def redact_secrets(text: str, secrets: Iterable[str]) -> str:
    """Returns the text as one short line, without these secrets and without access keys."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return format_one_line(_ACCESS_KEY.sub("***", text), MAX_TEXT_LENGTH)


def _read_retry_after(headers: dict[str, str]) -> float | None:
    try:
        return float(headers["retry-after"])
    except (KeyError, ValueError):
        return None
