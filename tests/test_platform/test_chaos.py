"""Three worker processes on PostgreSQL, killed and started at random under 200 mixed actions: all promises kept."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from dataclasses import dataclass, field

from temporalio.worker import Replayer

from client.actions import ActionClient
from domain import wire
from domain.invariants import VerificationReport
from domain.model import ActionResult, Outcome, ReadQuery, Request
from tests.patience import PATIENCE, answered, ended
from tests.test_platform.site import Site, Worker
from tests.user import spec
from workers.families import WORKFLOWS
from workers.plugin import temporal_plugin

MCIS, USERS, REQUESTS = 10, 2, 10  # 200 requests
WORKERS = 3
KILLS = 6
PLANTED = "planted-9f1c"  # a secret that must not be told


@dataclass
class Client:
    """Somebody who keeps asking for this and that on one MCI, and writes down what became of it."""

    site: Site
    chance: random.Random
    mci: str
    log: list[tuple[str, Outcome | str]] = field(default_factory=list)
    last: tuple[str, str, str] = ("", "", "")

    async def keep_asking(self) -> None:
        for number in range(REQUESTS):
            path = self.chance.choice([self.mci, f"{self.mci}:vm:aws0-1", f"{self.mci}:vm:gcp0-1"])
            verb = self.chance.choice(["suspend", "resume", "reboot"])
            self.last = (path, verb, f"{id(self)}-{number}")
            self.log.append((path, await self.ask(*self.last)))

    async def ask(self, path: str, verb: str, request_id: str) -> Outcome | str:
        """The outcome, or the category of the refusal."""
        request = Request(path=path, action=verb, request_id=request_id, requested_by="chaos")
        ticket = await answered(ActionClient(self.site.client), request)
        if ticket.admission.refusal:
            return ticket.admission.refusal.category
        return await ended(self.site.asking, ticket)


class Reaper:
    """Keeps three workers, of which one after the other is killed, or told to stop, and replaced."""

    def __init__(self, site: Site, chance: random.Random) -> None:
        self._site = site
        self._chance = chance
        self._workers: list[Worker] = []
        self.ended = 0

    async def begin(self) -> None:
        """All at once, on an empty database: one migrates, the others wait for it."""
        for _ in range(WORKERS):
            self._workers.append(await self._site.start())
        for worker in self._workers:
            await worker.until_said('"serving"')

    async def reap(self) -> None:
        for _ in range(KILLS):
            await asyncio.sleep(self._chance.uniform(0.3, 1.2))
            part = self._chance.randrange(WORKERS)
            self._workers[part].process.send_signal(
                self._chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
            )
            await self._workers[part].process.wait()
            self.ended += 1
            self._workers[part] = await self._site.start()


async def test_two_hundred_actions_survive_workers_that_come_and_go(site: Site) -> None:
    seed = int(os.environ.get("RATCHET_CHAOS_SEED") or random.randrange(10**6))
    print(f"RATCHET_CHAOS_SEED={seed}")  # noqa: T201  shown when it fails
    chance = random.Random(seed)
    site.environment |= {"RATCHET_SIMULATED_LATENCY": "0.05", "RATCHET_LOG_LEVEL": "info"}
    site.environment |= {"AWS_SECRET_ACCESS_KEY": PLANTED}
    reaper = Reaper(site, chance)
    await reaper.begin()
    mcis = [f"ns:default:mci:m{number}" for number in range(MCIS)]
    made = await asyncio.gather(*(create(site, mci) for mci in mcis))
    clients = [Client(site, random.Random(chance.random()), mci) for mci in mcis for _ in range(USERS)]
    reaping = asyncio.create_task(reaper.reap())
    async with asyncio.timeout(2 * PATIENCE):  # some twenty seconds on an idle machine
        await asyncio.gather(*(client.keep_asking() for client in clients))
    reaping.cancel()
    assert reaper.ended >= KILLS // 2, "there was somebody to survive"
    assert {outcome.result for outcome in made} == {ActionResult.SUCCEEDED}
    results = Counter(
        each.result if isinstance(each, Outcome) else f"refused: {each}" for client in clients for _, each in client.log
    )
    assert results.total() == MCIS * USERS * REQUESTS
    assert results.keys() <= {ActionResult.SUCCEEDED, "refused: conflict", "refused: not_allowed"}, results
    assert results[ActionResult.SUCCEEDED] > 20, results
    await asked_once_more_nothing_is_done_twice(clients)
    await every_promise_is_kept(site, admitted=results[ActionResult.SUCCEEDED] + MCIS)
    await one_effect_for_each_action(site, clients)
    assert [worker.log for worker in site.workers if PLANTED in worker.said()] == [], "I10"


async def asked_once_more_nothing_is_done_twice(clients: list[Client]) -> None:
    """I1: the same request under the same ID is the same action, with the same outcome."""
    for client in clients:
        if isinstance(before := client.log[-1][1], Outcome):
            again = await client.ask(*client.last)
            assert isinstance(again, Outcome), again
            assert (again.result, again.done) == (before.result, before.done)


async def one_effect_for_each_action(site: Site, clients: list[Client]) -> None:
    """I8: whatever was called twice because a worker died, no VM was acted on more often than was asked for."""
    for vm in await site.books():
        asked = [path for client in clients for path, each in client.log if isinstance(each, Outcome)]
        mine = [path for path in asked if f"{vm.path}:".startswith(f"{path}:")]
        assert 1 <= vm.effects <= 1 + len(mine), (vm, mine)


async def create(site: Site, mci: str) -> Outcome:
    request = Request(path=mci, action="create", spec=spec(1), request_id=f"create-{mci}", requested_by="chaos")
    return await ended(site.asking, await answered(site.asking, request))


async def every_promise_is_kept(site: Site, admitted: int) -> None:
    async with asyncio.timeout(PATIENCE):
        found = await site.asking.run_query(wire.VERIFY_ACTIVITY, ReadQuery(), VerificationReport, seconds=PATIENCE)
    assert found.findings == []
    assert found.looked_at["actions"] == admitted, "an action for each that was admitted, and no other"
    assert await site.inventory.list_locks() == []
    vms = await site.books()
    assert len(vms) == len({vm.path for vm in vms}) == MCIS, "one VM in the cloud for each record"
    replayer = Replayer(workflows=WORKFLOWS, plugins=[temporal_plugin()])
    histories = site.client.list_workflows("TaskQueue = 'actions'").map_histories()
    async with replayer.workflow_replay_iterator(histories) as results:
        assert [result.replay_failure async for result in results if result.replay_failure] == []
    async for workflow in site.client.list_workflows("TaskQueue = 'actions'", limit=50):
        assert PLANTED not in (await site.client.get_workflow_handle(workflow.id).fetch_history()).to_json(), "I10"
