"""The Temporal schedule of self-healing, created by the first worker and kept as the settings say."""

from __future__ import annotations

from datetime import timedelta

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleUpdate,
    ScheduleUpdateInput,
)
from temporalio.service import RPCError, RPCStatusCode

from activities.companions import ExpectedSchedule
from domain import wire
from domain.healing import SweepOptions
from domain.limits import TASK_TIMEOUT


def expected_schedules(client: Client, seconds: float) -> list[ExpectedSchedule]:
    """Returns the schedules that must exist."""
    row = ExpectedSchedule(
        wire.HEAL_SCHEDULE, "schedule of self-healing", lambda: ensure_heal_schedule(client, seconds)
    )
    return [row] if seconds else []


async def ensure_heal_schedule(client: Client, seconds: float) -> None:
    """Creates the schedule or changes its interval; 0 deletes it."""
    handle = client.get_schedule_handle(wire.HEAL_SCHEDULE)
    if not seconds:
        try:
            await handle.delete()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        return
    wanted = _heal_schedule(seconds)
    try:
        await client.create_schedule(wire.HEAL_SCHEDULE, wanted)
    except ScheduleAlreadyRunningError:
        encrypts = client.data_converter.payload_codec is not None
        await handle.update(lambda found: _schedule_update(found, wanted, encrypts))


def _schedule_update(found: ScheduleUpdateInput, wanted: Schedule, encrypts: bool) -> ScheduleUpdate | None:
    """Returns the change of the schedule, if it needs one. With keys it is written anew: it may be older than they."""
    known = [interval.every for interval in found.description.schedule.spec.intervals]
    if not encrypts and known == [interval.every for interval in wanted.spec.intervals]:
        return None
    wanted.state = found.description.schedule.state  # stays paused if it is
    return ScheduleUpdate(schedule=wanted)


def _heal_schedule(seconds: float) -> Schedule:
    return Schedule(
        action=ScheduleActionStartWorkflow(
            wire.HEAL_WORKFLOW,
            SweepOptions(),
            id=wire.HEAL_SCHEDULE,
            task_queue=wire.ACTIONS_QUEUE,
            task_timeout=TASK_TIMEOUT,
        ),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(seconds=seconds))]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=timedelta(minutes=1)),
    )
