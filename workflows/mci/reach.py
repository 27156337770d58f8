"""How these workflows reach the inventory and the places where VMs are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.mci.places import PlaceActivities
    from domain import wire
    from domain.errors import brief
    from domain.mci.messages import Findings, Visit, Wants
    from domain.model import Grant
    from workflows import calls

PREPARE_PATIENCE = timedelta(hours=1)
VALIDATE_PATIENCE = timedelta(seconds=8)  # somebody waits for the answer to a request
PROBLEMS_SHOWN = 5


async def record(activity: Callable[[Any, Any], Awaitable[Any]], order: Any) -> Any:
    """Run an activity that asks no cloud: a local one, as quick as the store."""
    return await workflow.execute_local_activity_method(
        activity, order, start_to_close_timeout=calls.STORE_ATTEMPT, retry_policy=calls.STORE_RETRY
    )


async def on_cloud(
    activity: Callable[[Any, Any], Awaitable[Any]],
    order: Any,
    place: str,
    what: str,
    patience: timedelta = PREPARE_PATIENCE,
) -> Any:
    """Run an activity on the queue of a place's cloud. A cancel waits until nothing of it is in flight."""
    return await workflow.execute_activity_method(
        activity,
        order,
        task_queue=wire.cloud_queue(wire.split_placement(place)[0]),
        schedule_to_close_timeout=patience,
        heartbeat_timeout=calls.CLOUD_HEARTBEAT,
        retry_policy=calls.CLOUD_RETRY,
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        summary=f"{what} {place}",
    )


async def everywhere(
    activity: Callable[[Any, Visit], Awaitable[Findings]], grant: Grant, wanted: Sequence[Wants], what: str
) -> list[Findings]:
    """All places side by side. One that fails does not hold the others, and nothing is in flight afterwards."""
    visits = [Visit(path=grant.path, epoch=grant.epoch, wants=each) for each in wanted]
    ends = await asyncio.gather(
        *(on_cloud(activity, visit, visit.wants.place, what) for visit in visits), return_exceptions=True
    )
    for end in ends:
        if isinstance(end, BaseException) and is_cancelled_exception(end):
            raise end
    return [
        end if isinstance(end, Findings) else Findings(problems=[f"{visit.wants.place}: {brief(str(end))}"])
        for visit, end in zip(visits, ends, strict=True)
    ]


async def validated(each: Wants) -> Findings:
    """Does the cloud of a place offer what is wanted there? If it does not answer in time, that is not clear."""
    try:
        found: Findings = await on_cloud(
            PlaceActivities.validate_place, each, each.place, "validate", VALIDATE_PATIENCE
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        return Findings(problems=[str(error)], clear=False)
    return found


def told(problems: Sequence[str]) -> str:
    """The first problems as one text, and how many more there are."""
    more = f"; and {len(problems) - PROBLEMS_SHOWN} more" if len(problems) > PROBLEMS_SHOWN else ""
    return "; ".join(problems[:PROBLEMS_SHOWN]) + more
