"""Reads a flood of signals in several workflow tasks, in its order, whatever the workflow.

`workers/floods.py` says why. A workflow that may end, or continue as new, waits for `workflow.all_handlers_finished`
first: that is false while a flood is not read. `TaskPace` does the same for a loop over messages that wait already.

Both count from the beginning of the run, not of the task: a replay may find in one task what came in several.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.bridge.proto.workflow_activation import SignalWorkflow, WorkflowActivation
from temporalio.common import RawValue
from temporalio.converter import PayloadConverter
from temporalio.worker import (
    ExecuteWorkflowInput,
    HandleSignalInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

with workflow.unsafe.imports_passed_through():
    from domain.limits import SIGNALS_PER_TASK

FLOOD_HEADER = "ratchet-flood"
DEFINITION_ATTRIBUTE = "__temporal_workflow_definition"  # the SDK's attribute on the class
PAUSE = timedelta(milliseconds=1)  # a timer ends the workflow task, and the next one has a new time limit
PAUSE_SUMMARY = "more signals came than one task reads"


class FloodReader(Interceptor):
    """The interceptor that reads packed signals, for every worker and every replayer. It comes first."""

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        return _FloodedWorkflow


class _FloodedWorkflow(WorkflowInboundInterceptor):
    def __init__(self, next: WorkflowInboundInterceptor) -> None:
        super().__init__(next)
        self._unread: deque[SignalWorkflow | HandleSignalInput] = deque()
        self._reader: asyncio.Task[Any] | None = None
        self._pace = TaskPace()

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        try:
            return await super().execute_workflow(input)
        finally:
            if self._reader:  # the run has failed before it has read everything: nobody will
                self._reader.cancel()

    async def handle_signal(self, input: HandleSignalInput) -> None:
        flood = input.headers.get(FLOOD_HEADER)
        jobs = WorkflowActivation.FromString(flood.data).jobs if flood else []
        self._unread.extend([job.signal_workflow for job in jobs] or [input])
        if not self._reader:  # else it came later: those before it are read first
            self._reader = asyncio.current_task()
            with suppress(asyncio.CancelledError):
                await self._handle_unread_signals()

    async def _handle_unread_signals(self) -> None:
        handlers = list[asyncio.Task[None]]()
        while self._unread:
            signal = self._unread.popleft()
            read = signal if isinstance(signal, HandleSignalInput) else _read_signal(signal)
            if read:
                handlers.append(asyncio.create_task(super().handle_signal(read)))
            await self._pace.take_one()
        self._reader = None
        await asyncio.gather(*handlers)


def _read_signal(signal: SignalWorkflow) -> HandleSignalInput | None:
    """Returns a signal as the SDK would hand it over; None if it would drop it."""
    workflow_type = getattr(type(workflow.instance()), DEFINITION_ATTRIBUTE, None)  # None: of an InertWorkflow
    signals: dict[str | None, Any] = workflow_type.signals if workflow_type else {}
    definition = signals.get(signal.signal_name) or signals.get(None)
    if not definition:
        return None
    try:
        args = read_signal_arguments(definition, signal, workflow.payload_converter())
    except Exception as error:
        workflow.logger.warning("signal %s dropped: it cannot be read: %s", signal.signal_name, error)
        return None
    return HandleSignalInput(signal=signal.signal_name, args=args, headers=signal.headers)


def read_signal_arguments(definition: Any, signal: SignalWorkflow, converter: PayloadConverter) -> list[Any]:
    """Returns the arguments of a signal exactly as the SDK reads them.

    A replay may find two signals in one task that came in two. One of them is packed then that was not, and whoever
    read it otherwise would do something else than before. A handler without arguments is given none, whatever came.
    """
    payloads = signal.input
    types = definition.arg_types if definition.name else [RawValue] * len(payloads)
    types = None if types and len(types) != len(payloads) else types
    args = converter.from_payloads(payloads, types) if payloads else []
    return args if definition.name else [signal.signal_name, args]


class TaskPace:
    """Ends the workflow task after every so many messages of a run."""

    def __init__(self) -> None:
        self._taken = 0

    async def take_one(self) -> None:
        self._taken += 1
        if self._taken % SIGNALS_PER_TASK == 0:
            await workflow.sleep(PAUSE, summary=PAUSE_SUMMARY)
