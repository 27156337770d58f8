"""How workflows call activities: on which queue, how patiently, and with what words in the Web UI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from activities.healing import Healing
    from activities.inventory import ActionWrites
    from domain import wire
    from domain.errors import brief
    from domain.model import Admission, Chunk, Claim, Ending, Grant, Holders, Outcome, Request, Result, Step, Tally

CloudActivity = Callable[[Any, Chunk], Awaitable[Tally]]

# The store may be away for a while: nothing fails because of that, and it is found again soon after it is back.
STORE_RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=100), backoff_coefficient=2, maximum_interval=timedelta(seconds=5)
)
STORE_ATTEMPT = timedelta(seconds=60)
CLOUD_RETRY = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=10))
CLOUD_HEARTBEAT = timedelta(seconds=5)  # how long a dead worker goes unnoticed


async def begin(request: Request) -> Admission:
    """Ask the inventory for admission."""
    claim = Claim(request=request, run=workflow.info().run_id, at=workflow.now())
    return await workflow.execute_local_activity_method(
        ActionWrites.begin, claim, start_to_close_timeout=STORE_ATTEMPT, retry_policy=STORE_RETRY
    )


async def advance(grant: Grant, to: str, actor: str, message: str = "") -> bool:
    """Move the object one step on within its action."""
    step = Step(path=grant.path, epoch=grant.epoch, to=to, actor=actor, at=workflow.now(), message=brief(message))
    return await workflow.execute_local_activity_method(
        ActionWrites.advance, step, start_to_close_timeout=STORE_ATTEMPT, retry_policy=STORE_RETRY
    )


async def finish(grant: Grant, result: Result, message: str) -> Outcome:
    """Write the end of the action and release its locks."""
    ending = Ending(epoch=grant.epoch, path=grant.path, result=result, message=brief(message), at=workflow.now())
    return await workflow.execute_local_activity_method(
        ActionWrites.finish, ending, start_to_close_timeout=STORE_ATTEMPT, retry_policy=STORE_RETRY
    )


async def heal(holders: Holders) -> int:
    """Bury those of the holders that are dead."""
    return await workflow.execute_activity_method(
        Healing.heal_holders,
        holders,
        start_to_close_timeout=timedelta(seconds=10),
        schedule_to_close_timeout=timedelta(minutes=1),
        retry_policy=STORE_RETRY,
        summary="are the holders of the locks alive?",
    )


async def on_cloud(activity: CloudActivity, chunk: Chunk, patience: timedelta) -> Tally:
    """Run an activity for a chunk on its cloud's queue. A cancel waits until nothing of it is in flight."""
    csp, region = wire.split_placement(chunk.placement)
    return await workflow.execute_activity_method(
        activity,
        chunk,
        task_queue=wire.cloud_queue(csp),
        schedule_to_close_timeout=patience,
        heartbeat_timeout=CLOUD_HEARTBEAT,
        retry_policy=CLOUD_RETRY,
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        summary=f"{chunk.action} {chunk.count} in {csp} {region}",
    )
