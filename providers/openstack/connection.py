"""The connections file's model of OpenStack: region, source of credentials, and options for servers."""

from __future__ import annotations

from hashlib import sha256
from ipaddress import ip_network
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from domain.connections import Connection, ConnectionsFilePart

DEFAULT_OWNER = "ratchet"
MAX_LABEL = 255  # what Nova takes for a name, a description and a value of the metadata


def _check_cidr(text: str) -> str:
    return str(ip_network(text))  # raises a ValueError with the reason


Cidr = Annotated[str, AfterValidator(_check_cidr)]
ConnectionText = Annotated[str, Field(min_length=1, max_length=MAX_LABEL)]


class CredentialsSource(ConnectionsFilePart):
    """Where the credentials come from: a cloud of clouds.yaml, or variables."""

    source: Literal["clouds", "environment"] = Field("clouds", alias="from")
    cloud: str = Field("", max_length=100)  # in clouds.yaml
    path: str = Field("", max_length=1_000)  # of that file; the SDK's own places if empty
    prefix: str = Field("", max_length=40, pattern=r"^[A-Z0-9_]*$")  # of the variables: PROD_OS_AUTH_URL

    @model_validator(mode="after")
    def _check_source_fields(self) -> Self:
        belongs = {"environment": {"prefix"}, "clouds": {"cloud", "path"}}
        given = {name for name in ("prefix", "path", "cloud") if getattr(self, name)}
        if stray := sorted(given - belongs[self.source]):
            raise ValueError(f"{', '.join(stray)} says nothing for credentials from {self.source}")
        if self.source == "clouds" and not self.cloud:
            raise ValueError("credentials from clouds need a cloud")
        return self


class IngressRule(ConnectionsFilePart):
    """A rule that lets a network reach the servers; without rules nothing is open."""

    port: int = Field(ge=1, le=65_535)
    to_port: int = Field(0, ge=0, le=65_535)  # 0: this one port only
    protocol: Literal["tcp", "udp"] = "tcp"
    source: Cidr = Field(alias="from")

    @model_validator(mode="after")
    def _check_port_range(self) -> Self:
        if self.to_port and self.to_port < self.port:
            raise ValueError(f"ports run from {self.port} to {self.to_port}: that is none")
        return self


class OpenStackOptions(ConnectionsFilePart):
    """How the servers of one connection are created. The last numbers are for tests and unusual networks."""

    owner: ConnectionText = DEFAULT_OWNER  # must differ between installations in one project
    specs: dict[ConnectionText, ConnectionText] = {}  # spec name -> flavor, by id or name
    images: dict[ConnectionText, ConnectionText] = {}  # image name -> image id
    zone: str = Field("", max_length=60)
    cidr: Cidr = "10.117.0.0/16"
    network: str = Field("", max_length=60)  # id: use this network; create none
    security_groups: list[ConnectionText] = Field(default=[], max_length=5)  # ids: use these; create none
    key_name: str = Field("", max_length=200)  # use this key pair; import none
    public_key: str = Field("", max_length=2_000)  # an OpenSSH public key to import; without one servers have no key
    ingress: list[IngressRule] = Field(default=[], max_length=50)
    poll_seconds: float = Field(2.0, gt=0)
    wait_seconds: float = Field(240.0, gt=0)
    lag_seconds: float = Field(20.0, ge=0)  # how long a creation without an answer may take to appear
    read_seconds: float = Field(30.0, gt=0)

    @model_validator(mode="after")
    def _check_public_key(self) -> Self:
        if "PRIVATE KEY" in self.public_key:
            raise ValueError("public_key holds a private key: give the public one, and keep this to yourself")
        return self


class OpenStackConnection(Connection):
    """A region of an OpenStack project."""

    provider: Literal["openstack"]
    credentials: CredentialsSource
    options: OpenStackOptions = OpenStackOptions()

    @property
    def owner_identity(self) -> str:
        """The provider's name in places. It differs by cloud and owner: each finds its own servers only."""
        source = self.credentials
        particular = (source.cloud or source.prefix, self.options.owner)
        return f"{self.provider}-{sha256(repr(particular).encode()).hexdigest()[:8]}"
