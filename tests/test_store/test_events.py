"""The order of events: whoever follows them misses none, however many write at once."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from domain.errors import Category, Refused
from domain.events import FIRST_CURSOR, EventCursor, parse_cursor
from store.events import list_events_after, read_newest_position
from store.history import history_line
from store.schema import history
from tests.patience import PATIENCE, eventually
from tests.test_store.driver import NOON, StoreDriver

WRITERS, LINES = 8, 40


def write_line(connection: sa.Connection, path: str) -> None:
    connection.execute(sa.insert(history), [history_line(path, NOON, "User", "create", "None", "Running", 1)])


def paths_after(driver: StoreDriver, cursor: EventCursor) -> list[str]:
    return [
        event.line.path
        for event in driver.database.run_in_snapshot_blocking(lambda one: list_events_after(one, cursor, 1_000))
    ]


def test_a_line_that_commits_late_is_not_missed(driver: StoreDriver) -> None:
    """On PostgreSQL the first line has the lower number and commits second: it must not be read past."""
    if driver.database.sqlite:
        pytest.skip("SQLite has one writer at a time")
    late = driver.database.engine.connect()
    late.begin()
    write_line(late, "ns:a:mci:late")
    driver.database.run_transaction_blocking(lambda connection: write_line(connection, "ns:a:mci:early"))
    assert paths_after(driver, FIRST_CURSOR) == [], "the early line is not shown while an older transaction is open"
    late.commit()
    late.close()
    seen = eventually(lambda: paths_after(driver, FIRST_CURSOR), lambda paths: len(paths) == 2)
    assert sorted(seen) == ["ns:a:mci:early", "ns:a:mci:late"]


def test_readers_beside_racing_writers_see_each_line_once(driver: StoreDriver) -> None:
    def write(writer: int) -> None:
        for number in range(LINES):
            driver.database.run_transaction_blocking(lambda one, n=number: write_line(one, f"ns:a:mci:w{writer}-{n}"))  # type: ignore[misc]

    seen: list[str] = []
    cursor = FIRST_CURSOR
    with ThreadPoolExecutor(WRITERS) as threads:
        for writer in range(WRITERS):
            threads.submit(write, writer)
        deadline = time.monotonic() + PATIENCE
        while True:
            page = driver.database.run_in_snapshot_blocking(lambda one, at=cursor: list_events_after(one, at, 7))  # type: ignore[misc]
            seen += [event.line.path for event in page]
            cursor = parse_cursor(page[-1].id) if page else cursor
            if len(seen) >= WRITERS * LINES and not page:
                break
            assert time.monotonic() < deadline, len(seen)
    assert len(seen) == WRITERS * LINES
    assert len(set(seen)) == WRITERS * LINES


def test_a_position_is_the_one_after_which_nothing_was_written(driver: StoreDriver) -> None:
    assert driver.database.run_in_snapshot_blocking(read_newest_position) == FIRST_CURSOR
    driver.database.run_transaction_blocking(lambda connection: write_line(connection, "ns:a:mci:web"))
    newest = eventually(
        lambda: driver.database.run_in_snapshot_blocking(read_newest_position), lambda position: position > FIRST_CURSOR
    )
    assert newest > FIRST_CURSOR
    assert paths_after(driver, newest) == []
    assert paths_after(driver, FIRST_CURSOR) == ["ns:a:mci:web"]


def test_a_position_whose_line_is_gone_is_refused(driver: StoreDriver) -> None:
    driver.database.run_transaction_blocking(lambda connection: write_line(connection, "ns:a:mci:web"))
    newest = eventually(
        lambda: driver.database.run_in_snapshot_blocking(read_newest_position), lambda position: position > FIRST_CURSOR
    )
    driver.database.run_transaction_blocking(lambda connection: connection.execute(sa.delete(history)))
    with pytest.raises(Refused, match="there is no event") as refused:
        paths_after(driver, newest)
    assert refused.value.category is Category.NOT_FOUND


@pytest.mark.parametrize("text", ["", "1", "x.1", "1.", "1.2.3", "-1.2", f"{2**63}.1", "1e3.1"])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="no event ID"):
        parse_cursor(text)
