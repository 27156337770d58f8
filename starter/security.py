"""The checks of `starter doctor --security`: what keeps others out, by the settings that a worker here would have.

Each check is a function that returns what is good, or raises Refused with what is missing and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from ipaddress import ip_address
from os.path import basename, normpath
from typing import TYPE_CHECKING

from domain.errors import Category, RatchetError, Refused, format_count
from starter.checks import DoctorCheck, failed_check, run_check

if TYPE_CHECKING:
    from gateway.settings import GatewaySettings

PRODUCTION = "see deploy/production.env"
INTERPRETERS = re.compile(r"(python|perl|ruby|node|php|lua)[\d.]*|(ba|da|z|k|c|fi)?sh|env|busybox|xargs|awk")


def check_security() -> list[DoctorCheck]:
    """Returns every check; those that are not good say what to do."""
    from starter.gateway import gateway_settings

    try:
        settings = gateway_settings()
    except RatchetError as error:
        return [failed_check("settings", error)]
    return [run_check(about, partial(check, settings)) for about, check in CHECKS.items()]


def _missing_protection(why: str, hint: str) -> Refused:
    return Refused(Category.INVALID, why, f"{hint}; {PRODUCTION}")


def _check_identities(settings: GatewaySettings) -> str:
    from workers.access import check_worker_key, load_identities

    if not settings.identities:
        raise _missing_protection(
            "names are claimed, not proven", "set RATCHET_IDENTITIES; a key is made by: starter key new NAME"
        )
    check_worker_key(settings, "default")
    found = load_identities(settings.identities)
    issuers = format_count(len(found.issuers) + len(found.oidc), "issuer")
    return f"names are proven: {format_count(len(found.subjects), 'subject')}, {issuers}"


def _check_policy(settings: GatewaySettings) -> str:
    from workers.access import load_policy

    if not settings.policy_file:
        raise _missing_protection(
            "everybody may do everything", "set RATCHET_POLICY_FILE, such as examples/policy.yaml"
        )
    load_policy(settings.policy_file)
    return "who may do what is in a policy"


def _check_keys(settings: GatewaySettings) -> str:
    from client.encryption import load_keys

    if not settings.keys_file:
        raise _missing_protection(
            "payloads in Temporal are plaintext", "set RATCHET_KEYS_FILE; a key is: openssl rand -base64 32"
        )
    keys = load_keys(settings.keys_file)
    if keys.plaintext_until and keys.plaintext_until > datetime.now(UTC):
        until = f"{keys.plaintext_until:%Y-%m-%d %H:%MZ}"
        raise _missing_protection(
            f"payloads are encrypted, but plaintext is still read until {until}",
            "that ends by itself; sooner: remove plaintext_until from RATCHET_KEYS_FILE",
        )
    return f"payloads are encrypted with the key {keys.active}; plaintext is refused"


def _check_temporal(settings: GatewaySettings) -> str:
    from client.connection import find_temporal_options

    options = find_temporal_options(settings.home)
    host = str(options["target_host"])
    if _is_loopback(host.rsplit(":", 1)[0]):
        return f"{host} is on this machine"
    if not options.get("tls") and not options.get("api_key"):
        raise _missing_protection(f"the connection to {host} is plain TCP", "set TEMPORAL_TLS_* or TEMPORAL_API_KEY")
    return f"{host}, with {'an API key' if options.get('api_key') else 'TLS'}"


def _check_home(settings: GatewaySettings) -> str:
    from workers.datafolder import check_data_folder

    if not settings.home.exists():
        return f"{settings.home} will be made for its owner only"
    check_data_folder(settings.home)
    return f"{settings.home} is its owner's only"


def _check_process_backend(settings: GatewaySettings) -> str:
    if "process" not in settings.backends:
        return "off: no system runs commands on this machine"
    if any(normpath(program) in ("/", "//") for program in settings.programs):
        raise _missing_protection("systems may run every program", "list single programs in RATCHET_PROGRAMS")
    if anything := [program for program in settings.programs if INTERPRETERS.fullmatch(basename(program))]:
        why = f"{anything[0]} is an interpreter, so systems may run anything"
        raise _missing_protection(why, "list programs of your own in RATCHET_PROGRAMS")
    if settings.service_users != "own":
        raise _missing_protection("services run as the worker's user", "set RATCHET_SERVICE_USERS=own")
    return f"on, for {format_count(len(settings.programs), 'listed program')}"


def _check_container_backend(settings: GatewaySettings) -> str:
    if "container" not in settings.backends:
        return "off: no system runs containers on this machine"
    if any(normpath(image) in ("/", "//") for image in settings.images):
        raise _missing_protection("every folder of this machine may be an image", "list images in RATCHET_IMAGES")
    if settings.container_network != "own":
        raise _missing_protection("containers may use the machine's network", "set RATCHET_CONTAINER_NETWORK=own")
    return f"on, for {format_count(len(settings.images), 'listed image')}"


def _check_gateway(settings: GatewaySettings) -> str:
    from gateway.tokens import TokenFile
    from workers.access import load_identities

    if settings.gateway_tokens is None and not (settings.identities and load_identities(settings.identities).oidc):
        where = "on this machine" if _is_loopback(settings.gateway_host) else "who reaches it"
        raise _missing_protection(
            f"everybody {where} may use the gateway", "set RATCHET_GATEWAY_TOKENS; see: starter token NAME"
        )
    if settings.gateway_tokens:
        TokenFile(settings.gateway_tokens)
    if not _is_loopback(settings.gateway_host) and not settings.gateway_url.startswith("https://"):
        raise _missing_protection(
            f"it listens on {settings.gateway_host} without TLS",
            "put a proxy with TLS in front, and its address into RATCHET_GATEWAY_URL",
        )
    return "callers need a token"


def _check_codec(settings: GatewaySettings) -> str:
    from client.codec import load_codec_token

    load_codec_token(settings.codec_token_file)
    return "a token that stays" if settings.codec_token_file else "each start of the codec endpoint makes a new token"


def _check_webhooks(settings: GatewaySettings) -> str:
    if settings.webhooks is None:
        why = "cloudlets may name any public URL as their webhook"
        raise _missing_protection(why, "list the origins in RATCHET_WEBHOOKS, or set it to `none`")
    if "*" in settings.webhooks:
        why = "cloudlets may name any URL as their webhook, plain and private ones too"
        raise _missing_protection(why, "list the origins in RATCHET_WEBHOOKS, or set it to `none`")
    if plain := [url for url in settings.webhooks if not url.startswith("https://")]:
        raise _missing_protection(f"the webhook {plain[0]} is not https", "list only https:// in RATCHET_WEBHOOKS")
    return f"only to {format_count(len(settings.webhooks), 'origin')}"


def _check_history_seals(settings: GatewaySettings) -> str:
    from workers.sealedhistory import verify_history

    _require_store(settings)
    report = verify_history(settings)
    if report.violations:
        raise Refused(Category.INVALID, f"the history was changed: {report.violations[0]}", "starter audit verify")
    if not report.seals:
        raise _missing_protection(
            "no line of the history is sealed yet", "start a worker, which seals every few seconds"
        )
    return f"{format_count(report.lines, 'line')} under {format_count(report.seals, 'seal')}, as written"


def _check_database_rights(settings: GatewaySettings) -> str:
    from workers.sealedhistory import may_rewrite_history

    _require_store(settings)
    if may_rewrite_history(settings):
        why = "the database's user may change lines of the history"
        raise _missing_protection(why, "use PostgreSQL and the role of docs/audit.md in RATCHET_STORE_URL")
    return "the database's user may add lines, and not change them"


def _require_store(settings: GatewaySettings) -> None:
    if not settings.store_url and not (settings.home / "inventory.db").exists():
        raise _missing_protection("there is no store yet", "set RATCHET_STORE_URL")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


CHECKS: dict[str, Callable[[GatewaySettings], str]] = {
    "identities": _check_identities,
    "policy": _check_policy,
    "payload keys": _check_keys,
    "Temporal": _check_temporal,
    "data folder": _check_home,
    "process backend": _check_process_backend,
    "container backend": _check_container_backend,
    "gateway": _check_gateway,
    "codec token": _check_codec,
    "webhooks": _check_webhooks,
    "audit chain": _check_history_seals,
    "rights in the store": _check_database_rights,
}
