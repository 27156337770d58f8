"""Reads the connections file and opens its clouds. A bad file or missing credentials keep the worker from starting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, create_model, model_validator

from client.documents import UnreadableDocument, read_document
from domain.connections import Connection, Connections, ConnectionsFilePart, ConnectionView
from domain.errors import Category, ProviderError, Refused, Superseded, format_one_line
from domain.ports import Cloud
from domain.validation import Name, refuse_validation_errors
from domain.wire import cloud_queue, split_placement
from providers.description import CloudProvider, FamilyBackend, RealCloud
from providers.regions import RegionRouter
from providers.registry import BACKENDS, PROVIDERS
from providers.simulated import default_connections

MAX_CONNECTIONS = 500


class ConnectionsFile(ConnectionsFilePart):
    """The model of a connections file: connections by name, and real backends by role, each in its provider's model."""

    connections: Mapping[Name, Connection] = {}

    @model_validator(mode="after")
    def _check_one_provider_per_place(self) -> Self:
        served: dict[tuple[str, str], str] = {}
        for name, connection in self.connections.items():
            other = served.setdefault((connection.csp, connection.region), name)
            if other != name:
                raise ValueError(
                    f"{other} and {name} are both {connection.csp}/{connection.region}: one connection per place"
                )
        return self


def connections_file_model(
    providers: Sequence[CloudProvider[Any]], backends: Sequence[FamilyBackend[Any]] = ()
) -> type[ConnectionsFile]:
    """Returns the pydantic model of a connections file that allows these providers and backends."""
    entry: Any = Annotated[
        reduce(or_, [provider.connection for provider in providers]), Field(discriminator="provider")
    ]
    several: Any = Annotated[dict[Name, entry], Field(max_length=MAX_CONNECTIONS)]
    roles: dict[str, Any] = {
        role: (reduce(or_, [each.options for each in backends if each.role == role]) | None, None)
        for role in {each.role for each in backends}
    }
    return create_model("ConnectionsFile", __base__=ConnectionsFile, connections=(several, {}), **roles)


_FILE_MODEL = connections_file_model(PROVIDERS, BACKENDS)
_PROVIDER_BY_NAME = {provider.name: provider for provider in PROVIDERS}
BACKEND_BY_OPTIONS = {backend.options: backend for backend in BACKENDS}
_PAGES = " or ".join(filter(None, [*(each.docs_page for each in PROVIDERS), *(each.docs_page for each in BACKENDS)]))
HINT = f"correct it, or unset RATCHET_CONNECTIONS to simulate everything; {_PAGES} describes it"


def parse_connections(document: object, where: str) -> Connections:
    """Parses a connections file; refuses it with every reason, and without quoting its contents."""
    with refuse_validation_errors(f"the connections file {where} is not valid", HINT, "file"):
        file = _FILE_MODEL.model_validate(document)
    named, backends = file.connections, {backend.role: getattr(file, backend.role) for backend in BACKENDS}
    if not named and not any(backends.values()):
        raise Refused(Category.INVALID, f"the connections file {where} names nothing", HINT)
    return Connections(
        named,
        frozenset(connection.csp for connection in named.values()),
        {role: options for role, options in backends.items() if options},
    )


def load_connections(file: Path | None) -> Connections:
    """Loads a connections file. Without a file everything is simulated, under default names."""
    try:
        connections = parse_connections(read_document(file), str(file)) if file else Connections()
    except UnreadableDocument as error:
        raise Refused(Category.INVALID, f"the connections file {file} {error}", HINT) from None
    return connections.with_defaults(default_connections())


def check_connections(file: Path | None, queues: Sequence[str]) -> None:
    """Refuses a bad file, a served cloud without the credentials that the file names, or a host without a backend."""
    connections = load_connections(file)
    for options in connections.backends.values():
        BACKEND_BY_OPTIONS[type(options)].check_prerequisites(options)
    for name, connection in connections.real_connections():
        access = _PROVIDER_BY_NAME[connection.provider].cloud_access
        if access is None or cloud_queue(connection.csp) not in queues:
            continue
        try:
            access.check_prerequisites(connection)
        except Refused as refused:
            why = f"the connection {name} has no credentials: {refused.message}"
            raise Refused(refused.category, why, refused.hint) from refused


def open_clouds(connections: Connections, call_seconds: float) -> dict[str, RealCloud]:
    """Opens the real clouds, by connection name. Makes no call yet."""
    found = [
        (name, connection, _PROVIDER_BY_NAME[connection.provider].cloud_access)
        for name, connection in connections.real_connections()
    ]
    return {name: access.open_cloud(connection, call_seconds) for name, connection, access in found if access}


class ServedClouds(dict[str, Cloud]):
    """The clouds of this worker, by csp. Other workers may have connections to more."""

    def __missing__(self, csp: str) -> Cloud:
        raise Superseded(f"{csp} is not served by this worker: none of its connections is of that cloud")


def make_served_clouds(
    connections: Connections, simulated: Mapping[str, Cloud], real: Mapping[str, RealCloud]
) -> ServedClouds:
    """Returns the clouds by csp: those in the file, with old simulated regions closed to new VMs; others simulated."""

    def make_region_router(csp: str) -> Cloud:
        filed = csp in connections.clouds_in_file
        regions = {
            split_placement(connection.place)[1]: real.get(name, simulated[csp])
            for name, connection in (connections.connections_of_cloud(csp) if filed else ())
        }
        return RegionRouter(csp, regions, simulated[csp], closed=filed)

    return ServedClouds({csp: make_region_router(csp) for csp in simulated})


class FileConnectionInspector:
    """Shows connections to a person: whether credentials exist, and whether the cloud answers."""

    def __init__(self, connections: Connections, real: Mapping[str, RealCloud]) -> None:
        self._connections = connections
        self._real = real

    def list_connections(self) -> list[ConnectionView]:
        """Lists all connections without checking them."""
        named = sorted(self._connections.by_name.items(), key=lambda pair: (pair[1].is_simulated, pair[0]))
        return [
            ConnectionView(
                name=name,
                provider=connection.provider,
                csp=connection.csp,
                region=connection.region,
                page=_PROVIDER_BY_NAME[connection.provider].docs_page,
            )
            for name, connection in named
        ]

    async def inspect_cloud(self, csp: str, ask: bool) -> list[ConnectionView]:
        """Checks the connections of one cloud; with `ask`, also calls the cloud."""
        views = [view for view in self.list_connections() if view.csp == csp]
        return [await self._inspect_connection(view, ask) if view.name in self._real else view for view in views]

    async def _inspect_connection(self, view: ConnectionView, ask: bool) -> ConnectionView:
        cloud = self._real[view.name]
        try:
            where = await cloud.describe_credentials()
            answer = await cloud.check_credentials() if ask else ""
        except Refused as refused:
            return view.model_copy(update={"trouble": f"{refused.message}; {refused.hint}"})
        except ProviderError as error:
            return view.model_copy(update={"trouble": format_one_line(error)})
        return view.model_copy(update={"credentials": where, "answer": answer})
