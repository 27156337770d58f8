"""Reads the connections file and opens its clouds. A bad file or missing credentials keep the worker from starting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, create_model, model_validator

from client.documents import Unreadable, read
from domain.connections import Connection, ConnectionModel, Connections, ConnectionView
from domain.errors import Category, ProviderError, Refused, Superseded, one_line
from domain.fields import Name, refuse_invalid
from domain.ports import Cloud
from domain.wire import cloud_queue, split_placement
from providers.provider import Provider, RealCloud
from providers.regions import RegionRouter
from providers.registry import PROVIDERS
from providers.simulated import usual_connections

MAX_CONNECTIONS = 500


class ConnectionsFile(ConnectionModel):
    """The model of a connections file: connections by name, each in its provider's own model."""

    connections: Mapping[Name, Connection]

    @model_validator(mode="after")
    def _one_server_for_each_place(self) -> Self:
        served: dict[tuple[str, str], str] = {}
        for name, each in self.connections.items():
            other = served.setdefault((each.csp, each.region), name)
            if other != name:
                raise ValueError(f"{other} and {name} are both {each.csp}/{each.region}: one connection per place")
        return self


def file_of(providers: Sequence[Provider[Any]]) -> type[ConnectionsFile]:
    """Returns the pydantic model of a connections file that allows these providers."""
    entry: Any = Annotated[reduce(or_, [each.connection for each in providers]), Field(discriminator="provider")]
    several: Any = Annotated[dict[Name, entry], Field(min_length=1, max_length=MAX_CONNECTIONS)]
    return create_model("ConnectionsFile", __base__=ConnectionsFile, connections=several)


_FILE = file_of(PROVIDERS)
_PROVIDER = {each.name: each for each in PROVIDERS}
_PAGES = " or ".join(each.page for each in PROVIDERS if each.page)
HINT = f"correct it, or unset RATCHET_CONNECTIONS to simulate everything; {_PAGES} describes it"


def parse(document: object, where: str) -> Connections:
    """Parses a connections file; refuses it with every reason, and without quoting its contents."""
    with refuse_invalid(f"the connections file {where} is not valid", HINT, "file"):
        named = _FILE.model_validate(document).connections
    return Connections(named, frozenset(each.csp for each in named.values()))


def load(file: Path | None) -> Connections:
    """Loads a connections file. Without a file everything is simulated, under default names."""
    told = parse(_document(file), str(file)) if file else Connections()
    return told.beside(usual_connections())


def check(file: Path | None, queues: Sequence[str]) -> None:
    """Refuses a bad file, or a served cloud without the credentials that the file names."""
    for name, each in load(file).real_connections():
        access = _PROVIDER[each.provider].access
        if access is None or cloud_queue(each.csp) not in queues:
            continue
        try:
            access.check_offline(each)
        except Refused as refused:
            why = f"the connection {name} has no credentials: {refused.message}"
            raise Refused(refused.category, why, refused.hint) from refused


def open_clouds(connections: Connections, call_seconds: float) -> dict[str, RealCloud]:
    """Opens the real clouds, by connection name. Makes no call yet."""
    found = [(name, each, _PROVIDER[each.provider].access) for name, each in connections.real_connections()]
    return {name: access.open(each, call_seconds) for name, each, access in found if access}


class ServedClouds(dict[str, Cloud]):
    """The clouds of this worker, by csp. Other workers may have connections to more."""

    def __missing__(self, csp: str) -> Cloud:
        raise Superseded(f"{csp} is not served by this worker: none of its connections is of that cloud")


def clouds_of(connections: Connections, simulated: Mapping[str, Cloud], real: Mapping[str, RealCloud]) -> ServedClouds:
    """Returns the clouds by csp: those in the file, with old simulated regions closed to new VMs; others simulated."""

    def serving(csp: str) -> Cloud:
        filed = csp in connections.filed
        regions = {
            split_placement(each.place)[1]: real.get(name, simulated[csp])
            for name, each in (connections.of(csp) if filed else ())
        }
        return RegionRouter(csp, regions, simulated[csp], closed=filed)

    return ServedClouds({csp: serving(csp) for csp in simulated})


class ConnectionInspection:
    """Shows connections to a person: whether credentials exist, and whether the cloud answers."""

    def __init__(self, connections: Connections, real: Mapping[str, RealCloud]) -> None:
        self._connections = connections
        self._real = real

    def names(self) -> list[ConnectionView]:
        """Lists all connections without checking them."""
        return [
            ConnectionView(
                name=name,
                provider=each.provider,
                csp=each.csp,
                region=each.region,
                page=_PROVIDER[each.provider].page,
            )
            for name, each in sorted(self._connections.named.items(), key=_real_first)
        ]

    async def inspect(self, csp: str, ask: bool) -> list[ConnectionView]:
        """Checks the connections of one cloud; with `ask`, also calls the cloud."""
        views = [view for view in self.names() if view.csp == csp]
        return [await self._seen(view, ask) if view.name in self._real else view for view in views]

    async def _seen(self, view: ConnectionView, ask: bool) -> ConnectionView:
        cloud = self._real[view.name]
        try:
            where = await cloud.credentials()
            answer = await cloud.check() if ask else ""
        except Refused as refused:
            return view.model_copy(update={"trouble": f"{refused.message}; {refused.hint}"})
        except ProviderError as error:
            return view.model_copy(update={"trouble": one_line(error)})
        return view.model_copy(update={"credentials": where, "answer": answer})


def _real_first(named: tuple[str, Connection]) -> tuple[bool, str]:
    return named[1].simulated, named[0]


def _document(file: Path) -> object:
    try:
        return read(file)
    except Unreadable as error:
        raise Refused(Category.INVALID, f"the connections file {file} {error}", HINT) from None
