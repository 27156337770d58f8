"""Finds Temporal: its own profiles and TEMPORAL_* variables first, then the embedded server, then localhost."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from temporalio.client import Client, Plugin
from temporalio.envconfig import ClientConfig as Profiles
from temporalio.service import KeepAliveConfig

from client.errors import Unreachable
from client.homefiles import TEMPORAL_DATA_FILE, read_embedded_options
from domain.errors import Category, Refused

DEFAULT_ADDRESS = "127.0.0.1:7233"
# Only an unanswered ping reveals a network that drops packets; by default that takes 45 s. A server
# disconnects a client that pings more often than every 10 s (`frontend.keepAliveMinTime`), and calls in flight fail
# with it: on a busy machine pings come unevenly and answers late, so neither number is as small as it could be.
KEEP_ALIVE = KeepAliveConfig(interval_millis=15_000, timeout_millis=10_000)


def is_address_guessed(home: Path) -> bool:
    """Tells whether nothing names a server: neither a profile, nor TEMPORAL_ADDRESS, nor a stack in the home folder."""
    return not read_configured_options().get("target_host") and not _is_stack_meant(home)


def find_temporal_options(home: Path) -> dict[str, Any]:
    """Returns the keyword arguments for `Client.connect`."""
    config = read_configured_options()
    if not config.get("target_host"):
        config["target_host"] = read_embedded_options(home).get("address", DEFAULT_ADDRESS)
    config.setdefault("namespace", "default")
    config.setdefault("keep_alive_config", KEEP_ALIVE)
    return config


def read_configured_options() -> dict[str, Any]:
    """Reads profiles and TEMPORAL_* variables. A profile that is named must exist and have an address."""
    named = os.environ.get("TEMPORAL_PROFILE", "")
    try:
        config: dict[str, Any] = {**Profiles.load_client_connect_config()}
    except OSError as error:
        why = f"the profile {named or 'default'!r} names a file that cannot be read: {error.filename}"
        raise Refused(
            Category.INVALID, f"{why}: {error.strerror}", "correct it in temporal.toml, or TEMPORAL_TLS_*"
        ) from error
    except (RuntimeError, ValueError) as error:
        # Only the first line: the next ones quote the file, which may hold a key.
        why = f"Temporal's configuration cannot be used: {str(error).splitlines()[0]}"
        raise Refused(Category.INVALID, why, f"look at {_config_file()}, or see: temporal config list") from error
    _check_certificate(config)
    if named and not config.get("target_host"):
        why = f"the profile {named!r} has no address"
        raise Refused(Category.INVALID, why, f"put `address` into it, in {_config_file()}, or set TEMPORAL_ADDRESS")
    return config


def _check_certificate(config: dict[str, Any]) -> None:
    """Refuses an expired certificate, for which a server would only disconnect; needs the extra `encryption`."""
    certificate = getattr(config.get("tls"), "client_cert", None)
    if not certificate or not find_spec("cryptography"):
        return
    from cryptography.x509 import load_pem_x509_certificate

    try:
        until = load_pem_x509_certificate(certificate).not_valid_after_utc
    except ValueError:
        return  # connecting will report it
    if until < datetime.now(UTC):
        why = f"the client certificate expired on {until:%Y-%m-%d %H:%M:%SZ}"
        raise Refused(
            Category.INVALID, why, "renew it: client_cert_path of the profile, or TEMPORAL_TLS_CLIENT_CERT_PATH"
        )


def _is_stack_meant(home: Path) -> bool:
    """Tells whether a command is for the stack of a folder: RATCHET_HOME names it, or one runs or has run there."""
    return bool(os.environ.get("RATCHET_HOME") or read_embedded_options(home) or (home / TEMPORAL_DATA_FILE).exists())


def _check_stack_runs(home: Path) -> None:
    if _is_stack_meant(home) and "address" not in read_embedded_options(home):
        hint = "start it: starter up; for another server, set TEMPORAL_ADDRESS"
        raise Unreachable(f"no stack runs in {home.absolute()}", hint)


def _config_file() -> str:
    return os.environ.get("TEMPORAL_CONFIG_FILE") or "temporal.toml (TEMPORAL_CONFIG_FILE)"


async def connect_temporal(home: Path, *plugins: Plugin, **rest: Any) -> Client:
    """Connects a client. The rest are arguments of `Client.connect`.

    A stack that is meant and does not run raises Unreachable: the server at the usual address would be another one.
    """
    options = find_temporal_options(home)
    if not read_configured_options().get("target_host"):
        _check_stack_runs(home)
    return await Client.connect(**options, plugins=plugins, **rest)
