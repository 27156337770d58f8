"""Load test: a hundred users with random actions on a thousand objects of every family. Run: python3 run.py bench load

Every request is answered: done, failed, or refused with a reason. Some requests are bare workflows, so that latencies
can be given as ratios under the same conditions. Memory is that of the process with all workers and users. Before the
measurement the users send requests without a pause, more than the embedded server can handle: an unanswered request is
repeated under its ID, and must then be answered.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from bench import baselines
from bench.edge import run_cloudlets
from bench.stack import BenchStack, mci, memory, print_comparison, print_table_head, rig, run, run_at_once
from client.actions import Ticket
from client.errors import Unanswered
from domain.errors import Refused
from domain.invariants import VerificationReport
from domain.model import ReadQuery, Request
from domain.wire import VERIFY_ACTIVITY

USERS, SECONDS, RUSH = 100, 60.0, 20.0
THINKING = 10.0  # mean pause of a user between requests, in seconds
BARE = 0.1  # share of requests that are bare workflows
PATIENCE = 180.0  # seconds until a request counts as unanswered, however often it was repeated
SPACE = "account:load:cloudspace:dev"

Ask = tuple[str, str, dict[str, Any] | None]
Pick = Callable[[random.Random], Ask]


@dataclass(frozen=True)
class LoadSize:
    """The number of objects of each family."""

    mcis: int = 60  # of ten VMs each
    machines: int = 100
    hosts: int = 60
    services: int = 80
    edge: bool = True


SHORT = LoadSize(mcis=4, machines=5, hosts=5, services=10, edge=False)


@dataclass
class LoadLog:
    """The users' answers and latencies."""

    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    asked: int = 0
    again: int = 0
    memory: list[float] = field(default_factory=list)


@asynccontextmanager
async def create_load_objects(site: BenchStack, size: LoadSize) -> AsyncIterator[list[Pick]]:
    """Creates objects of every family. Yields a random choice of requests for each family."""
    async with AsyncExitStack() as stack:
        picks = [await _create_mcis(site, size), await _create_machines(site, size), await _add_lease_hosts(site, size)]
        picks.append(await _create_systems(site, size))
        if size.edge:
            paths = await stack.enter_async_context(run_cloudlets(site))
            picks.append(_edge_request_picker(paths))
        yield picks


async def _create_mcis(site: BenchStack, size: LoadSize) -> Pick:
    names = [f"ns:load:mci:m{n}" for n in range(size.mcis)]
    await _carry_out([(name, "create", mci(2, 10)) for name in names], site)

    def pick(chance: random.Random) -> Ask:
        vm = f":vm:g{chance.randrange(2)}-{chance.randint(1, 5)}" if chance.random() < 0.8 else ""
        return f"{chance.choice(names)}{vm}", chance.choice(["suspend", "resume", "reboot"]), None

    return pick


async def _create_machines(site: BenchStack, size: LoadSize) -> Pick:
    await _carry_out([("account:load", "create", None), ("image:load", "create", None)], site)
    await site.do("node:load", "create", {"memory": 4_000})
    await site.do(SPACE, "create")
    names = [f"{SPACE}:machine:m{n}" for n in range(size.machines)]
    await _carry_out([(name, "create", {"image": "load", "node": "load"}) for name in names], site)
    return lambda chance: (chance.choice(names), chance.choice(["pause", "resume", "stop", "start", "reboot"]), None)


async def _add_lease_hosts(site: BenchStack, size: LoadSize) -> Pick:
    await _carry_out([(f"pool:load:host:h{n}", "add", {}) for n in range(size.hosts)], site)

    def pick(chance: random.Random) -> Ask:
        path = f"project:load:lease:l{chance.randrange(size.hosts)}"
        if chance.random() < 0.5:
            return path, "delete", None
        return path, "create", {"hosts": 1, "pool": "load", "start": "+1h", "end": f"+{chance.randint(2, 9)}h"}

    return pick


async def _create_systems(site: BenchStack, size: LoadSize) -> Pick:
    parts = [{"name": f"s{n}", "command": ["run"]} for n in range(10)]
    names = [f"system:load{n}" for n in range(size.services // 10)]
    await _carry_out([(name, "create", {"backend": "simulated"}) for name in names], site)
    await _carry_out([(name, "deploy", {"definition": {"parts": parts}}) for name in names], site)

    def pick(chance: random.Random) -> Ask:
        part = f"{chance.choice(names)}:s{chance.randrange(10)}"
        return part, "deploy", {"definition": {"command": ["run", str(chance.randrange(3))]}}

    return pick


def _edge_request_picker(paths: list[str]) -> Pick:
    def pick(chance: random.Random) -> Ask:
        cluster = f"{chance.choice(paths)}:cluster:k"
        if chance.random() < 0.3:
            return cluster, "update", {"nodes": chance.randint(1, 5)}
        return f"{cluster}:app:a{chance.randrange(5)}", chance.choice(["create", "update", "delete"]), None

    return pick


async def _carry_out(asks: list[Ask], site: BenchStack) -> None:
    await run_at_once(50, (site.do(*ask) for ask in asks))


@dataclass(frozen=True)
class UserBehavior:
    """The users' mean pause, and the share of bare workflows among their requests."""

    thinking: float = 0.0
    bare: float = BARE


async def run_users(
    site: BenchStack, picks: list[Pick], number: int, seconds: float, seed: int, habits: UserBehavior | None = None
) -> LoadLog:
    """Runs concurrent users, each with one request after the other, until the time is over."""
    log, until = LoadLog(), time.perf_counter() + seconds
    watching = asyncio.create_task(_record_memory(log))
    await asyncio.gather(
        *(
            _run_user(site, picks, log, until, random.Random(f"{seed}-{n}"), habits or UserBehavior())
            for n in range(number)
        )
    )
    watching.cancel()
    return log


async def _run_user(
    site: BenchStack, picks: list[Pick], log: LoadLog, until: float, chance: random.Random, habits: UserBehavior
) -> None:
    while True:
        if habits.thinking:
            await asyncio.sleep(chance.expovariate(1 / habits.thinking))
        if (began := time.perf_counter()) >= until:
            return
        log.asked += 1
        if chance.random() < habits.bare:
            name = f"bare-{chance.getrandbits(60):x}"
            await site.client.execute_workflow(baselines.OneActivity.run, 1, id=name, task_queue=baselines.QUEUE)
            log.theirs.append(time.perf_counter() - began)
            log.answers["bare"] += 1
            continue
        path, action, spec = chance.choice(picks)(chance)
        name = f"load-{chance.getrandbits(60):x}"
        request = Request(path=path, action=action, spec=spec, requested_by="load", request_id=name)
        answer = await _request_to_answer(site, request, log)
        log.answers[answer] += 1
        if not answer.startswith(("refused", "unanswered")):
            log.ours.append(time.perf_counter() - began)


async def _request_to_answer(site: BenchStack, request: Request, log: LoadLog) -> str:
    try:
        ticket = await _repeat_until_answered(site, request, log)
    except Unanswered:
        return "unanswered"
    if refusal := ticket.admission.refusal:
        return f"refused: {refusal.category}"
    try:
        outcome = ticket.admission.outcome or await site.asking.wait_for_outcome(ticket.path, ticket.run)
    except Refused as refused:  # it took over, and the object was gone
        return f"refused: {refused.category}"
    return outcome.result.value


async def _repeat_until_answered(site: BenchStack, request: Request, log: LoadLog) -> Ticket:
    """Repeats a request under one request ID until it is answered: it is carried out once."""
    until = time.perf_counter() + PATIENCE
    while True:
        try:
            return await site.asking.request_action(request)
        except Unanswered:
            if time.perf_counter() > until:
                raise
            log.again += 1


async def _record_memory(log: LoadLog) -> None:
    while True:
        log.memory.append(memory())
        await asyncio.sleep(0.5)


def percentile(times: list[float], part: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * part))]


def _print_answers(log: LoadLog, who: str) -> None:
    told = ", ".join(f"{answer} {count}" for answer, count in sorted(log.answers.items()))
    print(f"{who}:\n  {log.asked:,} requests, {log.asked - log.answers['unanswered']:,} answered,", end=" ")
    print(f"{log.again} times asked again: {told}")


async def main() -> None:
    seed = int(os.environ.get("RATCHET_CHAOS_SEED") or random.randrange(10**6))
    async with rig(simulated=True) as site, create_load_objects(site, LoadSize()) as picks:
        rush = await run_users(site, picks, USERS, RUSH, seed + 1)
        log = await run_users(site, picks, USERS, SECONDS, seed, UserBehavior(thinking=THINKING))
        report = await site.asking.run_query(VERIFY_ACTIVITY, ReadQuery(), VerificationReport, seconds=120)
    seen = ", ".join(f"{number:,} {what}" for what, number in report.looked_at.items())
    print(f"\nRATCHET_CHAOS_SEED={seed}: looked at {seen}; promises broken: {len(report.findings)}")
    _print_answers(rush, f"{USERS} users without a pause, for {RUSH:g} s")
    _print_answers(log, f"{USERS} users who think for {THINKING:g} s on average, for {SECONDS:g} s")
    print_table_head("From the request to its end", "ours", "bare")
    for name, part in (("median", 0.5), ("95 of 100", 0.95), ("99 of 100", 0.99)):
        ours, theirs = percentile(log.ours, part), percentile(log.theirs, part)
        print_comparison(name, ours * 1e3, theirs * 1e3, "{:.0f} ms", "-")
    quarter = max(1, len(log.memory) // 4)
    first, last = statistics.mean(log.memory[:quarter]), statistics.mean(log.memory[-quarter:])
    print_comparison("memory: last quarter (first quarter)", last, first, "{:.0f} MB", "flat")


if __name__ == "__main__":
    run(main())
