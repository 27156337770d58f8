"""Every workflow type in every way that it can end, with nothing remembered between tasks and activities in any order.

With no cache each task replays its workflow from the start, so whatever is not determined by the history shows at once.
The stories are those that are recorded for replay; each must end as its recorded history did.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    Replayer,
    Worker,
)

from client.actions import ActionClient
from tests.patience import DEADLOCK, PATIENCE
from tests.records import FAMILIES
from workers import embedded, service
from workers.families import WORKFLOWS
from workers.plugin import temporal_plugin
from workers.service import WorkerService
from workers.settings import WorkerSettings

RECORDED = Path(__file__).parent / "histories"
SEED = int(os.environ.get("RATCHET_CHAOS_SEED") or random.randrange(10**6))
SHORT = 5  # stories of each family in the short run
CACHES = (0, 2)  # nothing is remembered; or so little that others push it out in the middle
CLOSED = {
    *("WORKFLOW_EXECUTION_COMPLETED", "WORKFLOW_EXECUTION_FAILED", "WORKFLOW_EXECUTION_CANCELED"),
    *("WORKFLOW_EXECUTION_CONTINUED_AS_NEW", "WORKFLOW_EXECUTION_TERMINATED"),
}


class Shuffle(Interceptor):
    """Activities take a moment each, and so end in another order each time."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Shuffled(next, self._chance)


class _Shuffled(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, chance: random.Random) -> None:
        super().__init__(next)
        self._chance = chance

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        await asyncio.sleep(self._chance.choice([0, 0, 0.005, 0.02]))
        return await super().execute_activity(input)


class Enough(Exception):
    """As much as the short run has time for."""


class Compared:
    """Holds what became of a story against the recorded one."""

    def __init__(self, client: Client, family: str, most: int) -> None:
        self._client, self._family, self._most = client, family, most
        self.differ: list[str] = []
        self.kinds: set[str] = set()
        self.histories: list[WorkflowHistory] = []

    async def keep(self, workflow: str, name: str, run: str | None = None) -> None:
        history = await self._client.get_workflow_handle(workflow, run_id=run).fetch_history()
        told = json.loads(history.to_json())["events"]
        recorded = json.loads((RECORDED / f"{self._family}-{name}.json").read_text())["events"]
        self.kinds.add(told[0]["workflowExecutionStartedEventAttributes"]["workflowType"]["name"])
        self.histories.append(history)
        if (now := ending(told)) != (then := ending(recorded)):
            self.differ.append(f"{self._family}-{name}: {then} was recorded, now it is {now}")
        self.differ += [f"{self._family}-{name}: {each}" for each in told if is_trouble(each)]
        if len(self.histories) >= self._most:
            raise Enough


def is_trouble(event: dict[str, Any]) -> bool:
    """A task that failed, unless something had just come in that it did not know yet: that is how Temporal works.
    Nor one that took too long for the SDK, as on a busy machine.
    """
    failed = event.get("workflowTaskFailedEventAttributes", {})
    if DEADLOCK in failed.get("failure", {}).get("message", ""):
        return False
    return bool(failed) and not failed["cause"].endswith("UNHANDLED_COMMAND")


def ending(events: list[dict[str, Any]]) -> tuple[str, ...]:
    """How a run closed: with which outcome, or failure."""
    last = events[-1]
    kind = last["eventType"].removeprefix("EVENT_TYPE_")
    if kind not in CLOSED:
        return ("open",)
    result = last.get("workflowExecutionCompletedEventAttributes", {}).get("result", {}).get("payloads", [{}])
    failure = last.get("workflowExecutionFailedEventAttributes", {}).get("failure", {})
    found = decoded(result[0].get("data", "")) or {}
    outcome = (
        [str(found.get(word, "")) for word in ("path", "action", "result", "status")] if isinstance(found, dict) else []
    )
    return (kind, *outcome, failure.get("applicationFailureInfo", {}).get("type", ""))


def decoded(data: str) -> Any:
    return json.loads(base64.b64decode(data)) if data else None


async def _told(address: str, home: Path, family: str, most: int) -> Compared:
    """So many of a family's stories, told and replayed."""
    client = await Client.connect(address, plugins=[temporal_plugin(sandbox=True)], identity="guard")
    settings = WorkerSettings(home=home, simulated_latency=0, call_timeout=PATIENCE, patience=PATIENCE)
    running = WorkerService(client, settings, interceptors=[Shuffle(random.Random(SEED))])
    running.prepare_databases()
    compared = Compared(client, family, most)
    async with running.serve_queues(), asyncio.timeout(5 * PATIENCE):
        with suppress(Enough):
            await FAMILIES[family](compared, ActionClient(client), running)
    await running.close()
    replayer = Replayer(workflows=WORKFLOWS, plugins=[temporal_plugin(sandbox=True)])
    async with replayer.workflow_replay_iterator(_each(compared.histories)) as results:
        compared.differ += [repr(result.replay_failure) async for result in results if result.replay_failure]
    return compared


async def _each(histories: list[WorkflowHistory]) -> AsyncIterator[WorkflowHistory]:
    for history in histories:
        yield history


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # evicted before it began
@pytest.mark.filterwarnings("ignore:Cannot find activity to cancel")  # the SDK's: it had ended just then
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("family", FAMILIES)
async def test_a_story_ends_the_same_when_every_task_replays(
    family: str, cache: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chaos: bool
) -> None:
    if cache and not chaos:
        pytest.skip("one cache size is enough in the short run")
    print(f"RATCHET_CHAOS_SEED={SEED}")  # noqa: T201  shown when it fails
    forgetful = partial(Worker, max_cached_workflows=cache)
    monkeypatch.setattr(service, "Worker", forgetful)
    server = await embedded.start_server(tmp_path)
    try:
        compared = await _told(server.address, tmp_path, family, 1_000 if chaos else SHORT)
    finally:
        await server.stop_server()
    assert compared.differ == []
    assert compared.histories
