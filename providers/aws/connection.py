"""The connections file's model of AWS: region, source of credentials, and options for VMs."""

from __future__ import annotations

from hashlib import sha256
from ipaddress import ip_network
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from domain.connections import Connection, ConnectionsFilePart

DEFAULT_OWNER = "ratchet"
MAX_LABEL = 256  # what EC2 takes for the value of a tag


def _check_cidr(text: str) -> str:
    return str(ip_network(text))  # raises a ValueError with the reason


Cidr = Annotated[str, AfterValidator(_check_cidr)]
ConnectionText = Annotated[str, Field(min_length=1, max_length=MAX_LABEL)]


class CredentialsSource(ConnectionsFilePart):
    """Where the credentials come from. `default` is the SDK's own search, including instance roles."""

    source: Literal["default", "environment", "file", "profile"] = Field("default", alias="from")
    prefix: str = Field("", max_length=40, pattern=r"^[A-Z0-9_]*$")  # of the variables: PROD_AWS_ACCESS_KEY_ID
    path: str = Field("", max_length=1_000)  # of a file like ~/.aws/credentials
    profile: str = Field("", max_length=100)

    @model_validator(mode="after")
    def _check_source_fields(self) -> Self:
        belongs = {"environment": {"prefix"}, "file": {"path", "profile"}, "profile": {"profile"}}
        given = {name for name in ("prefix", "path", "profile") if getattr(self, name)}
        if stray := sorted(given - belongs.get(self.source, set())):
            raise ValueError(f"{', '.join(stray)} says nothing for credentials from {self.source}")
        needed = {"file": "path", "profile": "profile"}.get(self.source)
        if needed and needed not in given:
            raise ValueError(f"credentials from {self.source} need a {needed}")
        return self


class IngressRule(ConnectionsFilePart):
    """A rule that lets a network reach the VMs; without rules nothing is open."""

    port: int = Field(ge=1, le=65_535)
    to_port: int = Field(0, ge=0, le=65_535)  # 0: this one port only
    protocol: Literal["tcp", "udp"] = "tcp"
    source: Cidr = Field(alias="from")

    @model_validator(mode="after")
    def _check_port_range(self) -> Self:
        if self.to_port and self.to_port < self.port:
            raise ValueError(f"ports run from {self.port} to {self.to_port}: that is none")
        return self


class AwsOptions(ConnectionsFilePart):
    """How the VMs of one connection are created. The last numbers are for tests and unusual networks."""

    endpoint_url: str = Field("", max_length=500, pattern=r"^(https?://[^@\s]+)?$")
    owner: ConnectionText = DEFAULT_OWNER  # must differ between installations in one account
    account: str = Field("", pattern=r"^([0-9]{12})?$")  # credentials of another account are refused
    specs: dict[ConnectionText, ConnectionText] = {}  # spec name -> instance type
    images: dict[ConnectionText, ConnectionText] = {}  # image name -> AMI
    zone: str = Field("", max_length=60)
    cidr: Cidr = "10.117.0.0/16"
    subnet: str = Field("", max_length=60)  # use this subnet; create no network
    security_groups: list[ConnectionText] = Field(default=[], max_length=5)  # use these; create none
    key_name: str = Field("", max_length=200)  # use this key pair; import none
    public_key: str = Field("", max_length=2_000)  # an OpenSSH public key to import; without one VMs have no key
    ingress: list[IngressRule] = Field(default=[], max_length=50)
    public_addresses: bool = True
    launches_per_second: float = Field(2.0, gt=0)  # EC2's default limit for an account
    poll_seconds: float = Field(2.0, gt=0)
    wait_seconds: float = Field(240.0, gt=0)
    lag_seconds: float = Field(10.0, ge=0)  # the longest time that EC2's reads lag behind its writes
    connect_seconds: float = Field(5.0, gt=0)
    read_seconds: float = Field(30.0, gt=0)

    @model_validator(mode="after")
    def _check_public_address(self) -> Self:
        if "PRIVATE KEY" in self.public_key:
            raise ValueError("public_key holds a private key: give the public one, and keep this to yourself")
        return self


class AwsConnection(Connection):
    """A region of AWS, or of a service with EC2's API."""

    provider: Literal["aws"]
    credentials: CredentialsSource = CredentialsSource()
    options: AwsOptions = AwsOptions()

    @property
    def owner_identity(self) -> str:
        """The provider's name in places. It differs by endpoint, account and owner: each finds its own VMs only."""
        options = self.options
        particular = {"endpoint": options.endpoint_url, "account": options.account, "owner": options.owner}
        if particular == {"endpoint": "", "account": "", "owner": DEFAULT_OWNER}:
            return self.provider
        return f"{self.provider}-{sha256(repr(sorted(particular.items())).encode()).hexdigest()[:8]}"
