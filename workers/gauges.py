"""A worker's gauges: read from the store and Temporal every few seconds, and served with its other metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from temporalio.client import Client
from temporalio.common import MetricMeter
from temporalio.runtime import Runtime
from temporalio.service import RPCError

from domain import metrics
from domain.errors import RatchetError
from store.gauges import SqlGauges

INTERVAL_SECONDS = 10.0
CALL_SECONDS = 5.0  # a read that takes longer counts as unanswered


async def report_gauges(client: Client, store: SqlGauges, held_phases: Sequence[str]) -> None:
    """Keeps the gauges up to date. `held_phases`: of actions that wait for a person."""
    set_gauge = _gauge_setter((client.service_client.config.runtime or Runtime.default()).metric_meter)
    phases = ", ".join(f"'{phase}'" for phase in held_phases)
    held = f"Phase IN ({phases}) AND ExecutionStatus = 'Running'"
    while True:
        set_gauge(metrics.STORE_REACHABLE, float(await _report_store(store, set_gauge)))
        try:
            async with asyncio.timeout(CALL_SECONDS):
                set_gauge(metrics.HELD_ACTIONS, float((await client.count_workflows(held)).count))
        except (RPCError, TimeoutError):
            pass  # the SDK has metrics of its own about Temporal
        await asyncio.sleep(INTERVAL_SECONDS)


async def _report_store(store: SqlGauges, set_gauge: Callable[[str, float], None]) -> bool:
    """Sets the gauges that come from the store. Returns whether it answered."""
    try:
        async with asyncio.timeout(CALL_SECONDS):
            found = await store.read_gauges()
    except (RatchetError, TimeoutError):
        return False
    set_gauge(metrics.OPEN_ACTIONS, found.open_actions)
    set_gauge(metrics.OLDEST_ACTION, found.oldest_seconds)
    if found.drifted is not None and found.sweep_seconds is not None:
        set_gauge(metrics.DRIFTED_OBJECTS, found.drifted)
        set_gauge(metrics.LAST_SWEEP, found.sweep_seconds)
    return True


def _gauge_setter(meter: MetricMeter) -> Callable[[str, float], None]:
    gauges = {name: meter.create_gauge_float(name, text) for name, text in metrics.GAUGE_HELP.items()}
    return lambda name, value: gauges[name].set(value)
