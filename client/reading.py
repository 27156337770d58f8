"""What can be read, whoever answers. Temporal's SDK, which takes half a second to load, is not needed here."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from client.errors import AnswerTooLarge
from client.gateway import READS_PATH, GatewayAddress, find_own_address, split_answer
from domain import wire
from domain.errors import Category, Refused
from domain.message import SignedMessage
from domain.model import HistoryLine, HistoryView, ObjectsView, ObjectView, ReadQuery

T = TypeVar("T", bound=BaseModel)

READ_SECONDS = 10
PAGE_SIZE = 500  # objects in one answer: Temporal's limit is 2 MB
PROBLEM_PREFIX = "urn:ratchet:"
_WORKERS_OWN = {wire.READ_STORE}  # `starter doctor` asks it to learn which store the workers use
_CATEGORIES = {category.value for category in Category}


class Queries(ABC):
    """Reads the inventory: directly where that is possible, as a read through a worker leaves a line in Temporal."""

    read_seconds: float = READ_SECONDS  # to wait for an answer

    async def run_query(
        self,
        activity: str,
        query: BaseModel,
        answer: type[T],
        seconds: float | None = None,
        queue: str = wire.ACTIONS_QUEUE,
    ) -> T:
        """Runs a query, named by the activity that answers it. Raises Refused if it is refused."""
        seconds = seconds or self.read_seconds
        if queue == wire.ACTIONS_QUEUE:
            found = await self._answer_directly(activity, query, answer, seconds)
            if found is not None:
                return found
        return await self._ask_worker(activity, query, answer, seconds, queue)

    @abstractmethod
    async def _answer_directly(self, activity: str, query: BaseModel, answer: type[T], seconds: float) -> T | None:
        """Returns the answer of somebody who is no worker; None if there is nobody who can give it."""

    @abstractmethod
    async def _ask_worker(self, activity: str, query: BaseModel, answer: type[T], seconds: float, queue: str) -> T:
        """Returns the answer of a worker of this queue."""

    async def read_object(self, path: str) -> ObjectView:
        """Reads one object; Refused if it does not exist."""
        return await self.run_query(wire.READ_OBJECT, ReadQuery(path=path), ObjectView)

    async def object_exists(self, path: str) -> bool:
        """Tells whether there is such an object."""
        try:
            await self.read_object(path)
        except Refused as refused:
            if refused.category is Category.NOT_FOUND:
                return False
            raise
        return True

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


class GatewayReader:
    """Asks a gateway for reads."""

    def __init__(self, address: GatewayAddress) -> None:
        self._address = address

    async def try_read(self, name: str, query: BaseModel, answer: type[T], seconds: float) -> T | None:
        """Returns the answer; None if this gateway cannot give it, so that a worker must; or raises Refused."""
        if not name.startswith("read_") or name in _WORKERS_OWN:
            return None
        message = self._address.compose_post(f"{READS_PATH}/{name}", query.model_dump_json().encode())
        try:
            async with asyncio.timeout(seconds):
                status, body = split_answer(await self._exchange(message))
            return _parse_answer(status, body, answer)
        except (OSError, ValidationError, ValueError):  # it is gone, or of another version
            return None

    async def _exchange(self, message: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(*self._address.host_and_port, limit=2**20)
        try:
            writer.write(message)
            return await reader.read()
        finally:
            writer.close()


def _parse_answer(status: int, body: bytes, answer: type[T]) -> T | None:
    if status == HTTPStatus.OK:
        return answer.model_validate_json(body)
    problem = json.loads(body)
    category = str(problem.get("type", "")).removeprefix(PROBLEM_PREFIX)
    if category not in _CATEGORIES:
        return None
    raise Refused(Category(category), str(problem.get("detail", "")), str(problem.get("hint", "")))


class GatewayQueries(Queries):
    """Reads through the gateway of `starter up`; what that cannot answer, through a client that is connected then."""

    def __init__(self, gateway: GatewayReader, name: str, connect: Callable[[], Awaitable[Queries]]) -> None:
        self._gateway = gateway
        self._name = name
        self._connect = connect
        self._connected: Queries | None = None

    async def _answer_directly(self, activity: str, query: BaseModel, answer: type[T], seconds: float) -> T | None:
        if self._connected:
            return None
        if isinstance(query, SignedMessage) and not query.requested_by:
            query = query.model_copy(update={"requested_by": self._name})
        return await self._gateway.try_read(activity, query, answer, seconds)

    async def _ask_worker(self, activity: str, query: BaseModel, answer: type[T], seconds: float, queue: str) -> T:
        self._connected = self._connected or await self._connect()
        return await self._connected.run_query(activity, query, answer, seconds, queue)


def find_own_gateway(environ: Mapping[str, str]) -> GatewayReader | None:
    """Returns a reader of the `starter up` in the home folder, if `find_own_address` finds it."""
    address = find_own_address(environ)
    return GatewayReader(address) if address else None
