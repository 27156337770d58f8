"""Messages that no handler can take, because there are more or fewer than it expects: dropped, as unreadable ones are.

The SDK would fail the task of the workflow and try again, for ever: whoever sends `"input": [1, 2]` instead of
`"input": [1]` would stop an action that way.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Self, cast

from temporalio import workflow
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    ExecuteWorkflowInput,
    HandleSignalInput,
    HandleUpdateInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

UNFIT = "UnfitMessage"
DEFINITION = "__temporal_workflow_definition"  # where the SDK keeps it on the class


class ArgumentGuard(Interceptor):
    """For every worker, and for whoever replays what a worker did."""

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        return _GuardedWorkflow


class _GuardedWorkflow(WorkflowInboundInterceptor):
    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        if why := argument_mismatch(input.run_fn, input.args):
            raise ApplicationError(f"not started as it should be: {why}", type=UNFIT, non_retryable=True)
        return await super().execute_workflow(input)

    async def handle_signal(self, input: HandleSignalInput) -> None:
        if isinstance(workflow.instance(), InertWorkflow):
            return
        if why := argument_mismatch(_handler_of("signals", input.signal), input.args):
            workflow.logger.warning("signal %s dropped: %s", input.signal, why)
            return
        await super().handle_signal(input)

    def handle_update_validator(self, input: HandleUpdateInput) -> None:
        _refuse(input)
        super().handle_update_validator(input)

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:
        _refuse(input)
        return await super().handle_update_handler(input)


class InitializedWorkflow:
    """A workflow that learns what it is about before it hears anything (`workflow.init`).

    The SDK makes it before any interceptor is asked, and a wrong number of arguments would fail that task for ever. So
    there is a stand-in, until the shield says what is wrong.
    """

    def __new__(cls, *args: Any) -> Self:
        return cast(Self, InertWorkflow()) if argument_mismatch(cls.__init__, args) else super().__new__(cls)


class InertWorkflow:
    """Of a workflow that could not be made: it hears nothing."""


def _refuse(input: HandleUpdateInput) -> None:
    if why := argument_mismatch(_handler_of("updates", input.update), input.args):
        raise ApplicationError(f"{input.update}: {why}", type=UNFIT, non_retryable=True)


def _handler_of(kind: str, name: str) -> Callable[..., Any] | None:
    """The method that hears a message. What the SDK itself hands out takes any arguments, and then fails."""
    definition = getattr(type(workflow.instance()), DEFINITION, None)
    found = getattr(definition, kind, {}).get(name)
    return found.fn if found else None


@cache
def _signature(method: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(method)  # asked for every message: of a flood, too


def argument_mismatch(method: Callable[..., Any] | None, args: Sequence[Any]) -> str:
    """Why a method cannot be called with so many arguments; empty if it can."""
    try:
        if method:
            _signature(method).bind(None, *args)  # None: for self
    except TypeError as error:
        return str(error)
    return ""
