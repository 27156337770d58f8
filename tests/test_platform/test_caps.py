"""The rate limits of a cloud hold over all worker processes, also when one is killed and one is frozen and wakes.

What was in flight when a worker was killed or frozen, by us or by a machine that stood still, is with the cloud: nobody
can take that back. It counts while the worker's permits live; whatever begins later must have permits of its own.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from domain.limits import CAPS_BY_CLOUD
from domain.permits import SHARE_SECONDS
from domain.wire import cloud_queue
from tests.patience import PATIENCE
from tests.test_platform.site import Site, Worker
from workflows.calls import HEARTBEAT

CSP, REGIONS, VMS = "ncp", 5, 45  # more regions and more VMs than the cloud takes at once: 3 and 15
SPEC = {"subGroups": [{"name": f"g{n}", "subGroupSize": VMS, "csp": CSP, "region": f"r{n}"} for n in range(REGIONS)]}
LATENCY = "1"  # a busy machine must have begun many calls before the first ends


@dataclass(frozen=True)
class Note:
    """A line of the journal: so many VMs begin or end, or until when the worker's permits are good."""

    at: float
    pid: int
    region: str
    change: int
    until: float | None


def notes(journal: Path) -> list[Note]:
    lines = (json.loads(line) for line in journal.read_text().splitlines())
    found = [
        Note(line["at"], line["pid"], line.get("region", ""), line.get("change", 0), line.get("until"))
        for line in lines
        if line["csp"] == CSP
    ]
    return sorted(found, key=lambda note: note.at)


def in_flight(journal: Path) -> Iterator[Counter[str]]:
    """VMs in flight by region, after each change, but for those whose worker had permits that are over by now."""
    by_worker: Counter[tuple[int, str]] = Counter()
    late: Counter[tuple[int, str]] = Counter()
    until: dict[int, float] = {}  # of each worker's permits, unless they are over
    for note in notes(journal):
        for pid in [pid for pid, end in until.items() if end < note.at]:
            del until[pid]
            over = Counter({key: n for key, n in by_worker.items() if key[0] == pid})
            by_worker -= over
            late += over
        key = (note.pid, note.region)
        if note.until is not None:
            until[note.pid] = note.until
        elif note.change < 0 and late[key] > 0:
            late[key] += note.change  # one of those on its way when its worker, or the machine, stood still
        else:
            by_worker[key] += note.change
        regions: Counter[str] = Counter()
        for (_, region), number in by_worker.items():
            regions[region] += number
        yield +regions


def check(journal: Path) -> int:
    """The caps hold at every moment. Returns the most VMs that were in flight at once."""
    cap, most = CAPS_BY_CLOUD[CSP], 0
    for now in in_flight(journal):
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


@pytest.mark.parametrize("workers", [1, 2, 5])
async def test_no_more_is_in_flight_than_a_cloud_takes_whoever_is_killed_or_frozen(site: Site, workers: int) -> None:
    journal, path = site.home / "journal", "ns:default:mci:caps"
    journal.touch()
    site.program = "tests.test_platform.lapsing"
    site.environment |= {"RATCHET_SIMULATED_JOURNAL": str(journal), "RATCHET_SIMULATED_LATENCY": LATENCY}
    async with AsyncExitStack() as stack:
        serving = await _serving(site, stack, workers)
        ticket = await site.asking.request_action(site.request(path, "create", SPEC))
        assert not ticket.admission.refusal, ticket.admission.refusal
        if workers > 2:
            killed, frozen = await _two_busy(journal, serving)
            frozen.process.send_signal(signal.SIGSTOP)
            killed.process.send_signal(signal.SIGKILL)
            await asyncio.sleep(HEARTBEAT.total_seconds() + 1)  # others have its work and its permits now
            frozen.process.send_signal(signal.SIGCONT)
        outcome = await site.asking.wait_for_outcome(path, ticket.run)
    assert outcome.done == REGIONS * VMS, outcome
    most = check(journal)
    assert most > CAPS_BY_CLOUD[CSP].vms * 2, f"at most {most} were in flight: the permits were not used"
    if workers == 2:
        busy = {note.pid for note in notes(journal)}
        assert len(busy) == 2, "both workers had a part"


async def test_a_worker_that_is_killed_keeps_nobody_waiting_for_longer_than_its_heartbeat() -> None:
    assert HEARTBEAT.total_seconds() > SHARE_SECONDS
