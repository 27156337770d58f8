"""Which connections there are, and whether they work: asked of the worker that would use them."""

from __future__ import annotations

from typing import Protocol

from temporalio import activity

from domain.connections import ConnectionsQuery, ConnectionsView, ConnectionView


class ConnectionInspector(Protocol):
    """Who knows the connections of this process."""

    def names(self) -> list[ConnectionView]: ...

    async def inspect(self, csp: str, ask: bool) -> list[ConnectionView]: ...


class ConnectionReading:
    """What `starter connections` asks for. On a cloud's own queue, because the credentials are there."""

    def __init__(self, inspector: ConnectionInspector) -> None:
        self._inspector = inspector

    @activity.defn
    async def read_connections(self, query: ConnectionsQuery) -> ConnectionsView:
        """All names; or one cloud's connections with what is found out about them. Never a secret."""
        if not query.csp:
            return ConnectionsView(connections=self._inspector.names())
        return ConnectionsView(connections=await self._inspector.inspect(query.csp, query.check))
