"""Reads a connection's credentials and passes them to boto3. They are never printed or logged."""

from __future__ import annotations

import os
from configparser import ConfigParser
from configparser import Error as ConfigError
from functools import cache
from importlib import import_module
from typing import Any

from providers.aws.connection import AwsCredentialsSource
from providers.credentials import import_sdk, missing_credentials_error, read_private_file

# The last one with temporary keys only.
KEY_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


def open_session(credentials: AwsCredentialsSource, region: str) -> Any:
    """Returns a boto3 session, or raises Refused if credentials are missing. The first call takes a second."""
    boto3, core = import_sdk("boto3", "boto3", "aws"), import_module("botocore.session").Session()
    core.register_component("data_loader", _shared_botocore_loader())
    given: dict[str, str] = {}
    if credentials.source == "environment":
        given = _boto3_session_arguments(_read_environment(credentials.prefix))
    elif credentials.source == "file":
        given = _boto3_session_arguments(_read_file(credentials))
    elif credentials.source == "profile":
        if credentials.profile not in core.available_profiles:
            raise missing_credentials_error(
                f"there is no AWS profile {credentials.profile!r}", "see: aws configure list-profiles"
            )
        given = {"profile_name": credentials.profile}
    return boto3.Session(botocore_session=core, region_name=region, **given)


def describe_credentials_source(credentials: AwsCredentialsSource, region: str) -> str:
    """Returns where the credentials were found, never the credentials; raises Refused if there are none."""
    if open_session(credentials, region).get_credentials() is None:
        raise missing_credentials_error("no AWS credentials were found", "set AWS_ACCESS_KEY_ID, or name a profile")
    match credentials.source:
        case "environment":
            return f"in {credentials.prefix}{KEY_VARIABLES[0]}"
        case "file":
            return f"in {credentials.path}"
        case "profile":
            return f"in profile {credentials.profile}"
        case _:
            return "by the AWS SDK"


def check_prerequisites(credentials: AwsCredentialsSource) -> None:
    """Refuses a missing named source of credentials. Makes no call; the SDK's default search is not checked."""
    if credentials.source != "default":
        open_session(credentials, "us-east-1")


def _read_environment(prefix: str) -> list[str]:
    values = [os.environ.get(f"{prefix}{key}", "") for key in KEY_VARIABLES]
    absent = [f"{prefix}{key}" for key, value in zip(KEY_VARIABLES[:2], values, strict=False) if not value]
    if absent:
        raise missing_credentials_error(f"not set: {', '.join(absent)}", "set them where the worker runs")
    return values


def _read_file(credentials: AwsCredentialsSource) -> list[str]:
    (path, content), profile = read_private_file(credentials.path), credentials.profile or "default"
    parser = ConfigParser(interpolation=None)
    try:
        parser.read_string(content.decode())
    except (ConfigError, UnicodeDecodeError):
        raise missing_credentials_error(
            f"{path} is no AWS credentials file", "it should look like ~/.aws/credentials"
        ) from None
    values = [parser.get(profile, key.lower(), fallback="") for key in KEY_VARIABLES]
    if not all(values[:2]):
        raise missing_credentials_error(f"{path} has no keys in [{profile}]", "it should look like ~/.aws/credentials")
    return values


def _boto3_session_arguments(values: list[str]) -> dict[str, str]:
    return {key.lower(): value for key, value in zip(KEY_VARIABLES, values, strict=True) if value}


@cache
def _shared_botocore_loader() -> Any:
    """Returns botocore's loader, shared by all sessions, as parsing EC2's description for each would be slow."""
    return import_module("botocore.loaders").create_loader()
