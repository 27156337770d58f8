"""Metrics and traces of activities. Without a collector they cost next to nothing."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from temporalio import activity

from domain import metrics
from domain.errors import ProviderError
from domain.ports import FIRST_VM, Cloud, VmAnswer, VmFacts, VmKey, VmOrder

T = TypeVar("T")
Span = Callable[[str, Mapping[str, str]], AbstractContextManager[object]]


def no_span(_name: str, _facts: Mapping[str, str]) -> AbstractContextManager[object]:
    """Traces nothing: the span of a process without tracing."""
    return nullcontext()


def add_to_counter(name: str, number: int = 1, **told: str) -> None:
    """Adds to a counter of `domain.metrics`."""
    if activity.in_activity():
        activity.metric_meter().create_counter(name, metrics.COUNTER_HELP[name]).add(number, told)


@contextmanager
def time_block(name: str, **told: str) -> Iterator[None]:
    """Records how long the block takes, however it ends."""
    began = time.monotonic()
    try:
        yield
    finally:
        if activity.in_activity():
            took = timedelta(seconds=time.monotonic() - began)
            activity.metric_meter().create_histogram_timedelta(name, metrics.TIMER_HELP[name]).record(took, told)


class MeasuredCloud:
    """A cloud whose calls are counted, timed and traced."""

    def __init__(self, csp: str, cloud: Cloud, span: Span = no_span) -> None:
        self.orders_per_call = cloud.orders_per_call
        self._csp = csp
        self._cloud = cloud
        self._span = span

    async def perform_orders(self, verb: str, region: str, orders: Sequence[VmOrder]) -> list[VmAnswer]:
        return await self._measure(verb, region, self._cloud.perform_orders(verb, region, orders), len(orders))

    async def describe_vms(self, region: str, orders: Sequence[VmOrder]) -> list[VmFacts | None]:
        return await self._measure("describe", region, self._cloud.describe_vms(region, orders), len(orders))

    async def list_tagged_vms(self, region: str, prefix: str, after: VmKey = FIRST_VM) -> list[VmFacts]:
        return await self._measure("list", region, self._cloud.list_tagged_vms(region, prefix, after), 1)

    def __getattr__(self, name: str) -> Any:
        """Passes other methods through, measured if they are coroutines."""
        found = getattr(self._cloud, name)
        return partial(self._measure_plain_call, name, found) if inspect.iscoroutinefunction(found) else found

    async def _measure_plain_call(self, name: str, call: Callable[..., Awaitable[T]], *args: Any, **more: Any) -> T:
        region = inspect.signature(call).bind(*args, **more).arguments.get("region", "")
        return await self._measure(name, str(region), call(*args, **more), 1)

    async def _measure(self, call: str, region: str, work: Awaitable[T], vms: int) -> T:
        where = {"csp": self._csp, "region": region, "call": call}
        with self._span(f"{self._csp} {call}", where), time_block(metrics.PROVIDER_LATENCY, **where):
            try:
                answer = await work
            except (ProviderError, TimeoutError, asyncio.CancelledError) as error:
                add_to_counter(metrics.PROVIDER_CALLS, vms, outcome=_outcome_label(error), **where)
                raise
        outcomes = Counter(map(_outcome_label, answer)) if isinstance(answer, list) else {"ok": 1}
        for word, number in outcomes.items():
            add_to_counter(metrics.PROVIDER_CALLS, number, outcome=word, **where)
        return answer


def _outcome_label(answer: object) -> str:
    """Returns `ok`, `missing` for a VM that the cloud does not know, or the error's class name."""
    if answer is None:
        return "missing"
    return type(answer).__name__.lower() if isinstance(answer, BaseException) else "ok"
