"""Ends a worker whose store was swapped, or whose namespace uses another store since."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from temporalio.client import Client
from temporalio.service import RPCError

from client.storeregistry import other_store_refusal, read_registered_store
from domain.errors import RatchetError
from store.binding import StoreBinding, StoreReplaced
from store.engine import Database
from store.schema import StoreIdentityRow

WATCH_SECONDS = 5.0  # between two looks


class StoreWatch:
    """Looks at a worker's store, and at what the namespace says about it, while the worker serves."""

    def __init__(
        self, client: Client, database: Database, binding: StoreBinding, identity: StoreIdentityRow, where: str
    ) -> None:
        self._client, self._database, self._binding = client, database, binding
        self._identity, self._where = identity, where

    async def run_watch(self, end: Callable[[RatchetError], None]) -> None:
        """Calls `end` with the reason, once, when this worker must not serve any more."""
        while True:
            if reason := await self.find_reason_to_end():
                end(reason)
                return
            await asyncio.sleep(WATCH_SECONDS)

    async def find_reason_to_end(self) -> RatchetError | None:
        """Returns why this worker must not serve any more. A store or a server that is away is no reason."""
        try:
            await self._database.run_in_snapshot(self._binding.check_database)
        except StoreReplaced as error:
            return error
        except RatchetError:
            pass  # away; each new connection is checked when it is back
        try:
            registered = await read_registered_store(self._client)
        except (RatchetError, RPCError):
            return None
        if registered in (None, self._identity.id):
            return None
        return other_store_refusal(self._client, registered, self._where, self._identity.id)
