"""Options that connections to real clouds share: how VMs are created, and where credentials are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from ipaddress import ip_network
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from domain.connections import ConnectionsFilePart

DEFAULT_OWNER = "ratchet"
MAX_LABEL = 255  # what every cloud takes for a name, and for the value of a tag


# `ip_network` raises a ValueError with the reason.
Cidr = Annotated[str, AfterValidator(lambda text: str(ip_network(text)))]
ConnectionText = Annotated[str, Field(min_length=1, max_length=MAX_LABEL)]


class CredentialFields(ConnectionsFilePart):
    """Where credentials come from. A subclass lists its sources, with the fields that each has and needs."""

    fields_of_source: ClassVar[Mapping[str, tuple[str, ...]]]
    needed_field: ClassVar[Mapping[str, str]]

    source: str = Field(alias="from")
    prefix: str = Field("", max_length=40, pattern=r"^[A-Z0-9_]*$")  # of the names of variables
    path: str = Field("", max_length=1_000)  # of a file with credentials

    @model_validator(mode="after")
    def _check_source_fields(self) -> Self:
        every = dict.fromkeys(name for names in self.fields_of_source.values() for name in names)
        given = {name for name in every if getattr(self, name)}
        if stray := sorted(given.difference(self.fields_of_source.get(self.source, ()))):
            raise ValueError(f"{', '.join(stray)} says nothing for credentials from {self.source}")
        needed = self.needed_field.get(self.source)
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


class VmOptions(ConnectionsFilePart):
    """How the VMs of one connection are created. The last numbers are for tests and unusual networks."""

    owner: ConnectionText = DEFAULT_OWNER  # must differ between installations in one account
    specs: dict[ConnectionText, ConnectionText] = {}  # spec name -> the cloud's
    images: dict[ConnectionText, ConnectionText] = {}  # image name -> the cloud's
    zone: str = Field("", max_length=60)
    cidr: Cidr = "10.117.0.0/16"
    security_groups: list[ConnectionText] = Field(default=[], max_length=5)  # ids: use these; create none
    key_name: str = Field("", max_length=200)  # use this key pair; import none
    public_key: str = Field("", max_length=2_000)  # an OpenSSH public key to import; without one VMs have no key
    ingress: list[IngressRule] = Field(default=[], max_length=50)
    poll_seconds: float = Field(2.0, gt=0)
    wait_seconds: float = Field(240.0, gt=0)
    read_seconds: float = Field(30.0, gt=0)

    @property
    @abstractmethod
    def existing_network(self) -> str:
        """The network to use, so that none is created; empty: there is none."""

    @model_validator(mode="after")
    def _check_public_key(self) -> Self:
        if "PRIVATE KEY" in self.public_key:
            raise ValueError("public_key holds a private key: give the public one, and keep this to yourself")
        return self
