"""Lists and checks connections, in the worker that uses them."""

from __future__ import annotations

from typing import Protocol

from temporalio import activity

from domain.connections import ConnectionsQuery, ConnectionsView, ConnectionView


class ConnectionInspector(Protocol):
    """What the activity needs: it lists the connections of this process to clouds, and checks them."""

    def list_connections(self) -> list[ConnectionView]: ...

    async def inspect_cloud(self, csp: str, ask: bool) -> list[ConnectionView]: ...


class ConnectionActivities:
    """The activity behind `starter connections`. It runs on a cloud's own queue, as the credentials are there."""

    def __init__(self, inspector: ConnectionInspector) -> None:
        self._inspector = inspector

    @activity.defn
    async def read_connections(self, query: ConnectionsQuery) -> ConnectionsView:
        """Returns the names of all connections, or one cloud's connections with a check. Never a secret."""
        if not query.csp:
            return ConnectionsView(connections=self._inspector.list_connections())
        return ConnectionsView(connections=await self._inspector.inspect_cloud(query.csp, query.check))
