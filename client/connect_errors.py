"""Translates errors of a connection or call to Temporal into: what, why, what next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from temporalio.client import RPCTimeoutOrCancelledError, WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from client.encryption import RefusedPayload, UnreadablePayload
from client.errors import AnswerTooLarge, LostContact, Unanswered, Unreachable
from domain import wire
from domain.errors import Category, Refused, format_one_line

START_HINT = "start everything with: starter up (or set TEMPORAL_ADDRESS to a server that runs elsewhere)"
STANDALONE_HINT = (
    "activity.enableStandalone: true in the server's dynamic configuration, as in deploy/dynamicconfig.yaml"
)
RIGHTS_HINT = "a key or a certificate with the right to write there: see the profile, or TEMPORAL_API_KEY"
PROFILE_HINT = "look at the profile in temporal.toml (--profile), or at the TEMPORAL_* variables"


@dataclass(frozen=True)
class ConnectErrorPattern:
    """Words in an error message, what they mean, and the hint."""

    words: tuple[str, ...]
    explanation: str
    hint: str
    there: bool = True  # True: a server answered and turned us away; False: no server answered


# The first match wins.
ERROR_PATTERNS = (
    ConnectErrorPattern(("Connection refused", "ConnectionRefused"), "connection refused", START_HINT, there=False),
    ConnectErrorPattern(("dns error", "failed to lookup"), "unknown host", PROFILE_HINT, there=False),
    ConnectErrorPattern(
        ("Unauthenticated", "PermissionDenied"),
        "it does not accept our API key or certificate",
        "a new key in TEMPORAL_API_KEY or in the profile; and is it for this namespace?",
    ),
    ConnectErrorPattern(
        ("InconsistentKeys", "KeyMismatch"),
        "the client certificate and its key do not belong together",
        "client_cert_path and client_key_path of the profile, or TEMPORAL_TLS_CLIENT_*",
    ),
    ConnectErrorPattern(
        ("PrivateKeyParseError", "CertificateParseError", "NoCertificatesPresented", "InvalidPem"),
        "the client certificate or its key is no PEM file",
        "client_cert_path and client_key_path of the profile, or TEMPORAL_TLS_CLIENT_*",
    ),
    ConnectErrorPattern(
        ("ExpiredContext", "InvalidCertificate(Expired"),
        "its certificate has expired",
        "the server's operator must renew its certificate",
    ),
    ConnectErrorPattern(
        ("UnknownIssuer", "InvalidCertificate(BadSignature"),
        "its certificate is signed by nobody whom we trust",
        "server_ca_cert_path of the profile, or TEMPORAL_TLS_SERVER_CA_CERT_PATH: the authority that signed it",
    ),
    ConnectErrorPattern(
        ("NotValidForName",),
        "its certificate is for another name",
        "the address by that name, or server_name of the profile (TEMPORAL_TLS_SERVER_NAME)",
    ),
    ConnectErrorPattern(("InvalidCertificate",), "its certificate is not valid", PROFILE_HINT),
    ConnectErrorPattern(
        ("InvalidContentType",), "it does not speak TLS, and we do", "no [tls] in the profile, or TEMPORAL_TLS=false"
    ),
    ConnectErrorPattern(
        ("fatal alert", "AlertReceived"),
        "it does not accept our certificate",
        "a client certificate that it trusts and that has not expired: client_cert_path of the profile",
    ),
    ConnectErrorPattern(
        (
            "ConnectionReset",
            "UnexpectedEof",
            "BrokenPipe",
            "IncompleteMessage",
            "ConnectionAborted",
            "connection closed",
        ),
        "it hung up at once",
        "it may want TLS, or a client certificate that it trusts and that has not expired: see the profile's [tls]",
    ),
)


_REFUSAL_CODES = (
    RPCStatusCode.NOT_FOUND,
    RPCStatusCode.INVALID_ARGUMENT,
    RPCStatusCode.FAILED_PRECONDITION,
    RPCStatusCode.PERMISSION_DENIED,
    RPCStatusCode.UNAUTHENTICATED,
    RPCStatusCode.UNIMPLEMENTED,
)


def unreachable_at_address(address: str, said: str) -> Unreachable:
    """Returns the error for a connection that failed with this message."""
    for sign in ERROR_PATTERNS:
        if any(words in said for words in sign.words):
            why = f"Temporal at {address}: " if sign.there else f"no Temporal server at {address}: "
            return Unreachable(why + sign.explanation, sign.hint)
    return Unreachable(f"no Temporal server at {address}: {format_one_line(said, 160)}", START_HINT)


@contextmanager
def explain_guessed_address(address: str, home: Path) -> Iterator[None]:
    """Adds to what was not found or not reached that nobody named this server, and how to name another."""
    where = f"{address} was asked, because no stack of `starter up` was found in {home.absolute()}"
    hint = "if it runs elsewhere, go to its folder, or set RATCHET_HOME or TEMPORAL_ADDRESS"
    try:
        yield
    except Refused as refused:
        if refused.category is Category.NOT_FOUND:
            refused.message = f"{refused.message} ({where})"
            refused.args = (refused.message,)
            refused.hint = "; ".join(filter(None, (hint, refused.hint)))
        raise
    except (Unanswered, LostContact, AnswerTooLarge):
        raise  # there is a server, and it had begun to answer
    except Unreachable as error:
        error.args = (f"{error} ({where})",)
        error.hint = f"{error.hint}; {hint}"
        raise


def is_outage(error: RPCError) -> bool:
    """Tells whether Temporal could not answer, rather than that it refused."""
    return error.status not in _REFUSAL_CODES


def to_unreachable(error: RPCError, namespace: str) -> Unreachable:
    """Returns an Unreachable with Temporal's message and a hint."""
    said = format_one_line(error.message, 200)
    if "has no mapping defined" in said or "search attribute" in said.lower():
        return Unreachable(f"Temporal lacks our search attributes: {said}", "starter setup")
    if "namespace" in said.lower() and "not found" in said.lower():
        return Unreachable(f"Temporal has no namespace {namespace!r}", "create it, or set TEMPORAL_NAMESPACE")
    if "standalone activity" in said.lower():
        return Unreachable("Temporal's server runs no standalone activities, and every read is one", STANDALONE_HINT)
    if error.status.name in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        return Unreachable(f"Temporal does not let us do this in the namespace {namespace!r}: {said}", RIGHTS_HINT)
    return Unreachable(f"Temporal answered {error.status.name}: {said}")


def is_refused_payload(error: BaseException | None) -> bool:
    """Tells whether a worker has refused what we sent, because of its payload. The type is readable without keys."""
    return isinstance(error, ApplicationError) and error.type == wire.REFUSED_PAYLOAD_ERROR_TYPE


def refused_payload_error() -> Unreachable:
    """Returns the error for such a worker."""
    return Unreachable(
        "the worker takes only what is encrypted with its keys; nothing was changed",
        "set RATCHET_KEYS_FILE to the workers' keys",
    )


@contextmanager
def translate_errors(namespace: str) -> Iterator[None]:
    """Raises Temporal's errors as ours: Unreachable, or Refused for a request that is too large."""
    try:
        yield
    except RPCError as error:
        raise to_unreachable(error, namespace) from error
    except RPCTimeoutOrCancelledError as error:
        raise Unanswered("the connection to Temporal broke before it answered") from error
    except RefusedPayload as error:
        why, hint = (
            f"an answer is refused: {error}",
            "set RATCHET_KEYS_FILE on all workers: one without it answers",
        )
        raise Unreachable(why, hint) from error
    except UnreadablePayload as error:
        why, hint = f"what a worker answered cannot be read: {error}", "set RATCHET_KEYS_FILE to the workers' keys"
        raise Unreachable(why, hint) from error
    except (WorkflowFailureError, WorkflowUpdateFailedError) as error:
        if not is_refused_payload(error.cause):
            raise
        raise refused_payload_error() from error
    except ApplicationError as error:
        if error.type != wire.TOO_LARGE_ERROR_TYPE:
            raise
        raise Refused(Category.INVALID, f"the request is too large: {error.message}", "ask for less at once") from error
