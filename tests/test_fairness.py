"""Fairness: work carries its tenant, and Temporal serves tenants in turn."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.common import Priority
from temporalio.worker import Worker

from activities.fairness import MAX_KEY, tenant_priority
from tests.patience import PATIENCE
from tests.user import User, spec

MANY, FEW = 30, 3


@pytest.mark.parametrize(
    ("where", "key"),
    [
        ("ns:default:mci:web", "ns:default"),
        ("ns:default:mci:web:vm:front-1", "ns:default"),
        ("account:acme:cloudspace:dev:machine:db::migrate", "account:acme"),
        ("node:cpu-01", "installation"),
        ("ratchet-heal-7", None),
        ("", None),
    ],
)
def test_the_tenant_is_the_fairness_key(where: str, key: str | None) -> None:
    assert tenant_priority(where) == Priority(fairness_key=key)


def test_a_long_tenant_has_a_key_that_temporal_takes() -> None:
    keys = {tenant_priority(f"account:{'a' * 62}{last}").fairness_key or "" for last in "bc"}
    assert len(keys) == 2
    assert all(len(key) <= MAX_KEY for key in keys)


async def test_an_action_and_its_activities_carry_their_tenant(user: User, client: Client) -> None:
    path = user.mci()
    await user.do(path, "create", spec=spec(1))
    events = (await client.get_workflow_handle(path).fetch_history()).events
    started = events[0].workflow_execution_started_event_attributes
    scheduled = [
        event.activity_task_scheduled_event_attributes
        for event in events
        if event.HasField("activity_task_scheduled_event_attributes")
    ]
    assert started.priority.fairness_key == f"ns:{user.ns}"
    assert scheduled
    assert {each.priority.fairness_key for each in scheduled} == {f"ns:{user.ns}"}


async def test_who_has_few_tasks_does_not_wait_behind_who_has_many(client: Client) -> None:
    """All tasks wait before the worker comes, which takes one at a time."""
    queue, served = f"fair-{uuid.uuid4().hex}", []

    @activity.defn(name="serve")
    async def serve(tenant: str) -> None:
        served.append(tenant)

    tasks = [
        await client.start_activity(
            "serve",
            tenant,
            id=f"{queue}-{number}",
            task_queue=queue,
            start_to_close_timeout=timedelta(seconds=PATIENCE),
            priority=tenant_priority(f"ns:{tenant}:mci:web"),
        )
        for number, tenant in enumerate(["loud"] * MANY + ["quiet"] * FEW)
    ]
    async with Worker(client, task_queue=queue, activities=[serve], max_concurrent_activities=1):
        await asyncio.gather(*(task.result() for task in tasks))
    assert len(served) == MANY + FEW
    last = len(served) - served[::-1].index("quiet")
    assert last <= 4 * FEW, served
