"""How the MCI workflows call activities at the places where VMs are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.mci.places import PlaceActivities
    from domain import limits
    from domain.errors import format_one_line, join_first_texts
    from domain.mci.messages import PROBLEMS_SHOWN, MciAtPlace, PlaceRequirements, PlaceResult
    from domain.model import Grant
    from workflows.calls import run_on_cloud_queue

PREPARE_TIMEOUT = timedelta(hours=1)


async def run_in_all_places(
    activity: Callable[[Any, MciAtPlace], Awaitable[PlaceResult]],
    grant: Grant,
    wanted: Sequence[PlaceRequirements],
    what: str,
) -> list[PlaceResult]:
    """Runs an activity for all places in parallel, and waits for all of them even if one fails."""
    visits = [MciAtPlace(path=grant.path, epoch=grant.epoch, wants=needs) for needs in wanted]
    ends = await asyncio.gather(
        *(run_on_cloud_queue(activity, visit, visit.wants.place, PREPARE_TIMEOUT, what) for visit in visits),
        return_exceptions=True,
    )
    for end in ends:
        if isinstance(end, BaseException) and is_cancelled_exception(end):
            raise end
    return [
        end
        if isinstance(end, PlaceResult)
        else PlaceResult(problems=[f"{visit.wants.place}: {format_one_line(str(end))}"])
        for visit, end in zip(visits, ends, strict=True)
    ]


async def validate_place_needs(needs: PlaceRequirements) -> PlaceResult:
    """Asks a place's cloud whether it offers the specs and images; without an answer in time, not `clear`."""
    try:
        return await run_on_cloud_queue(
            PlaceActivities.validate_place, needs, needs.place, limits.VALIDATE_TIMEOUT, "validate"
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        return PlaceResult(problems=[str(error)], clear=False)


def join_problems(problems: Sequence[str]) -> str:
    """Joins the first problems, and says how many more there are."""
    return join_first_texts(problems, PROBLEMS_SHOWN)
