"""A process is bound to one store: what it was when it was bound counts from the first moment."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from store.binding import StoreReplaced, bind_store
from store.engine import Database
from store.identity import read_identity
from store.schema import actions
from tests.test_store.driver import StoreDriver


async def test_a_store_that_went_back_right_after_it_was_bound_is_noticed(sqlite_url: str) -> None:
    driver, other = StoreDriver(sqlite_url), Database(sqlite_url)
    await driver.make()
    binding = bind_store(driver.database, await driver.database.run_transaction(read_identity))
    await other.run_transaction(lambda connection: connection.execute(sa.delete(actions)))
    with pytest.raises(StoreReplaced, match="it lacks the actions"):
        await driver.database.run_in_snapshot(binding.check_database)
    driver.close()
    other.close()
