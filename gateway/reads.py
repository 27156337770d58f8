"""Reads from the store itself where this process has it; through a worker where not. No route knows which."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from activities.refusals import refusal_of_error
from client.actions import ActionClient
from client.queries import READ_SECONDS
from domain import wire
from domain.errors import StoreUnavailable

T = TypeVar("T", bound=BaseModel)


class GatewayClient(ActionClient):
    """An ActionClient that answers reads from the store, so that they leave nothing in Temporal."""

    def __init__(
        self, client: Client, store_reads: Mapping[str, Callable[..., Awaitable[Any]]] | None = None, ui: str = ""
    ) -> None:
        super().__init__(client, ui)
        self.store_reads = store_reads or {}

    async def run_query(
        self,
        activity: str,
        query: BaseModel,
        answer: type[T],
        seconds: float = READ_SECONDS,
        queue: str = wire.ACTIONS_QUEUE,
    ) -> T:
        read = self.store_reads.get(activity)
        if read is None or queue != wire.ACTIONS_QUEUE:
            return await super().run_query(activity, query, answer, seconds, queue)
        try:
            result: T = await read(query)
            return result
        except ApplicationError as error:
            if (refusal := refusal_of_error(error)) is not None:
                raise refusal.to_error() from error
            raise StoreUnavailable(error.message) from error
