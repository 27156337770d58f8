"""The hash chain over the history: writers never wait, and one changed, missing or added byte is found."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from store.history import history_line
from store.schema import HistoryRow, history, pruned, seals
from store.seals import (
    LINES_PER_SEAL,
    SealChainReport,
    canonical_line_text,
    check_chain,
    iterate_seals,
    read_sealed_lines,
    seal_lines,
)
from tests.patience import eventually
from tests.test_store.driver import NOON, StoreDriver

DOCS = Path(__file__).parents[2] / "docs" / "audit.md"


def write(driver: StoreDriver, *paths: str, epoch: int = 1) -> None:
    lines = [history_line(path, NOON, "User", "create", "None", "Running", epoch, "ok") for path in paths]
    driver.database.run_transaction_blocking(lambda one: one.execute(sa.insert(history), lines) and None)


def seal(driver: StoreDriver) -> int:
    return driver.database.run_transaction_blocking(seal_lines)


def seal_some(driver: StoreDriver) -> int:
    return eventually(lambda: seal(driver))


def seal_lines_until(driver: StoreDriver, number: int) -> None:
    """Until so many lines are sealed: a transaction of another database of the server may hold some of them back."""
    while check(driver).lines < number and seal_some(driver):
        pass


def seal_often(driver: StoreDriver) -> None:
    for _ in range(10):
        seal(driver)


def check(driver: StoreDriver, anchor: str = "") -> SealChainReport:
    return driver.database.run_in_snapshot_blocking(lambda one: check_chain(one, anchor))


def run(driver: StoreDriver, statement: Any) -> None:
    driver.database.run_transaction_blocking(lambda one: one.execute(statement) and None)


@pytest.fixture
def sealed(driver: StoreDriver) -> StoreDriver:
    """Three seals over six lines."""
    for number in range(3):
        write(driver, f"ns:a:mci:w{number}", f"ns:b:mci:w{number}", epoch=number + 1)
        assert seal_some(driver) == 2
    assert check(driver)._replace(head="") == SealChainReport(3, 6, 0, "", [])
    return driver


@pytest.mark.parametrize(
    ("column", "value"),
    [("message", "oK"), ("actor", "Nobody"), ("to", "Failed"), ("epoch", 9), ("at", NOON.replace(microsecond=1))],
)
def test_one_changed_byte_is_found(sealed: StoreDriver, column: str, value: object) -> None:
    run(sealed, sa.update(history).where(history.c.path == "ns:a:mci:w1").values({column: value}))
    (found,) = check(sealed).violations
    assert re.fullmatch(r"line \d+ of ns:a:mci:w1 was changed \(seal 2\)", found)


def test_a_removed_line_is_found_unless_retention_removed_it(sealed: StoreDriver) -> None:
    run(sealed, sa.delete(history).where(history.c.path == "ns:a:mci:w1"))
    (found,) = check(sealed).violations
    assert "of ns:a:mci:w1 was removed" in found
    facts = {"path": "ns:a:mci:w1", "status": "Running", "came_from": "None", "doing": "create", "epoch": 2}
    run(sealed, sa.insert(pruned).values(facts))
    assert check(sealed)[1:3] == (6, 1)
    assert check(sealed).violations == []


def test_a_line_between_sealed_ones_is_found(sealed: StoreDriver) -> None:
    run(sealed, sa.update(history).values(xid=0))  # so that both databases order by number
    forged = history_line("ns:a:mci:w0", NOON, "User", "delete", "Running", "None", 1) | {"seq": -5, "xid": 0}
    run(sealed, sa.insert(history).values(forged))
    assert check(sealed).violations == ["put between sealed lines: 1 line"]


@pytest.mark.parametrize("change", ["hash", "lines", "previous", "drop"])
def test_a_changed_or_missing_seal_is_found(sealed: StoreDriver, change: str) -> None:
    second = sa.update(seals).where(seals.c.number == 2)
    statements = {
        "hash": second.values(hash="0" * 64),
        "previous": second.values(previous="0" * 64),
        "lines": second.values(lines=[]),
        "drop": sa.delete(seals).where(seals.c.number == 2),
    }
    run(sealed, statements[change])
    assert any("seal" in violation for violation in check(sealed).violations)


def test_a_chain_that_was_cut_at_its_end_is_found_by_an_earlier_head(sealed: StoreDriver) -> None:
    head = check(sealed).head
    run(sealed, sa.delete(seals).where(seals.c.number == 3))
    assert check(sealed).violations == [], "nothing inside the store shows it"
    assert check(sealed, head).violations == [f"there is no seal {head}: the chain was cut or made anew"]


def test_writers_and_sealers_at_once_leave_no_line_out(driver: StoreDriver) -> None:
    with ThreadPoolExecutor(6) as threads:
        works = [threads.submit(write, driver, *(f"ns:a:mci:w{n}-{m}" for m in range(5))) for n in range(20)]
        works += [threads.submit(seal_often, driver) for _ in range(2)]
        for work in works:
            work.result()
    seal_lines_until(driver, 100)
    assert check(driver)[1:3] == (100, 0)
    assert check(driver).violations == []


def test_a_line_that_commits_late_is_sealed_late(driver: StoreDriver) -> None:
    if driver.database.sqlite:
        pytest.skip("SQLite has one writer at a time")
    late = driver.database.engine.connect()
    late.begin()
    late.execute(sa.insert(history), [history_line("ns:a:mci:late", NOON, "User", "create", "None", "Running", 1)])
    write(driver, "ns:a:mci:early")
    assert seal(driver) == 0, "an older transaction is open"
    late.commit()
    late.close()
    seal_lines_until(driver, 2)
    assert check(driver)[1:3] == (2, 0)
    assert check(driver).violations == []


def test_long_histories_have_several_seals(driver: StoreDriver) -> None:
    write(driver, *(f"ns:a:mci:w{n}" for n in range(LINES_PER_SEAL + 1)))
    assert [seal_some(driver), seal_some(driver), seal(driver)] == [LINES_PER_SEAL, 1, 0]
    assert check(driver)[:2] == (2, LINES_PER_SEAL + 1)


def exported(driver: StoreDriver) -> list[dict[str, Any]]:
    found = []
    with driver.database.engine.connect() as connection:
        for one in iterate_seals(connection):
            there = read_sealed_lines(connection, one)
            lines = [{"digest": line[3], "text": canonical_line_text(there[line[0]])} for line in one.lines]
            found.append({"number": one.number, "previous": one.previous, "hash": one.hash, "lines": lines})
    return found


def test_the_checker_of_the_docs_finds_a_change_in_an_export(sealed: StoreDriver, tmp_path: Path) -> None:
    (checker,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(checker.splitlines()) <= 20

    def run_checker(records: list[dict[str, Any]]) -> int:
        text = "".join(json.dumps(record) + "\n" for record in records)
        return subprocess.run([sys.executable, "-c", checker], input=text, text=True, capture_output=True).returncode

    records = exported(sealed)
    assert run_checker(records) == 0
    assert run_checker([records[0], records[2]]) != 0
    records[1]["lines"][0]["text"] = records[1]["lines"][0]["text"].replace("Running", "Failed")
    assert run_checker(records) != 0


def as_worker(driver: StoreDriver, statement: str) -> None:
    with driver.database.engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL ROLE ratchet_worker_of_test")
        connection.exec_driver_sql(statement)


GRANTS = re.compile(r"```sql\n(.*?)```", re.DOTALL)


def test_a_worker_that_has_only_the_documented_rights_cannot_rewrite_history(sealed: StoreDriver) -> None:
    if sealed.database.sqlite:
        pytest.skip("SQLite has no roles")
    (grants,) = GRANTS.findall(DOCS.read_text())
    with sealed.database.engine.begin() as connection:
        connection.exec_driver_sql("DROP ROLE IF EXISTS ratchet_worker_of_test")
        connection.exec_driver_sql("CREATE ROLE ratchet_worker_of_test")
        connection.exec_driver_sql(grants.replace("ratchet_worker", "ratchet_worker_of_test"))
    forbidden = (
        "UPDATE history SET message = 'x'",
        "UPDATE audit_seals SET hash = 'x'",
        "DELETE FROM audit_seals",
        "TRUNCATE audit_seals",
        "TRUNCATE history",
    )
    for statement in forbidden:
        with pytest.raises(sa.exc.ProgrammingError, match="permission denied"):
            as_worker(sealed, statement)
    with sealed.database.engine.begin() as one:  # what a worker does
        one.exec_driver_sql("SET LOCAL ROLE ratchet_worker_of_test")
        one.execute(sa.insert(history), [history_line("ns:a:mci:x", NOON, "User", "create", "None", "Running", 9)])

    def seal_as_worker() -> int:
        with sealed.database.engine.begin() as one:
            one.exec_driver_sql("SET LOCAL ROLE ratchet_worker_of_test")
            return seal_lines(one)

    assert eventually(seal_as_worker) == 1
    assert check(sealed).violations == []
    with sealed.database.engine.begin() as connection:
        connection.exec_driver_sql("DROP OWNED BY ratchet_worker_of_test")
        connection.exec_driver_sql("DROP ROLE ratchet_worker_of_test")


@given(st.text(), st.text(), st.datetimes(timezones=st.just(UTC)))
def test_the_text_of_a_line_is_json_with_sorted_keys_and_no_spaces(path: str, message: str, at: datetime) -> None:
    line = HistoryRow(7, path, at, "user", "create", "None", "Creating", 3, message, "applied", 99)
    shown = line._asdict() | {"at": at.isoformat(timespec="microseconds")}
    del shown["xid"]
    told = json.dumps(shown, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert canonical_line_text(line) == told
