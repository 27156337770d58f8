"""One command's connection to Temporal, whose SDK is imported here, and late: that takes most of a second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from domain import wire
from domain.errors import Category, Refused, brief
from starter.errors import Unreachable
from starter.reaching import unreachable_at

if TYPE_CHECKING:
    from temporalio.client import Client
    from temporalio.service import RPCError

    from starter.asking import Asking
    from workers.settings import Settings

CONNECT_SECONDS = 5
STANDALONE = "activity.enableStandalone: true in the server's dynamic configuration, as in deploy/dynamicconfig.yaml"
RIGHTS = "a key or a certificate with the right to write there: see the profile, or TEMPORAL_API_KEY"
COMMAND: ContextVar[str] = ContextVar("COMMAND", default="starter")  # what a trace is called
_KEPT: ContextVar[Asking | None] = ContextVar("KEPT", default=None)


@asynccontextmanager
async def session() -> AsyncIterator[Asking]:
    """A way to ask, or Unreachable. What Temporal itself says while we ask becomes Unreachable too."""
    if kept := _KEPT.get():
        yield kept
        return
    from temporalio.exceptions import ApplicationError
    from temporalio.service import RPCError

    from starter.asking import Asking
    from workers.payloads import UnreadablePayload
    from workers.telemetry import traced

    settings = load_settings()
    client = await _connect(settings)
    try:
        with traced(settings, COMMAND.get()):
            yield Asking(client, web_ui(settings, client.service_client.config.target_host))
    except RPCError as error:
        raise unreachable(error, client.namespace) from error
    except UnreadablePayload as error:
        why, hint = f"what a worker answered cannot be read: {error}", "set RATCHET_KEYS_FILE to the workers' keys"
        raise Unreachable(why, hint) from error
    except ApplicationError as error:
        if error.type != wire.TOO_LARGE:
            raise
        raise Refused(Category.INVALID, f"the request is too large: {error.message}", "ask for less at once") from error


@asynccontextmanager
async def lasting() -> AsyncIterator[None]:
    """One connection for every session within: for those who ask again and again."""
    async with session() as asking:
        before = _KEPT.set(asking)
        try:
            yield
        finally:
            _KEPT.reset(before)


def load_settings(**given: object) -> Settings:
    """RATCHET_* variables, with what the command line says on top."""
    from pydantic import ValidationError

    from domain.fields import explain
    from workers.settings import Settings

    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    except ValidationError as error:
        raise Refused(
            Category.INVALID, f"a setting is wrong: {explain(error)}", "see the RATCHET_* variables"
        ) from error


def web_ui(settings: Settings, address: str) -> str:
    """The Web UI's address: as told, or the embedded server's if that is who we talk to; else nothing."""
    from workers.connection import embedded

    known = embedded(settings.home)
    own = str(known.get("ui", "")) if known.get("address") == address else ""
    return (settings.ui_url or own).rstrip("/")


def unreachable(error: RPCError, namespace: str) -> Unreachable:
    """Temporal's words, with the way out."""
    said = brief(error.message, 200)
    if "has no mapping defined" in said or "search attribute" in said.lower():
        return Unreachable(f"Temporal lacks our search attributes: {said}", "starter setup")
    if "namespace" in said.lower() and "not found" in said.lower():
        return Unreachable(f"Temporal has no namespace {namespace!r}", "create it, or set TEMPORAL_NAMESPACE")
    if "standalone activity" in said.lower():
        return Unreachable("Temporal's server runs no standalone activities, and every read is one", STANDALONE)
    if error.status.name in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        return Unreachable(f"Temporal does not let us do this in the namespace {namespace!r}: {said}", RIGHTS)
    return Unreachable(f"Temporal answered {error.status.name}: {said}")


async def _connect(settings: Settings) -> Client:
    from temporalio.plugin import SimplePlugin

    from workers import telemetry
    from workers.connection import connect, connection
    from workers.payloads import converter

    address = connection(settings.home)["target_host"]
    # Only the payloads are shared with the workers: the workflows' code stays out of a client.
    plugin = SimplePlugin("ratchet-client", data_converter=converter(settings))
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await connect(settings.home, *telemetry.plugins(settings), plugin)
    except TimeoutError as error:
        raise unreachable_at(address, f"no answer in {CONNECT_SECONDS} s") from error
    except (RuntimeError, ValueError) as error:
        raise unreachable_at(address, str(error)) from error
