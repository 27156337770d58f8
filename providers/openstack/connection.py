"""The connections file's model of OpenStack: region, source of credentials, and options for servers."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import ClassVar, Literal

from pydantic import Field

from domain.connections import Connection
from providers.options import CredentialFields, VmOptions


class OpenstackCredentialsSource(CredentialFields):
    """Where the credentials come from: a cloud of clouds.yaml, or variables such as OS_AUTH_URL."""

    fields_of_source: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "environment": ("prefix",),
        "clouds": ("cloud", "path"),
    }
    needed_field: ClassVar[Mapping[str, str]] = {"clouds": "cloud"}

    source: Literal["clouds", "environment"] = Field("clouds", alias="from")
    cloud: str = Field("", max_length=100)  # in clouds.yaml


class OpenStackOptions(VmOptions):
    """How the servers of one connection are created. Specs are flavors, by id or name; images are ids."""

    network: str = Field("", max_length=60)  # id: use this network; create none
    lag_seconds: float = Field(20.0, ge=0)  # how long a creation without an answer may take to appear

    @property
    def existing_network(self) -> str:
        return self.network


class OpenStackConnection(Connection):
    """A region of an OpenStack project."""

    provider: Literal["openstack"]
    credentials: OpenstackCredentialsSource
    options: OpenStackOptions = OpenStackOptions()

    @property
    def owner_identity(self) -> str:
        """The provider's name in places. It differs by cloud and owner: each finds its own servers only."""
        source = self.credentials
        particular = (source.cloud or source.prefix, self.options.owner)
        return f"{self.provider}-{sha256(repr(particular).encode()).hexdigest()[:8]}"
