"""Connections: names for places in clouds, and the provider that serves each. Providers add their own options.

The file says where secrets are; it never holds one. A cloud (csp) that the file does not name at all is simulated; of
one that it names, only the regions in the file exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from pydantic import BaseModel, ConfigDict, Field

from domain.errors import Category, Refused
from domain.fields import Name
from domain.limits import CLOUDS, NO_CAP, Caps
from domain.model import Model
from domain.wire import SIMULATED, placement, split_placement, split_region


class ConnectionModel(BaseModel):
    """A part of the connections file. An error does not repeat what was written: it may be a secret."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_by_name=True)


def check_served(places: Iterable[str], served: Iterable[str]) -> None:
    """Refuses real places that this worker does not serve."""
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


class LowerLimits(ConnectionModel):
    """A connection's limits on concurrent calls, which may only lower the cloud's built-in caps."""

    regions: int | None = Field(None, ge=1, le=1_000)  # of the cloud at once; the lowest number of its connections
    vms: int | None = Field(None, ge=1, le=1_000)  # of this connection's region at once


class Connection(ConnectionModel):
    """A region of a cloud, and the provider that serves it. Each provider's own model adds its options."""

    provider: str
    region: Name
    limits: LowerLimits = LowerLimits()

    @property
    def csp(self) -> str:
        """The cloud: a provider serves the one of its own name, unless it says otherwise."""
        return self.provider

    @property
    def identity(self) -> str:
        """The provider's name in placements, which VMs carry."""
        return self.provider

    @property
    def place(self) -> str:
        return placement(self.csp, self.region, self.identity)

    @property
    def simulated(self) -> bool:
        return self.provider == SIMULATED


class ConnectionsQuery(Model):
    """Asks for a cloud's connections; with `check`, the cloud itself is called."""

    csp: str = ""  # all clouds, without a check of credentials
    check: bool = False


class ConnectionView(Model):
    """A connection as shown to a person. `trouble` is empty if it works."""

    name: str
    provider: str
    csp: str
    region: str
    credentials: str = ""
    answer: str = ""
    trouble: str = ""
    page: str = ""  # docs page of its provider


class ConnectionsView(Model):
    """A list of connections; of credentials it says only where they were found."""

    connections: list[ConnectionView]


@dataclass(frozen=True)
class Connections:
    """The connections by name, and the clouds (csps) that the file names: those have no other regions."""

    named: Mapping[str, Connection] = field(default_factory=dict)
    filed: frozenset[str] = frozenset()

    def beside(self, usual: Mapping[str, Connection]) -> Connections:
        """Returns these connections together with default ones for clouds that the file does not name."""
        others = {name: each for name, each in usual.items() if each.csp not in self.filed and name not in self.named}
        return Connections({**others, **self.named}, self.filed)

    def find(self, name: str) -> tuple[str, str] | None:
        """Returns the cloud and the region of a connection, or None if there is none of that name."""
        found = self.named.get(name)
        return (found.csp, found.region) if found else None

    def names(self) -> list[str]:
        return sorted(self.named)

    def provider(self, csp: str, region: str) -> str:
        """Returns the provider that serves a region of a cloud."""
        for _, each in self.of(csp):
            if each.region == region and not each.simulated:
                return each.identity
        return SIMULATED

    def clouds(self) -> list[str]:
        """Returns the clouds (csps) that a worker with these connections serves: built-in ones, and the file's."""
        return list(dict.fromkeys((*CLOUDS, *(each.csp for each in self.named.values()))))

    def places(self) -> list[str]:
        """Returns the real (not simulated) places."""
        return sorted(each.place for _, each in self.real_connections())

    @property
    def fingerprint(self) -> str:
        """A short hash of the real places and their providers; workers that share a queue must agree in it."""
        places = self.places()
        return sha256("\n".join(places).encode()).hexdigest()[:8] if places else SIMULATED

    def partly_simulated(self, csp: str) -> bool:
        """Tells whether a region of the cloud is simulated."""
        return any(each.simulated for _, each in self.of(csp))

    def of(self, csp: str) -> Iterator[tuple[str, Connection]]:
        """Returns the connections of a cloud, by name."""
        yield from ((name, each) for name, each in self.named.items() if each.csp == csp)

    def limits(self) -> dict[tuple[str, str], Caps]:
        """Returns the lowered concurrency limits, by cloud and region."""
        return {
            split_placement(each.place): Caps(each.limits.regions or NO_CAP, each.limits.vms or NO_CAP)
            for each in self.named.values()
            if each.limits != LowerLimits()
        }

    def real_connections(self) -> Iterator[tuple[str, Connection]]:
        """Returns the connections that lead to a real cloud."""
        yield from ((name, each) for name, each in self.named.items() if not each.simulated)
