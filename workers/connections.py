"""The connections file, and the clouds that it makes. A bad file, or credentials that are not there, stop the start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from client.documents import Unreadable, read
from domain.connections import AwsConnection, Connections, ConnectionView, SimulatedConnection, parse
from domain.errors import Category, ProviderError, Refused, Superseded, one_line
from domain.ports import Cloud
from domain.wire import cloud_queue, split_placement
from providers.aws import AwsCloud, check_offline
from providers.regions import RegionRouter
from providers.simulated.catalogue import connections as simulated_connections


def load(file: Path | None) -> Connections:
    """What a file says, or Refused. Without a file everything is simulated, under the usual names."""
    told = parse(_document(file), str(file)) if file else Connections()
    return told.beside(simulated_connections())


def check(file: Path | None, queues: Sequence[str]) -> None:
    """Refused if the file is bad, or if a cloud that is served here lacks the credentials that the file names."""
    for name, each in load(file).real_connections():
        if cloud_queue(each.csp) not in queues:
            continue
        try:
            check_offline(each.credentials)
        except Refused as refused:
            why = f"the connection {name} has no credentials: {refused.message}"
            raise Refused(refused.category, why, refused.hint) from refused


class ServedClouds(dict[str, Cloud]):
    """The clouds of this worker, by csp. Another worker's connections may name more."""

    def __missing__(self, csp: str) -> Cloud:
        raise Superseded(f"{csp} is not served by this worker: none of its connections is of that cloud")


def clouds_of(connections: Connections, simulated: Mapping[str, Cloud], real: Mapping[str, AwsCloud]) -> ServedClouds:
    """By csp. What the file does not speak of is simulated; what was before is still reached, and grows no more."""

    def serving(csp: str) -> Cloud:
        filed = csp in connections.filed
        regions = {
            split_placement(each.place)[1]: real.get(name, simulated[csp])
            for name, each in (connections.of(csp) if filed else ())
        }
        return RegionRouter(csp, regions, simulated[csp], closed=filed)

    return ServedClouds({csp: serving(csp) for csp in simulated})


class ConnectionInspection:
    """Looks at connections for a person: are credentials there, and does the cloud answer?"""

    def __init__(self, connections: Connections, real: Mapping[str, AwsCloud]) -> None:
        self._connections = connections
        self._real = real

    def names(self) -> list[ConnectionView]:
        """All of them, without a look."""
        return [
            ConnectionView(name=name, provider=each.provider, csp=each.csp, region=each.region)
            for name, each in sorted(self._connections.named.items(), key=_real_first)
        ]

    async def inspect(self, csp: str, ask: bool) -> list[ConnectionView]:
        """Those of one cloud; `ask` the cloud itself as well."""
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


def _real_first(named: tuple[str, SimulatedConnection | AwsConnection]) -> tuple[bool, str]:
    return isinstance(named[1], SimulatedConnection), named[0]


def _document(file: Path) -> object:
    try:
        return read(file)
    except Unreadable as error:
        raise _unusable(file, str(error)) from None


def _unusable(file: Path, why: str) -> Refused:
    hint = "mend it, or unset RATCHET_CONNECTIONS to simulate everything; docs/aws.md describes it"
    return Refused(Category.INVALID, f"the connections file {file} {why}", hint)
