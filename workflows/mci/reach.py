"""How these workflows reach the places where VMs are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.mci.places import PlaceActivities
    from domain import wire
    from domain.errors import brief, several
    from domain.mci.messages import PROBLEMS_SHOWN, Findings, Visit, Wants
    from domain.model import Grant
    from workflows.calls import patiently

T = TypeVar("T")
Order = TypeVar("Order")

PREPARE_PATIENCE = timedelta(hours=1)
VALIDATE_PATIENCE = timedelta(seconds=8)  # somebody waits for the answer to a request


async def on_cloud(
    activity: Callable[[Any, Order], Awaitable[T]],
    order: Order,
    place: str,
    what: str,
    patience: timedelta = PREPARE_PATIENCE,
) -> T:
    """Run an activity on the queue of a place's cloud."""
    queue = wire.cloud_queue(wire.split_placement(place)[0])
    return await patiently(activity, order, patience, f"{what} {place}", queue)


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
        return await on_cloud(PlaceActivities.validate_place, each, each.place, "validate", VALIDATE_PATIENCE)
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        return Findings(problems=[str(error)], clear=False)


def told(problems: Sequence[str]) -> str:
    """The first problems as one text, and how many more there are."""
    return several(problems, PROBLEMS_SHOWN)
