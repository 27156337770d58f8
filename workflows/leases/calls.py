"""How the lease family's workflows call its activities."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.leases import HostHandover, LeaseEventActivities
    from activities.retry import ONCE, STORE_RETRY
    from domain.errors import format_count
    from domain.leases.messages import (
        DueEvents,
        EventFiringResult,
        HandOverOrder,
        HandOverResult,
        HoldingsToReach,
        WakePoolClock,
    )
    from domain.model import Grant
    from workflows.calls import HEARTBEAT, run_provider_activity, run_short_activity

QUICK_TIMEOUT = timedelta(seconds=3)
HAND_OVER_TIMEOUT = timedelta(hours=1)  # the activity has its own deadline; this bounds retries after dead workers


async def hand_over(
    grant: Grant, reservations: list[str], want: HoldingsToReach = HoldingsToReach.ALL, tried: bool = False
) -> HandOverResult:
    """Brings reservations to what they should hold: by a quick local try first, then with retries."""
    order = HandOverOrder(path=grant.path, epoch=grant.epoch, reservations=reservations, want=want)
    first = HandOverResult(again=reservations) if tried else await _try_hand_over(order)
    if not first.again:
        return first
    summary = f"{want} of {format_count(len(first.again), 'reservation')}"
    rest = order.model_copy(update={"reservations": first.again})
    handed = await run_provider_activity(HostHandover.hand_over, rest, HAND_OVER_TIMEOUT, summary)
    return HandOverResult(errors=first.errors | handed.errors)


async def _try_hand_over(order: HandOverOrder) -> HandOverResult:
    try:
        return await workflow.execute_local_activity_method(
            HostHandover.try_hand_over, order, start_to_close_timeout=QUICK_TIMEOUT, retry_policy=ONCE
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        return HandOverResult(again=order.reservations)


async def wake_pool_clock(pool: str) -> None:
    """Makes the clock of the pool read the due events again."""
    await run_short_activity(
        LeaseEventActivities.wake_clock, WakePoolClock(pool=pool), timedelta(seconds=10), f"wake the clock of {pool}"
    )


async def fire_events(events: DueEvents) -> EventFiringResult:
    """Starts the actions of these events and waits briefly for them. Returns the leases that are still busy."""
    return await workflow.execute_activity_method(
        LeaseEventActivities.fire_events,
        events,
        start_to_close_timeout=timedelta(minutes=1),
        heartbeat_timeout=HEARTBEAT,
        retry_policy=STORE_RETRY,
        summary=f"fire {format_count(len(events.due), 'event')}",
    )
