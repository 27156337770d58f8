"""Actions through the wait queue, against the same actions one after the other. Run: python3 run.py bench machines

Direct: each machine is migrated, and the user's action is requested afterwards. Through the queue: the user's action is
requested at once, and waits for the hidden migration.
"""

from __future__ import annotations

import asyncio
import statistics
from datetime import UTC, datetime

from temporalio.api.enums.v1 import EventType

from bench.rig import Rig, head, in_turns, rig, row, run
from client.actions import Ticket
from domain.model import Request

AT_ONCE = 20
TURNS = 5
SPACE = "account:bench:cloudspace:dev"
USERS = ("pause", "resume")
STARTED = (EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,)
COMPLETED = (EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED,)
SCHEDULED = (EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,)


async def estate(rig: Rig) -> list[str]:
    """Creates two nodes with enough memory, and machines. Returns the machines' paths."""
    await rig.do("account:bench", "create")
    await rig.do("image:bench", "create")
    await asyncio.gather(*(rig.do(f"node:bench-{n}", "create", {"memory": 1000}) for n in (1, 2)))
    await rig.do(SPACE, "create")
    machines = [f"{SPACE}:machine:m{n}" for n in range(AT_ONCE)]
    await asyncio.gather(*(rig.do(machine, "create", {"image": "bench", "node": "bench-1"}) for machine in machines))
    return machines


async def ask(rig: Rig, path: str, action: str, spec: dict[str, object] | None = None) -> Ticket:
    ticket = await rig.asking.request_action(Request(path=path, action=action, spec=spec))
    if ticket.admission.refusal:
        raise ticket.admission.refusal.to_error()
    return ticket


async def one_by_one(rig: Rig, path: str, n: int, user: str) -> None:
    """Migrates the machine, and then carries out the user's action."""
    for action, spec in (("migrate", _there(n)), (user, None)):
        ticket = await ask(rig, path, action, spec)
        await rig.asking.wait_for_outcome(ticket.path, ticket.run)


async def in_line(rig: Rig, path: str, n: int, user: str) -> None:
    """Requests migration and user's action at once: the latter waits for the former."""
    first = await ask(rig, path, "migrate", _there(n))
    second = await ask(rig, path, user)
    await asyncio.gather(*(rig.asking.wait_for_outcome(ticket.path, ticket.run) for ticket in (first, second)))


def _there(n: int) -> dict[str, object]:
    return {"node": f"bench-{2 - n % 2}"}


async def throughput(rig: Rig, machines: list[str]) -> None:
    turn = iter(range(1000))  # each turn moves all machines to the other node, and pauses or resumes them

    async def everybody(way: object) -> None:
        n = next(turn)
        await asyncio.gather(*(way(rig, path, n, USERS[n % 2]) for path in machines))  # type: ignore[operator]

    queue, direct = await in_turns(TURNS, lambda _: everybody(in_line), lambda _: everybody(one_by_one))
    ours, theirs = 2 * AT_ONCE / queue, 2 * AT_ONCE / direct
    head(f"Actions per second, {AT_ONCE} machines at once, a migration and a user's action on each", "queue", "direct")
    row("through the queue (direct: one after the other)", f"{ours:.0f}/s", f"{theirs:.0f}/s", ours / theirs, ">= 0.6")


async def latency(rig: Rig, path: str) -> None:
    """Measures the time from a request to its first order, and from the end of the action ahead in the queue."""
    alone, behind = [], []
    if (await rig.service.inventory.read_object(path)).status == "PAUSED":
        await rig.do(path, "resume")
    for _ in range(12):
        ticket = await ask(rig, path, "pause")
        await rig.asking.wait_for_outcome(ticket.path, ticket.run)
        alone.append(await _between(rig, ticket, await _at(rig, ticket, STARTED)))
        here = (await rig.service.inventory.read_object(path)).info["node"]
        first = await ask(rig, path, "migrate", {"node": {"bench-1": "bench-2", "bench-2": "bench-1"}[here]})
        second = await ask(rig, path, "resume")
        await asyncio.gather(*(rig.asking.wait_for_outcome(ticket.path, ticket.run) for ticket in (first, second)))
        over, asked = await _at(rig, first, COMPLETED), await _at(rig, second, STARTED)
        behind.append(await _between(rig, second, max(asked, over)))
    ours, theirs = statistics.median(behind), statistics.median(alone)
    head("From enqueued to the first order, one machine", "queue", "direct")
    label = "from the end of what is ahead (direct: from the request)"
    row(label, f"{ours * 1e3:.1f} ms", f"{theirs * 1e3:.1f} ms", ours / theirs, "told")


async def _between(rig: Rig, ticket: Ticket, since: datetime) -> float:
    return (await _at(rig, ticket, SCHEDULED) - since).total_seconds()


async def _at(rig: Rig, ticket: Ticket, kinds: tuple[EventType.ValueType, ...]) -> datetime:
    """Returns the time of the first event of these kinds."""
    history = await rig.client.get_workflow_handle(ticket.path, run_id=ticket.run).fetch_history()
    found = next(event for event in history.events if event.event_type in kinds)
    return found.event_time.ToDatetime(tzinfo=UTC)


async def main() -> None:
    async with rig() as fast:
        machines = await estate(fast)
        await throughput(fast, machines)
        await latency(fast, machines[0])


if __name__ == "__main__":
    run(main())
