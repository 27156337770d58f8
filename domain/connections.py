"""The connections file: names for places in clouds, who serves each, and where its credentials come from.

It says where secrets are; it never holds one. A cloud (csp) that the file does not name at all is simulated; of one
that it names, only the regions in the file exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from ipaddress import ip_network
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from domain.errors import Category, Refused
from domain.fields import Name, describe_errors
from domain.limits import CLOUDS, NO_CAP, Caps
from domain.model import Model
from domain.wire import SIMULATED, placement, split_placement, split_region

MAX_CONNECTIONS = 500
DEFAULT_OWNER = "ratchet"
MAX_LABEL = 256  # what a cloud takes for the value of a tag


def _network(text: str) -> str:
    return str(ip_network(text))  # its ValueError says what is wrong


Cidr = Annotated[str, AfterValidator(_network)]
ConnectionText = Annotated[str, Field(min_length=1, max_length=MAX_LABEL)]


class _ConnectionModel(BaseModel):
    """An error must not repeat what was written: somebody may have written a secret here."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_by_name=True)


class Credentials(_ConnectionModel):
    """Where a provider finds its credentials. `default` is the cloud SDK's own search, instance roles included."""

    source: Literal["default", "environment", "file", "profile"] = Field("default", alias="from")
    prefix: str = Field("", max_length=40, pattern=r"^[A-Z0-9_]*$")  # of the variables: PROD_AWS_ACCESS_KEY_ID
    path: str = Field("", max_length=1_000)  # of a file like ~/.aws/credentials
    profile: str = Field("", max_length=100)

    @model_validator(mode="after")
    def _fits_its_source(self) -> Self:
        belongs = {"environment": {"prefix"}, "file": {"path", "profile"}, "profile": {"profile"}}
        given = {name for name in ("prefix", "path", "profile") if getattr(self, name)}
        if stray := sorted(given - belongs.get(self.source, set())):
            raise ValueError(f"{', '.join(stray)} says nothing for credentials from {self.source}")
        needed = {"file": "path", "profile": "profile"}.get(self.source)
        if needed and needed not in given:
            raise ValueError(f"credentials from {self.source} need a {needed}")
        return self


class Ingress(_ConnectionModel):
    """Who may reach the VMs from outside. Nobody may, unless it is said."""

    port: int = Field(ge=1, le=65_535)
    to_port: int = Field(0, ge=0, le=65_535)  # 0: this one port only
    protocol: Literal["tcp", "udp"] = "tcp"
    source: Cidr = Field(alias="from")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.to_port and self.to_port < self.port:
            raise ValueError(f"ports run from {self.port} to {self.to_port}: that is none")
        return self


class AwsOptions(_ConnectionModel):
    """How the VMs of one connection are made on AWS. The numbers at the end are for tests and odd networks."""

    endpoint_url: str = Field("", max_length=500, pattern=r"^(https?://[^@\s]+)?$")
    owner: ConnectionText = DEFAULT_OWNER  # two installations in one account must differ in this
    account: str = Field("", pattern=r"^([0-9]{12})?$")  # credentials of another account are not used
    specs: dict[ConnectionText, ConnectionText] = {}  # our word -> instance type
    images: dict[ConnectionText, ConnectionText] = {}  # our word -> AMI
    zone: str = Field("", max_length=60)
    cidr: Cidr = "10.117.0.0/16"
    subnet: str = Field("", max_length=60)  # use this one; make no network
    security_groups: list[ConnectionText] = Field(default=[], max_length=5)  # use these; make none
    key_name: str = Field("", max_length=200)  # use this key pair; import none
    public_key: str = Field("", max_length=2_000)  # an OpenSSH public key to import; without one VMs have no key
    ingress: list[Ingress] = Field(default=[], max_length=50)
    public_addresses: bool = True
    launches_per_second: float = Field(2.0, gt=0)  # what EC2 grants an account that has not asked for more
    poll_seconds: float = Field(2.0, gt=0)
    wait_seconds: float = Field(240.0, gt=0)
    lag_seconds: float = Field(10.0, ge=0)  # how far EC2's reads may be behind its writes
    connect_seconds: float = Field(5.0, gt=0)
    read_seconds: float = Field(30.0, gt=0)

    @model_validator(mode="after")
    def _public(self) -> Self:
        if "PRIVATE KEY" in self.public_key:
            raise ValueError("public_key holds a private key: give the public one, and keep this to yourself")
        return self


def check_served(places: Iterable[str], served: Iterable[str]) -> None:
    """Refused if one of the places is real and not among those that are served."""
    known = set(served)
    for place in sorted(places):
        csp, region = split_placement(place)
        name, provider = split_region(region)
        if provider == SIMULATED or place in known:
            continue
        raise Refused(
            Category.NOT_ALLOWED,
            f"{csp}/{name} of {provider} cannot be reached from this worker: nothing was changed",
            "start every worker with the connections file by which the VMs there were made: RATCHET_CONNECTIONS",
        )


class LowerLimits(_ConnectionModel):
    """Fewer calls at once than this program's table allows the cloud; more are never made."""

    regions: int | None = Field(None, ge=1, le=1_000)  # of the cloud at once; the lowest number of its connections
    vms: int | None = Field(None, ge=1, le=1_000)  # of this connection's region at once


class SimulatedConnection(_ConnectionModel):
    """A place in a simulated cloud."""

    provider: Literal["simulated"]
    csp: Name
    region: Name
    limits: LowerLimits = LowerLimits()

    @property
    def place(self) -> str:
        return placement(self.csp, self.region)


class AwsConnection(_ConnectionModel):
    """A region of AWS, or of what speaks as EC2 does."""

    provider: Literal["aws"]
    region: Name
    credentials: Credentials = Credentials()
    options: AwsOptions = AwsOptions()
    limits: LowerLimits = LowerLimits()

    @property
    def csp(self) -> str:
        return "aws"

    @property
    def identity(self) -> str:
        """By this name its VMs know who made them. Another endpoint, account or owner would not find them."""
        told = self.options
        particular = {"endpoint": told.endpoint_url, "account": told.account, "owner": told.owner}
        if particular == {"endpoint": "", "account": "", "owner": DEFAULT_OWNER}:
            return "aws"
        return f"aws-{sha256(repr(sorted(particular.items())).encode()).hexdigest()[:8]}"

    @property
    def place(self) -> str:
        return placement(self.csp, self.region, self.identity)


Connection = Annotated[SimulatedConnection | AwsConnection, Field(discriminator="provider")]


class ConnectionsFile(_ConnectionModel):
    """The whole file: connections by their names."""

    connections: dict[Name, Connection] = Field(min_length=1, max_length=MAX_CONNECTIONS)

    @model_validator(mode="after")
    def _one_server_for_each_place(self) -> Self:
        served: dict[tuple[str, str], str] = {}
        for name, each in self.connections.items():
            other = served.setdefault((each.csp, each.region), name)
            if other != name:
                raise ValueError(f"{other} and {name} are both {each.csp}/{each.region}: one connection per place")
        return self


class ConnectionsQuery(Model):
    """Which cloud's connections; with `check` the cloud itself is asked."""

    csp: str = ""  # every cloud's, without a look for credentials
    check: bool = False


class ConnectionView(Model):
    """A connection as a person gets to see it. `trouble` is empty if it is well."""

    name: str
    provider: str
    csp: str
    region: str
    credentials: str = ""
    answer: str = ""
    trouble: str = ""


class ConnectionsView(Model):
    """The connections that were asked for; of credentials only where they were found."""

    connections: list[ConnectionView]


@dataclass(frozen=True)
class Connections:
    """The connections by name, and the clouds (csps) that a file speaks of: those have no other regions."""

    named: Mapping[str, SimulatedConnection | AwsConnection] = field(default_factory=dict)
    filed: frozenset[str] = frozenset()

    def beside(self, usual: Mapping[str, tuple[str, str]]) -> Connections:
        """Together with the usual simulated ones of clouds that the file does not speak of."""
        simulated = {
            name: SimulatedConnection(provider="simulated", csp=csp, region=region)
            for name, (csp, region) in usual.items()
            if csp not in self.filed and name not in self.named
        }
        return Connections({**simulated, **self.named}, self.filed)

    def find(self, name: str) -> tuple[str, str] | None:
        """The cloud and the region of a connection; None: there is none of that name."""
        found = self.named.get(name)
        return (found.csp, found.region) if found else None

    def names(self) -> list[str]:
        return sorted(self.named)

    def provider(self, csp: str, region: str) -> str:
        """Who serves a region of a cloud."""
        for _, each in self.of(csp):
            if each.region == region and isinstance(each, AwsConnection):
                return each.identity
        return SIMULATED

    def clouds(self) -> list[str]:
        """The clouds (csps) that a worker with these connections serves: those of the table, and what else is named."""
        return list(dict.fromkeys((*CLOUDS, *(each.csp for each in self.named.values()))))

    def places(self) -> list[str]:
        """The real places."""
        return sorted(each.place for _, each in self.real_connections())

    @property
    def fingerprint(self) -> str:
        """In a few letters which places are real, and by whom: workers that differ in it would differ in VMs."""
        places = self.places()
        return sha256("\n".join(places).encode()).hexdigest()[:8] if places else SIMULATED

    def partly_simulated(self, csp: str) -> bool:
        """Is a region of the cloud simulated?"""
        return any(isinstance(each, SimulatedConnection) for _, each in self.of(csp))

    def of(self, csp: str) -> Iterator[tuple[str, SimulatedConnection | AwsConnection]]:
        """The connections of a cloud, by name."""
        yield from ((name, each) for name, each in self.named.items() if each.csp == csp)

    def limits(self) -> dict[tuple[str, str], Caps]:
        """Cloud and region -> at most this at once."""
        return {
            split_placement(each.place): Caps(each.limits.regions or NO_CAP, each.limits.vms or NO_CAP)
            for each in self.named.values()
            if each.limits != LowerLimits()
        }

    def real_connections(self) -> Iterator[tuple[str, AwsConnection]]:
        """Those that lead to a real cloud."""
        yield from ((name, each) for name, each in self.named.items() if isinstance(each, AwsConnection))


def parse(document: object, where: str) -> Connections:
    """What a file says, or Refused with every reason and without anything that the file holds."""
    try:
        named = ConnectionsFile.model_validate(document).connections
        return Connections(named, frozenset(each.csp for each in named.values()))
    except ValidationError as error:
        raise Refused(
            Category.INVALID,
            f"the connections file {where} is not valid: {describe_errors(error, 'file')}",
            "mend it, or unset RATCHET_CONNECTIONS to simulate everything; docs/aws.md describes it",
        ) from None  # the chained error would hold the input
