"""Reads a connection's credentials and passes them to boto3. They are never printed or logged."""

from __future__ import annotations

import os
from configparser import ConfigParser
from configparser import Error as ConfigError
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from domain.errors import Category, Refused
from providers.aws.connection import Credentials

KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")  # the last one with temporary keys only


def session(credentials: Credentials, region: str) -> Any:
    """Returns a boto3 session, or raises Refused if credentials are missing. The first call takes a second."""
    boto3, core = _boto3(), import_module("botocore.session").Session()
    core.register_component("data_loader", _loader())
    given: dict[str, str] = {}
    if credentials.source == "environment":
        given = _given(_in_environment(credentials.prefix))
    elif credentials.source == "file":
        given = _given(_in_file(credentials))
    elif credentials.source == "profile":
        if credentials.profile not in core.available_profiles:
            raise _missing(f"there is no AWS profile {credentials.profile!r}", "see: aws configure list-profiles")
        given = {"profile_name": credentials.profile}
    return boto3.Session(botocore_session=core, region_name=region, **given)


def describe_source(credentials: Credentials, region: str) -> str:
    """Returns where the credentials were found, never the credentials; raises Refused if there are none."""
    if session(credentials, region).get_credentials() is None:
        raise _missing("no AWS credentials were found", "set AWS_ACCESS_KEY_ID, or name a profile")
    match credentials.source:
        case "environment":
            return f"in {credentials.prefix}{KEYS[0]}"
        case "file":
            return f"in {credentials.path}"
        case "profile":
            return f"in profile {credentials.profile}"
        case _:
            return "by the AWS SDK"


def check_offline(credentials: Credentials) -> None:
    """Refuses a missing named source of credentials. Makes no call; the SDK's default search is not checked."""
    if credentials.source != "default":
        session(credentials, "us-east-1")


def _in_environment(prefix: str) -> list[str]:
    values = [os.environ.get(f"{prefix}{key}", "") for key in KEYS]
    absent = [f"{prefix}{key}" for key, value in zip(KEYS[:2], values, strict=False) if not value]
    if absent:
        raise _missing(f"not set: {', '.join(absent)}", "set them where the worker runs")
    return values


def _in_file(credentials: Credentials) -> list[str]:
    path, profile = Path(credentials.path).expanduser(), credentials.profile or "default"
    parser = ConfigParser(interpolation=None)
    try:
        parser.read_string(path.read_text())
    except OSError as error:
        raise _missing(f"{path} cannot be read: {error.strerror}", "the worker must be able to read it") from error
    except (ConfigError, UnicodeDecodeError):
        raise _missing(f"{path} is no AWS credentials file", "it should look like ~/.aws/credentials") from None
    values = [parser.get(profile, key.lower(), fallback="") for key in KEYS]
    if not all(values[:2]):
        raise _missing(f"{path} has no keys in [{profile}]", "it should look like ~/.aws/credentials")
    return values


def _given(values: list[str]) -> dict[str, str]:
    return {key.lower(): value for key, value in zip(KEYS, values, strict=True) if value}


def _missing(what: str, hint: str) -> Refused:
    return Refused(Category.INVALID, what, hint)


@cache
def _loader() -> Any:
    """Returns botocore's loader, shared by all sessions, as parsing EC2's description for each would be slow."""
    return import_module("botocore.loaders").create_loader()


def _boto3() -> Any:
    try:
        return import_module("boto3")
    except ImportError as error:
        raise _missing("boto3 is not installed", "pip install 'ratchet[aws]', or: uv sync --extra aws") from error
