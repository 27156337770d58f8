"""What can be read, whoever answers. Temporal's SDK, which takes half a second to load, is not needed here."""

from __future__ import annotations

import getpass
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from client.errors import AnswerTooLarge
from client.gateway import GatewayReader, find_gateway
from client.homefiles import LOGIN_FILE, read_embedded_options
from domain import wire
from domain.message import SignedMessage
from domain.model import HistoryLine, HistoryView, ObjectsView, ObjectView, ReadQuery

T = TypeVar("T", bound=BaseModel)

READ_SECONDS = 10
PAGE_SIZE = 500  # objects in one answer: Temporal's limit is 2 MB
# With any other RATCHET_ or TEMPORAL_ variable, only a whole client knows whom to ask, and how to sign.
_KNOWN_VARIABLES = {"RATCHET_HOME", "RATCHET_SUBJECT", "RATCHET_COMMAND", "RATCHET_UI_URL"}
_PROFILES = ("~/.config/temporalio/temporal.toml", "~/Library/Application Support/temporalio/temporal.toml")


class Queries(ABC):
    """Reads the inventory."""

    @abstractmethod
    async def run_query(
        self,
        activity: str,
        query: BaseModel,
        answer: type[T],
        seconds: float = READ_SECONDS,
        queue: str = wire.ACTIONS_QUEUE,
    ) -> T:
        """Runs a query, named by the activity that answers it. Raises Refused if it is refused."""

    async def read_object(self, path: str) -> ObjectView:
        """Reads one object; Refused if it does not exist."""
        return await self.run_query(wire.READ_OBJECT, ReadQuery(path=path), ObjectView)

    async def read_history(self, path: str, limit: int = 100) -> list[HistoryLine]:
        """Reads the last changes of an object, oldest first."""
        return (await self.run_query(wire.READ_HISTORY, ReadQuery(path=path, limit=limit), HistoryView)).lines

    async def iterate_objects(self, kind: str, prefix: str = "") -> AsyncIterator[ObjectView]:
        """Iterates over all objects of a kind at or below a path, page by page."""
        after, size = "", PAGE_SIZE
        while True:
            query = ReadQuery(kind=kind, path=prefix, after=after, limit=size)
            try:
                page = await self.run_query(wire.READ_OBJECTS, query, ObjectsView)
            except AnswerTooLarge:
                if size == 1:
                    raise
                size = max(1, size // 8)
                continue
            for view in page.objects:
                yield view
            if not page.after:
                return
            after = page.after


class GatewayQueries(Queries):
    """Reads through the gateway of `starter up`; what that cannot answer, through a client that is connected then."""

    def __init__(self, gateway: GatewayReader, name: str, connect: Callable[[], Awaitable[Queries]]) -> None:
        self._gateway = gateway
        self._name = name
        self._connect = connect
        self._connected: Queries | None = None

    async def run_query(
        self,
        activity: str,
        query: BaseModel,
        answer: type[T],
        seconds: float = READ_SECONDS,
        queue: str = wire.ACTIONS_QUEUE,
    ) -> T:
        if self._connected is None and queue == wire.ACTIONS_QUEUE:
            asked = query
            if isinstance(query, SignedMessage) and not query.requested_by:
                asked = query.model_copy(update={"requested_by": self._name})
            found = await self._gateway.try_read(activity, asked, answer, seconds)
            if found is not None:
                return found
        self._connected = self._connected or await self._connect()
        return await self._connected.run_query(activity, query, answer, seconds, queue)


def find_own_gateway(environ: Mapping[str, str]) -> GatewayReader | None:
    """Returns the gateway of the `starter up` in the home folder; None if a variable, a profile or a login may choose
    another server or another identity.
    """
    told = {name for name in environ if name.startswith(("RATCHET_", "TEMPORAL_"))}
    home = Path(environ.get("RATCHET_HOME", ".ratchet"))
    configured = "XDG_CONFIG_HOME" in environ or any(Path(name).expanduser().exists() for name in _PROFILES)
    if told - _KNOWN_VARIABLES or configured or (home / LOGIN_FILE).exists():
        return None
    address = find_gateway(home, str(read_embedded_options(home).get("address", "")), "default")
    return GatewayReader(address) if address else None


def user_name() -> str:
    """Returns the user's name, from the operating system."""
    try:
        return getpass.getuser()[:100]
    except (KeyError, OSError):  # a container's user often has no name
        return ""
