"""Reads a flood of signals in several workflow tasks, in its order, whatever the workflow.

`workers/floods.py` says why. A workflow that may end, or continue as new, waits for `workflow.all_handlers_finished`
first: that is false while a flood is not read. `TaskPace` does the same for a loop over messages that wait already.
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
PATCH = "floods-in-parts"  # older histories have no timers in a flood
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

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        try:
            return await super().execute_workflow(input)
        finally:
            if self._reader:  # the run has failed before it has read everything: nobody will
                self._reader.cancel()

    async def handle_signal(self, input: HandleSignalInput) -> None:
        if flood := input.headers.get(FLOOD_HEADER):
            self._unread.extend(job.signal_workflow for job in WorkflowActivation.FromString(flood.data).jobs)
        elif self._reader:  # it came later: those before it are read first
            self._unread.append(input)
        else:
            await super().handle_signal(input)
            return
        if not self._reader:
            self._reader = asyncio.current_task()
            with suppress(asyncio.CancelledError):
                await self._handle_unread_signals()

    async def _handle_unread_signals(self) -> None:
        handlers = list[asyncio.Task[None]]()
        while self._unread:
            share = len(self._unread)
            if share > SIGNALS_PER_TASK and workflow.patched(PATCH):
                share = SIGNALS_PER_TASK
            for _ in range(share):
                signal = self._unread.popleft()
                read = signal if isinstance(signal, HandleSignalInput) else _read_signal(signal)
                if read:
                    handlers.append(asyncio.create_task(super().handle_signal(read)))
            if self._unread:
                await workflow.sleep(PAUSE, summary=PAUSE_SUMMARY)
            handlers = [handler for handler in handlers if not handler.done() or handler.result()]  # raises its error
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
    """Lets a loop handle no more messages in one workflow task than a flood has in one."""

    def __init__(self) -> None:
        self._task, self._handled = 0, 0

    async def take_one(self) -> None:
        """Counts a message; ends the workflow task if it has handled enough."""
        task = workflow.info().get_current_history_length()
        self._handled = self._handled + 1 if task == self._task else 1
        self._task = task
        if self._handled > SIGNALS_PER_TASK and workflow.patched(PATCH):
            await workflow.sleep(PAUSE, summary=PAUSE_SUMMARY)
