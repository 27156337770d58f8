"""What `verify` reads of the inventory: page by page, from one snapshot, without blocking anybody."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from store import audit
from store.schema import actions, history, objects
from tests.patience import PATIENCE
from tests.test_store.driver import FRONT_1, NS, WEB, StoreDriver, group


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "PAGE_SIZE", 3)


class Slow:
    """Stops the reader after a few pages, until it is told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        self._pages, self._read = 0, audit._SnapshotReader._read_page
        monkeypatch.setattr(audit._SnapshotReader, "_read_page", lambda reader, *what: self._slowly(reader, *what))

    def _slowly(self, reader: audit._SnapshotReader, *what: object) -> object:
        self._pages += 1
        if self._pages == 6:
            self.reached.set()
            assert self.go_on.wait(PATIENCE)
        return self._read(reader, *what)  # type: ignore[arg-type]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, small_pages: None) -> Iterator[Slow]:
    found = Slow(monkeypatch)
    yield found
    found.go_on.set()


async def test_actions_begin_and_end_in_the_middle_of_a_verify_which_does_not_see_them(
    driver: StoreDriver, slow: Slow
) -> None:
    await driver.make(WEB, group(size=5))
    lines = len(await driver.told(WEB)) + sum([len(await driver.told(f"{WEB}:vm:front-{n}")) for n in range(1, 6)])
    reading = asyncio.ensure_future(driver.inventory.check_store_invariants(""))
    await asyncio.to_thread(slow.reached.wait, PATIENCE)
    async with asyncio.timeout(PATIENCE):  # nobody holds a lock that a writer needs
        await driver.act(WEB, "suspend", "Suspended")
        await driver.make(f"{NS}:mci:other")
    slow.go_on.set()
    found = await reading
    assert (found.actions, found.objects, found.lines, found.open, found.findings) == (1, 6, lines, [], [])
    after = await driver.inventory.check_store_invariants("")
    assert (after.actions, after.objects, after.findings) == (3, 9, [])
    assert sorted(await driver.inventory.list_paths_begun_since(found.last)) == [f"{NS}:mci:other", WEB]


async def test_a_reader_cannot_write(driver: StoreDriver) -> None:
    """What begins as a read never takes the lock of the writers by accident."""
    await driver.make()
    change = sa.update(objects).values(error="meddled with")
    if driver.database.sqlite:
        pytest.skip("SQLite has no such transaction")
    with pytest.raises(Exception, match="read-only"):
        await driver.database.run_in_snapshot(lambda connection: connection.execute(change))


async def test_pages_miss_nothing_and_read_nothing_twice(driver: StoreDriver, small_pages: None) -> None:
    await driver.make(WEB, group(size=7))
    await driver.make(f"{WEB}-1", group(size=2))
    for n in range(1, 8):
        await driver.act(f"{WEB}:vm:front-{n}", "reboot", "Running")
    found = await driver.inventory.check_store_invariants("")

    def counted(connection: sa.Connection) -> list[int]:
        tables = (actions, objects, history)
        return [connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one() for table in tables]

    assert [found.actions, found.objects, found.lines] == await driver.database.run_transaction(counted)
    assert found.findings == []
    one = await driver.inventory.check_store_invariants(WEB)  # `web-1` is not below `web`, although it comes between
    assert (one.actions, one.objects) == (8, 8)
    vm = await driver.inventory.check_store_invariants(FRONT_1)
    assert (vm.actions, vm.objects) == (1, 1)


async def test_an_overlap_with_an_action_above_is_found_across_pages(driver: StoreDriver, small_pages: None) -> None:
    """Its path is `web`; `web-1` comes between it and its VMs."""
    await driver.make(WEB, group(size=3))
    await driver.make(f"{WEB}-1")
    await driver.act(f"{WEB}:vm:front-2", "reboot", "Running")
    grant = await driver.grant(WEB, "suspend")
    await driver.land(grant, "Suspended")
    await driver.finish(grant)

    def swap(connection: sa.Connection) -> None:
        """As if the reboot had ended only after the suspend began."""
        mine = history.c.path == f"{WEB}:vm:front-2", history.c.action == "reboot"
        ended = sa.select(sa.func.max(history.c.seq)).where(*mine).scalar_subquery()
        last = sa.select(sa.func.max(history.c.seq)).scalar_subquery()
        connection.execute(sa.update(history).where(history.c.seq == ended).values(seq=last + 1))

    await driver.database.run_transaction(swap)
    found = await driver.inventory.check_store_invariants("")
    assert ("I5", WEB) in [(finding.invariant, finding.path) for finding in found.findings]


async def test_findings_beyond_what_anybody_reads_are_counted(
    driver: StoreDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("domain.invariants.MAX_FINDINGS", 2)
    await driver.make(WEB, group(size=5))
    wrong = sa.update(objects).where(objects.c.kind == "vm").values(status="Suspended")
    await driver.database.run_transaction(lambda connection: connection.execute(wrong).rowcount)
    found = await driver.inventory.check_store_invariants("")
    assert (len(found.findings), found.more) == (2, 3)


@pytest.mark.parametrize("prefix", ["", WEB])
async def test_every_page_is_found_by_an_index(driver: StoreDriver, prefix: str) -> None:
    """SQLite tells how: SEARCH or SCAN by an index that has the order, never a sort."""
    if not driver.database.sqlite:
        pytest.skip("PostgreSQL scans what is small")
    told: list[str] = []

    def plan(connection: sa.Connection) -> None:
        seen: list[tuple[str, object]] = []
        sa.event.listen(connection, "before_cursor_execute", lambda *what: seen.append((what[2], what[3])))
        audit.check_store_invariants(connection, prefix)
        for statement, parameters in list(seen):
            rows = connection.connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            told.extend(row[-1] for row in rows)

    await driver.make()
    await driver.database.run_in_snapshot(plan)
    assert not [line for line in told if "TEMP B-TREE" in line], told
    if prefix:
        assert not [line for line in told if line.startswith("SCAN") and "actions_open" not in line], told


def test_a_reader_rests_for_its_own_work_only_and_for_no_longer_than_it_must(
    driver: StoreDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a busy machine, on which everything waits and oversleeps, makes `verify` many times as slow."""
    clock = FakeTime()
    monkeypatch.setattr(audit, "time", clock)
    with driver.database.engine.connect() as connection:
        reader = audit._SnapshotReader(connection, "")
        for _ in range(1_000):
            clock.waits(0.05)
            clock.works(0.001)
            reader.yield_to_other_threads()
    slept = clock.slept
    assert sum(slept) == pytest.approx(1_000 * 0.001 * audit.REST_PER_WORK, rel=0.05)
    assert len(slept) < 150, "each took ten times as long as it was meant to"


class FakeTime:
    """The clocks of a busy machine: whoever sleeps is woken late, by 15 ms."""

    def __init__(self) -> None:
        self._now = self._worked = 0.0
        self.slept: list[float] = []

    def waits(self, seconds: float) -> None:
        self._now += seconds

    def works(self, seconds: float) -> None:
        self._now += seconds
        self._worked += seconds

    def perf_counter(self) -> float:
        return self._now

    def thread_time(self) -> float:
        return self._worked

    def sleep(self, seconds: float) -> None:
        self._now += seconds + 0.015
        self.slept.append(seconds + 0.015)
