"""The rate limits of a cloud hold over all worker processes, also when one is killed and one is frozen and wakes.

What was in flight when a worker was killed or frozen is with the cloud: nobody can take that back. It counts while the
worker's permits live; whatever begins later must have permits of its own.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa

from domain.limits import CAPS_BY_CLOUD
from domain.permits import SHARE_SECONDS
from domain.wire import cloud_queue
from store import dbtime
from store.schema import permits
from tests.patience import PATIENCE
from tests.test_platform.site import Site, Worker
from workflows.calls import HEARTBEAT

CSP, REGIONS, VMS = "ncp", 5, 45  # more regions and more VMs than the cloud takes at once: 3 and 15
SPEC = {"subGroups": [{"name": f"g{n}", "subGroupSize": VMS, "csp": CSP, "region": f"r{n}"} for n in range(REGIONS)]}
LATENCY = "1"  # a busy machine must have begun many calls before the first ends


@dataclass
class Stop:
    """A worker that was killed or frozen, and the earliest time at which its permits can be over."""

    pid: int
    until: float


@dataclass(frozen=True)
class Note:
    """A line of the simulated clouds' journal."""

    at: float
    pid: int
    region: str
    change: int


def notes(journal: Path) -> list[Note]:
    lines = (json.loads(line) for line in journal.read_text().splitlines())
    found = [Note(line["at"], line["pid"], line["region"], line["change"]) for line in lines if line["csp"] == CSP]
    return sorted(found, key=lambda note: note.at)


def in_flight(journal: Path, stops: list[Stop]) -> Iterator[Counter[str]]:
    """VMs in flight by region, after each change. Of a stopped worker what was in flight counts while permits live."""
    by_worker: Counter[tuple[int, str]] = Counter()
    lost: dict[int, Counter[tuple[int, str]]] = {}
    for note in notes(journal):
        for stop in stops:
            if stop.pid not in lost and note.at > stop.until:
                lost[stop.pid] = Counter({key: n for key, n in by_worker.items() if key[0] == stop.pid})
                by_worker -= lost[stop.pid]
        gone = lost.get(note.pid, Counter())
        if note.change < 0 and gone[note.pid, note.region] > 0:
            gone[note.pid, note.region] += note.change  # one of those on its way when the worker was frozen
        else:
            by_worker[note.pid, note.region] += note.change
        regions: Counter[str] = Counter()
        for (_, region), number in by_worker.items():
            regions[region] += number
        yield +regions


def check(journal: Path, stops: list[Stop]) -> int:
    """The caps hold at every moment. Returns the most VMs that were in flight at once."""
    cap, most = CAPS_BY_CLOUD[CSP], 0
    for now in in_flight(journal, stops):
        assert max(now.values(), default=0) <= cap.vms, now
        assert len(now) <= cap.regions, now
        most = max(most, now.total())
    return most


async def _serving(site: Site, stack: AsyncExitStack, number: int) -> list[Worker]:
    """So many workers, to each of which Temporal gives work."""
    workers = [await stack.enter_async_context(site.worker()) for _ in range(number)]
    wanted = {str(worker.process.pid) for worker in workers}
    async with asyncio.timeout(PATIENCE):
        while not wanted <= {name.split("@")[0] for name in await site.asking.read_poller_identities(cloud_queue(CSP))}:
            await asyncio.sleep(0.05)
    return workers


async def _two_busy(journal: Path, workers: list[Worker]) -> list[Worker]:
    """Two workers that have calls in flight: which of them Temporal gives work to is for Temporal to say."""
    async with asyncio.timeout(PATIENCE):
        while True:
            calls: Counter[int] = Counter()
            for note in notes(journal):
                calls[note.pid] += note.change
            busy = [worker for worker in workers if worker.process.pid and calls[worker.process.pid] > 0]
            if len(busy) >= 2:
                return busy[:2]
            await asyncio.sleep(0.02)


def _stop(site: Site, worker: Worker, word: signal.Signals) -> Stop:
    """A worker renews its permits when the machine lets it: how long they are good yet, only the store knows."""

    def shortest(connection: sa.Connection) -> float:
        held = sa.select(permits.c.until).where(permits.c.cloud == CSP, permits.c.worker != "")
        now = dbtime.read_database_micros(connection) / 1e6
        return min((until - now for until in connection.execute(held).scalars()), default=0.0)

    at = time.monotonic()
    worker.process.send_signal(word)
    assert worker.process.pid
    return Stop(worker.process.pid, at + site.database.run_transaction_blocking(shortest))


@pytest.mark.parametrize("workers", [1, 2, 5])
async def test_no_more_is_in_flight_than_a_cloud_takes_whoever_is_killed_or_frozen(site: Site, workers: int) -> None:
    journal, stops, path = site.home / "journal", list[Stop](), "ns:default:mci:caps"
    journal.touch()
    site.environment |= {"RATCHET_SIMULATED_JOURNAL": str(journal), "RATCHET_SIMULATED_LATENCY": LATENCY}
    async with AsyncExitStack() as stack:
        serving = await _serving(site, stack, workers)
        ticket = await site.asking.request_action(site.request(path, "create", SPEC))
        assert not ticket.admission.refusal, ticket.admission.refusal
        if workers > 2:
            killed, frozen = await _two_busy(journal, serving)
            stops = [_stop(site, frozen, signal.SIGSTOP), _stop(site, killed, signal.SIGKILL)]
            await asyncio.sleep(HEARTBEAT.total_seconds() + 1)  # others have its work and its permits now
            frozen.process.send_signal(signal.SIGCONT)
        outcome = await site.asking.wait_for_outcome(path, ticket.run)
    assert outcome.done == REGIONS * VMS, outcome
    most = check(journal, stops)
    assert most > CAPS_BY_CLOUD[CSP].vms * 2, f"at most {most} were in flight: the permits were not used"
    if workers == 2:
        busy = {note.pid for note in notes(journal)}
        assert len(busy) == 2, "both workers had a part"


async def test_a_worker_that_is_killed_keeps_nobody_waiting_for_longer_than_its_heartbeat() -> None:
    assert HEARTBEAT.total_seconds() > SHARE_SECONDS
