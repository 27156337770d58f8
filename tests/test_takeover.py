"""Force on a busy object in any state, and requests that are repeated, also many at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Self

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from activities import eviction
from activities.access import Authorizer
from activities.dryrun import DryRunChecker
from activities.eviction import EvictionActivities
from activities.refusals import refusal_of_error
from client import actions, takeover
from domain import wire
from domain.access import AccessPolicy
from domain.errors import Refused
from domain.mci.messages import HoldDecision
from domain.model import Request
from domain.requests import EvictRun
from starter.mci.requests import send_decision
from tests.environment import activity_environment
from tests.patience import PATIENCE
from tests.user import User, spec

# As the server says it when a run has answered 2,000 different updates.
LIMIT = (
    "The limit on the total number of distinct updates in this workflow has been reached (2000). Make sure any "
    "duplicate updates share an Update ID so the server can deduplicate them"
)


async def stuck(user: User, path: str = "") -> WorkflowHandle[Any, Any]:
    """A run on the MCI, or another object, whose task fails each time: no worker knows its type."""
    path = path or user.mci()
    handle: WorkflowHandle[Any, Any] = await user.asking.client.start_workflow(
        "NobodyKnowsIt", id=path, task_queue=wire.ACTIONS_QUEUE
    )
    failed = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
    async with asyncio.timeout(PATIENCE):
        while failed not in [event.event_type for event in (await handle.fetch_history()).events]:
            await asyncio.sleep(0.05)
    return user.asking.client.get_workflow_handle(path, run_id=handle.first_execution_run_id)


async def status(handle: WorkflowHandle[Any, Any]) -> WorkflowExecutionStatus | None:
    return (await handle.describe()).status


def used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run takes an update any more. It still says how far it is, however busy the machine."""
    monkeypatch.setattr(actions, "PROGRESS_SECONDS", PATIENCE)

    async def limit(*_args: Any, **_more: Any) -> Any:
        raise RPCError(LIMIT, RPCStatusCode.FAILED_PRECONDITION, b"")

    monkeypatch.setattr(WorkflowHandle, "execute_update", limit)


async def test_a_run_whose_task_fails_is_ended_after_its_time_and_ours_goes_on(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "PREEMPT_SECONDS", 2.0)
    monkeypatch.setattr(eviction, "GRACE_SECONDS", 2.0)
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    run = await stuck(user)
    assert (await user.do(user.mci(), "delete", force=True)).result == "succeeded"
    assert await status(run) is WorkflowExecutionStatus.TERMINATED


@pytest.mark.parametrize("force", [False, True])
async def test_a_lease_is_deleted_although_the_task_of_what_runs_on_it_fails(
    user: User, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    """Its delete takes over from whatever runs, also without force."""
    monkeypatch.setattr(takeover, "PREEMPT_SECONDS", 2.0)
    monkeypatch.setattr(eviction, "GRACE_SECONDS", 2.0)
    lease, pool = f"project:{user.ns}:lease:l1", user.ns
    await user.do(f"pool:{pool}:host:h1", "add", spec={})
    await user.do(lease, "create", spec={"hosts": 1, "pool": pool, "start": "+1h", "end": "+2h"})
    run = await stuck(user, lease)
    assert (await user.do(lease, "delete", force=force)).result == "succeeded"
    assert await status(run) is WorkflowExecutionStatus.TERMINATED


async def test_force_on_a_run_that_takes_no_updates_cancels_it_and_goes_on(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await user.admitted(user.mci(), "create", spec=user.groups(option="hold"))
    await user.until_status(user.mci(), "Prepared")
    used_up(monkeypatch)
    assert (await user.do(user.mci(), "delete", force=True)).result == "succeeded"
    ended = user.asking.client.get_workflow_handle(first.path, run_id=first.run)
    assert await status(ended) is WorkflowExecutionStatus.CANCELED  # it could clean up


@pytest.mark.parametrize(("word", "then"), [("continue", "Running:2 (R:2/2)"), ("withdraw", "None")])
async def test_an_mci_that_holds_and_takes_no_updates_hears_a_signal(
    user: User, monkeypatch: pytest.MonkeyPatch, word: str, then: str
) -> None:
    ticket = await user.admitted(user.mci(), "create", spec=user.groups(option="hold"))
    await user.until_status(user.mci(), "Prepared")
    used_up(monkeypatch)
    assert await send_decision(user.asking, user.mci(), word, HoldDecision(requested_by="tester")) == ticket.run
    assert (await user.asking.wait_for_outcome(ticket.path, ticket.run)).status == then


async def test_a_signal_is_no_way_around_the_question_whether_it_holds(
    user: User, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    await user.fault("hang", seconds=600, verb="suspend")
    await user.admitted(user.mci(), "suspend")
    used_up(monkeypatch)
    with pytest.raises(Refused, match="it is not holding"):
        await send_decision(user.asking, user.mci(), "continue", HoldDecision())
    await user.asking.cancel_action(user.mci())


def evicting(user: User, client: Client, authorizer: Authorizer | None = None) -> EvictionActivities:
    return EvictionActivities(client, DryRunChecker(user.service.inventory, authorizer or Authorizer()))


def order(user: User, run: WorkflowHandle[Any, Any], force: bool = True, action: str = "terminate") -> EvictRun:
    return EvictRun(request=Request(path=user.mci(), action=action, force=force), run=run.run_id or "")


async def test_who_may_not_do_it_cannot_have_a_run_ended(user: User, client: Client) -> None:
    run = await stuck(user)

    nobody = Authorizer(lambda: AccessPolicy(roles={}))
    with pytest.raises(ApplicationError, match="may not terminate"):
        await evicting(user, client, nobody).make_way(order(user, run))
    with pytest.raises(ApplicationError) as refused:
        await evicting(user, client).make_way(order(user, run, force=False))
    assert refusal_of_error(refused.value)
    assert await status(run) is WorkflowExecutionStatus.RUNNING
    await run.terminate(reason="the test is over")


async def test_only_the_run_that_was_looked_at_is_ended(
    user: User, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eviction, "GRACE_SECONDS", 0.1)
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    first = await stuck(user)
    await first.terminate(reason="an operator")
    second = await stuck(user)
    await evicting(user, client).make_way(order(user, first))
    assert await status(second) is WorkflowExecutionStatus.RUNNING
    await evicting(user, client).make_way(order(user, second))
    assert await status(second) is WorkflowExecutionStatus.TERMINATED


async def test_whoever_asks_at_once_does_not_shorten_the_minute_of_a_run_that_works(user: User, client: Client) -> None:
    """The client's own minute was all that stood between a forced request and the end of a run without clean-up."""
    first = await user.admitted(user.mci(), "create", spec=user.groups(option="hold"))
    await user.until_status(user.mci(), "Prepared")
    run: WorkflowHandle[Any, Any] = client.get_workflow_handle(first.path, run_id=first.run)
    await evicting(user, client).make_way(order(user, run, action="delete"))
    assert await status(run) is WorkflowExecutionStatus.CANCELED  # it was asked to end, and could clean up
    assert (await user.asking.wait_for_outcome(first.path, first.run)).result == "cancelled"


async def test_a_run_that_cannot_make_way_is_left_until_its_minute_is_over_by_the_worker_s_clock(
    user: User, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    run = await stuck(user)
    early = asyncio.create_task(evicting(user, client).make_way(order(user, run)))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(early, timeout=3)
    assert await status(run) is WorkflowExecutionStatus.RUNNING
    monkeypatch.setattr(eviction, "GRACE_SECONDS", 1.0)  # which it has had by now: its task has failed for longer
    await asyncio.wait_for(evicting(user, client).make_way(order(user, run)), PATIENCE)
    assert await status(run) is WorkflowExecutionStatus.TERMINATED


async def test_a_worker_whose_clock_is_ahead_does_not_shorten_the_minute(
    user: User, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    class HourAhead(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return super().now(tz) + timedelta(hours=1)

    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    run = await stuck(user)
    environment = activity_environment()
    environment.info = replace(environment.info, started_time=datetime.now(UTC))
    monkeypatch.setattr(eviction, "datetime", HourAhead)
    early = asyncio.create_task(environment.run(evicting(user, client).make_way, order(user, run)))
    assert not (await asyncio.wait({early}, timeout=3))[0], "it waits for the rest of the minute"
    assert await status(run) is WorkflowExecutionStatus.RUNNING
    early.cancel()
    await run.terminate(reason="the test is over")


async def test_one_request_id_asked_many_times_uses_up_two_updates(user: User) -> None:
    held = user.groups(option="hold")
    tickets = [await user.admitted(user.mci(), "create", spec=held, request_id="once") for _ in range(12)]
    assert len({ticket.run for ticket in tickets}) == 1
    events = (await user.asking.client.get_workflow_handle(user.mci()).fetch_history()).events
    accepted = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
    assert sum(event.event_type == accepted for event in events) == 2  # with the start, and of all who asked later
    await user.asking.cancel_action(user.mci())


async def test_one_request_id_asked_all_at_once_is_one_action_and_everybody_is_told(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    for number in range(4):
        asked = (user.admitted(user.mci(), "reboot", request_id=f"r{number}") for _ in range(40))
        tickets = await asyncio.gather(*asked)
        assert len({ticket.run for ticket in tickets if ticket.admission.grant}) == 1
        await asyncio.gather(*(user.asking.wait_for_outcome(ticket.path, ticket.run) for ticket in tickets))
    assert (await user.books())[user.vm("aws0-1")][0].effects == 5  # created, and rebooted once for each id


@pytest.mark.parametrize("other", [{"action": "suspend"}, {"requested_by": "mallory"}])
async def test_a_request_id_in_use_is_refused_to_whoever_asks_for_something_else(
    user: User, patient: None, other: dict[str, str]
) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    await user.fault("hang", seconds=600, verb="reboot")
    await user.admitted(user.mci(), "reboot", request_id="mine")
    asked = {"path": user.mci(), "action": "reboot", "requested_by": "tester", "request_id": "mine", **other}
    refusal = (await user.asking.request_action(Request.model_validate(asked))).admission.refusal
    assert refusal
    assert refusal.message.startswith("this id was used for reboot")
    await user.asking.cancel_action(user.mci())


async def test_what_runs_is_not_ended_by_a_creation_with_force(user: User) -> None:
    held = user.groups(option="hold")
    first = await user.admitted(user.mci(), "create", spec=held)
    refusal = (await user.ask(user.mci(), "create", spec=held, force=True)).admission.refusal
    assert refusal
    assert refusal.message.startswith(f"409 Conflict: other action currently happening on {user.mci()}: create")
    assert "--force" not in refusal.hint
    running = await user.asking.newest_run(user.mci())
    assert running
    assert (running.run_id, running.status) == (first.run, WorkflowExecutionStatus.RUNNING)
    await user.asking.cancel_action(user.mci())


async def test_a_request_that_was_refused_is_judged_anew_with_the_same_id(user: User) -> None:
    assert "there is no such MCI" in await user.refused(user.mci(), "terminate", request_id="again")
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    assert await user.refused(user.mci(), "resume", request_id="later")
    await user.do(user.vm("aws0-1"), "suspend")
    assert (await user.do(user.mci(), "resume", request_id="later")).result == "succeeded"
    assert (await user.do(user.mci(), "terminate", request_id="again")).result == "succeeded"
