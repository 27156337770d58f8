"""Connections: names for places in clouds, and the provider that serves each. Providers add their own options.

The file says where secrets are; it never holds one. A cloud (csp) that the file does not name at all is simulated; of
one that it names, only the regions in the file exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256

from pydantic import BaseModel, ConfigDict, Field

from domain.errors import Category, Refused
from domain.limits import CAPS_BY_CLOUD, NO_CAP, CloudCaps
from domain.model import FrozenModel, SignedMessage
from domain.validation import Name
from domain.wire import SIMULATED, make_placement, split_placement, split_region_and_provider


class ConnectionsFilePart(BaseModel):
    """A part of the connections file. An error does not repeat what was written: it may be a secret."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_by_name=True)


def check_places_served(places: Iterable[str], served: Iterable[str]) -> None:
    """Refuses real places that this worker does not serve."""
    known = set(served)
    for place in sorted(places):
        csp, region = split_placement(place)
        name, provider = split_region_and_provider(region)
        if provider == SIMULATED or place in known:
            continue
        raise Refused(
            Category.NOT_ALLOWED,
            f"{csp}/{name} of {provider} cannot be reached from this worker: nothing was changed",
            "start every worker with the connections file by which the VMs there were made: RATCHET_CONNECTIONS",
        )


class ConnectionLimits(ConnectionsFilePart):
    """A connection's limits on concurrent calls, which may only lower the cloud's built-in caps."""

    regions: int | None = Field(None, ge=1, le=1_000)  # of the cloud at once; the lowest number of its connections
    vms: int | None = Field(None, ge=1, le=1_000)  # of this connection's region at once


class Connection(ConnectionsFilePart):
    """A region of a cloud, and the provider that serves it. Each provider's own model adds its options."""

    provider: str
    region: Name
    limits: ConnectionLimits = ConnectionLimits()

    @property
    def csp(self) -> str:
        """The cloud: a provider serves the one of its own name, unless it says otherwise."""
        return self.provider

    @property
    def owner_identity(self) -> str:
        """The provider's name in placements, which VMs carry."""
        return self.provider

    @property
    def place(self) -> str:
        return make_placement(self.csp, self.region, self.owner_identity)

    @property
    def is_simulated(self) -> bool:
        return self.provider == SIMULATED


class BackendOptions(ConnectionsFilePart):
    """The options of a real backend, such as a hypervisor, in the connections file; each provider adds its own."""

    provider: str

    @property
    def identity(self) -> str:
        """A text that differs between two backends; workers that share a queue must agree in it."""
        return self.provider

    @property
    def node_names(self) -> tuple[str, ...]:
        """The hosts that it has, if orders for one are carried out by a worker there."""
        return ()


class ConnectionsQuery(SignedMessage):
    """Asks for a cloud's connections; with `check`, the cloud itself is called."""

    csp: str = ""  # all clouds, without a check of credentials
    check: bool = False


class ConnectionView(FrozenModel):
    """A connection as shown to a person. `trouble` is empty if it works."""

    name: str
    provider: str
    csp: str
    region: str
    credentials: str = ""
    answer: str = ""
    trouble: str = ""
    page: str = ""  # docs page of its provider


class ConnectionsView(FrozenModel):
    """A list of connections; of credentials it says only where they were found."""

    connections: list[ConnectionView]


@dataclass(frozen=True)
class Connections:
    """The connections by name, and the clouds (csps) that the file names: those have no other regions."""

    by_name: Mapping[str, Connection] = field(default_factory=dict)
    clouds_in_file: frozenset[str] = frozenset()
    backends: Mapping[str, BackendOptions] = field(default_factory=dict)  # real ones, by role; others are simulated

    def with_defaults(self, usual: Mapping[str, Connection]) -> Connections:
        """Returns these connections together with default ones for clouds that the file does not name."""
        others = {
            name: connection
            for name, connection in usual.items()
            if connection.csp not in self.clouds_in_file and name not in self.by_name
        }
        return replace(self, by_name={**others, **self.by_name})

    def find_place_of_connection(self, name: str) -> tuple[str, str] | None:
        """Returns the cloud and the region of a connection, or None if there is none of that name."""
        connection = self.by_name.get(name)
        return (connection.csp, connection.region) if connection else None

    def connection_names(self) -> list[str]:
        return sorted(self.by_name)

    def provider_of_region(self, csp: str, region: str) -> str:
        """Returns the provider that serves a region of a cloud."""
        for _, connection in self.connections_of_cloud(csp):
            if connection.region == region and not connection.is_simulated:
                return connection.owner_identity
        return SIMULATED

    def served_clouds(self) -> list[str]:
        """Returns the clouds (csps) that a worker with these connections serves: built-in ones, and the file's."""
        return list(dict.fromkeys((*CAPS_BY_CLOUD, *(connection.csp for connection in self.by_name.values()))))

    def real_places(self) -> list[str]:
        """Returns the real (not simulated) places."""
        return sorted(connection.place for _, connection in self.real_connections())

    @property
    def connections_fingerprint(self) -> str:
        """A short hash of what is real, and of its providers; workers that share a queue must agree in it."""
        places = [*self.real_places(), *(f"{role} {each.identity}" for role, each in sorted(self.backends.items()))]
        return sha256("\n".join(places).encode()).hexdigest()[:8] if places else SIMULATED

    def is_partly_simulated(self, csp: str) -> bool:
        """Tells whether a region of the cloud is simulated."""
        return any(connection.is_simulated for _, connection in self.connections_of_cloud(csp))

    def connections_of_cloud(self, csp: str) -> Iterator[tuple[str, Connection]]:
        """Returns the connections of a cloud, by name."""
        yield from ((name, connection) for name, connection in self.by_name.items() if connection.csp == csp)

    def caps_by_region(self) -> dict[tuple[str, str], CloudCaps]:
        """Returns the lowered concurrency limits, by cloud and region."""
        return {
            split_placement(connection.place): CloudCaps(
                connection.limits.regions or NO_CAP, connection.limits.vms or NO_CAP
            )
            for connection in self.by_name.values()
            if connection.limits != ConnectionLimits()
        }

    def real_connections(self) -> Iterator[tuple[str, Connection]]:
        """Returns the connections that lead to a real cloud."""
        yield from ((name, connection) for name, connection in self.by_name.items() if not connection.is_simulated)
