"""Finds a connection's credentials through openstacksdk. They are never printed or logged."""

from __future__ import annotations

import os
from typing import Any

from domain.errors import Refused
from providers.credentials import import_sdk, missing_credentials_error, read_private_file
from providers.openstack.connection import OpenStackConnection, OpenstackCredentialsSource

# Keys of a cloud's `auth` whose values must never appear in a message.
_SECRETS = ("password", "token", "application_credential_secret", "access_token", "client_secret", "passcode")


def find_cloud(connection: OpenStackConnection, read_seconds: float) -> Any:
    """Returns the SDK's description of the cloud's region, or raises Refused if credentials are missing."""
    source = connection.credentials
    config = import_sdk("openstack.config", "openstacksdk", "openstack")
    overrides = {"region_name": connection.region, "api_timeout": read_seconds}
    try:
        if source.source == "environment":
            _check_environment(source.prefix)
            sdk = config.OpenStackConfig(load_yaml_config=False, envvar_prefix=f"{source.prefix}OS_")
            return sdk.get_one(cloud="envvars", **overrides)
        files = [str(read_private_file(source.path)[0])] if source.path else None
        sdk = config.OpenStackConfig(config_files=files, load_envvars=False)
        if source.cloud not in sdk.get_cloud_names():
            raise missing_credentials_error(f"there is no cloud {source.cloud!r}", "see clouds.yaml of openstacksdk")
        return sdk.get_one(cloud=source.cloud, **overrides)
    except Refused:
        raise
    except Exception as error:  # of the SDK, of keystoneauth or of the YAML parser; its text may repeat a secret
        why = f"the OpenStack credentials {describe_credentials_source(source)} are not usable: {type(error).__name__}"
        raise missing_credentials_error(why, "see clouds.yaml of openstacksdk") from None


def check_prerequisites(connection: OpenStackConnection) -> None:
    """Refuses a missing source of credentials. Makes no call."""
    find_cloud(connection, connection.options.read_seconds)


def describe_credentials_source(source: OpenstackCredentialsSource) -> str:
    """Returns where the credentials are, never the credentials."""
    if source.source == "environment":
        return f"in {source.prefix}OS_…"
    return f"of cloud {source.cloud}" + (f" in {source.path}" if source.path else "")


def list_secrets(cloud: Any) -> list[str]:
    """Returns the strings that must never appear in a message."""
    return [str(value) for key, value in (cloud.config.get("auth") or {}).items() if key in _SECRETS and value]


def _check_environment(prefix: str) -> None:
    if not any(name.startswith(f"{prefix}OS_") for name in os.environ):
        raise missing_credentials_error(f"no variable begins with {prefix}OS_", "set them where the worker runs")
