"""Actions through the wait queue, against the same actions one after the other. Run: python3 run.py bench machines

Direct: each machine is migrated, and the user's action is requested afterwards. Through the queue: the user's action is
requested at once, and waits for the hidden migration.
"""

from __future__ import annotations

import asyncio
import statistics
from datetime import UTC, datetime

from temporalio.api.enums.v1 import EventType

from bench.stack import BenchStack, measure_in_turns, print_comparison, print_table_head, rig, run
from client.actions import Ticket

AT_ONCE = 20
TURNS = 5
SPACE = "account:bench:cloudspace:dev"
USERS = ("pause", "resume")
STARTED = (EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,)
COMPLETED = (EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED,)
SCHEDULED = (EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,)


async def create_machines(rig: BenchStack) -> list[str]:
    """Creates two nodes with enough memory, and machines. Returns the machines' paths."""
    await rig.do("account:bench", "create")
    await rig.do("image:bench", "create")
    await asyncio.gather(*(rig.do(f"node:bench-{n}", "create", {"memory": 1000}) for n in (1, 2)))
    await rig.do(SPACE, "create")
    machines = [f"{SPACE}:machine:m{n}" for n in range(AT_ONCE)]
    await asyncio.gather(*(rig.do(machine, "create", {"image": "bench", "node": "bench-1"}) for machine in machines))
    return machines


async def run_one_by_one(rig: BenchStack, path: str, n: int, user: str) -> None:
    """Migrates the machine, and then carries out the user's action."""
    for action, spec in (("migrate", _other_node_spec(n)), (user, None)):
        await rig.do(path, action, spec)


async def run_through_queue(rig: BenchStack, path: str, n: int, user: str) -> None:
    """Requests migration and user's action at once: the latter waits for the former."""
    first = await rig.request(path, "migrate", _other_node_spec(n))
    second = await rig.request(path, user)
    await asyncio.gather(*(rig.asking.wait_for_outcome(ticket.path, ticket.run) for ticket in (first, second)))


def _other_node_spec(n: int) -> dict[str, object]:
    return {"node": f"bench-{2 - n % 2}"}


async def measure_throughput(rig: BenchStack, machines: list[str]) -> None:
    turn = iter(range(1000))  # each turn moves all machines to the other node, and pauses or resumes them

    async def run_on_all_machines(way: object) -> None:
        n = next(turn)
        await asyncio.gather(*(way(rig, path, n, USERS[n % 2]) for path in machines))  # type: ignore[operator]

    queue, direct = await measure_in_turns(
        TURNS, lambda _: run_on_all_machines(run_through_queue), lambda _: run_on_all_machines(run_one_by_one)
    )
    ours, theirs = 2 * AT_ONCE / queue, 2 * AT_ONCE / direct
    print_table_head(
        f"Actions per second, {AT_ONCE} machines at once, a migration and a user's action on each", "queue", "direct"
    )
    print_comparison("through the queue (direct: one after the other)", ours, theirs, "{:.0f}/s", ">= 0.6")


async def measure_latency(rig: BenchStack, path: str) -> None:
    """Measures the time from a request to its first order, and from the end of the action ahead in the queue."""
    alone, behind = [], []
    if (await rig.service.inventory.read_object(path)).status == "PAUSED":
        await rig.do(path, "resume")
    for _ in range(12):
        ticket = await rig.request(path, "pause")
        await rig.asking.wait_for_outcome(ticket.path, ticket.run)
        alone.append(await _seconds_to_first_order(rig, ticket, await _time_of_event(rig, ticket, STARTED)))
        here = (await rig.service.inventory.read_object(path)).info["node"]
        first = await rig.request(path, "migrate", {"node": {"bench-1": "bench-2", "bench-2": "bench-1"}[here]})
        second = await rig.request(path, "resume")
        await asyncio.gather(*(rig.asking.wait_for_outcome(ticket.path, ticket.run) for ticket in (first, second)))
        over, asked = await _time_of_event(rig, first, COMPLETED), await _time_of_event(rig, second, STARTED)
        behind.append(await _seconds_to_first_order(rig, second, max(asked, over)))
    ours, theirs = statistics.median(behind), statistics.median(alone)
    print_table_head("From enqueued to the first order, one machine", "queue", "direct")
    label = "from the end of what is ahead (direct: from the request)"
    print_comparison(label, ours * 1e3, theirs * 1e3, "{:.1f} ms", "told")


async def _seconds_to_first_order(rig: BenchStack, ticket: Ticket, since: datetime) -> float:
    return (await _time_of_event(rig, ticket, SCHEDULED) - since).total_seconds()


async def _time_of_event(rig: BenchStack, ticket: Ticket, kinds: tuple[EventType.ValueType, ...]) -> datetime:
    """Returns the time of the first event of these kinds."""
    history = await rig.client.get_workflow_handle(ticket.path, run_id=ticket.run).fetch_history()
    found = next(event for event in history.events if event.event_type in kinds)
    return found.event_time.ToDatetime(tzinfo=UTC)


async def main() -> None:
    async with rig() as fast:
        machines = await create_machines(fast)
        await measure_throughput(fast, machines)
        await measure_latency(fast, machines[0])


if __name__ == "__main__":
    run(main())
