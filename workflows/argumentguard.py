"""Drops messages whose number of arguments no handler takes, just as unreadable messages are dropped.

The SDK would fail the workflow task and retry it for ever: a sender of `"input": [1, 2]` instead of `"input": [1]`
could stop an action that way.
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

from domain.wire import UNFIT_ERROR_TYPE
from workflows.floods import DEFINITION_ATTRIBUTE


class ArgumentGuard(Interceptor):
    """The interceptor that drops such messages, for every worker and every replayer."""

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        return _GuardedWorkflow


class _GuardedWorkflow(WorkflowInboundInterceptor):
    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        if why := argument_mismatch(input.run_fn, input.args):
            told = f"not started as it should be: {why}; the input is one JSON object, see docs/temporal.md"
            raise ApplicationError(told, type=UNFIT_ERROR_TYPE, non_retryable=True)
        return await super().execute_workflow(input)

    async def handle_signal(self, input: HandleSignalInput) -> None:
        if isinstance(workflow.instance(), InertWorkflow):
            return
        if why := argument_mismatch(_find_message_handler("signals", input.signal), input.args):
            workflow.logger.warning("signal %s dropped: %s", input.signal, why)
            return
        await super().handle_signal(input)

    def handle_update_validator(self, input: HandleUpdateInput) -> None:
        _drop_message(input)
        super().handle_update_validator(input)

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:
        _drop_message(input)
        return await super().handle_update_handler(input)


class GuardedInitWorkflow:
    """Base of workflows that get their input before any message (`workflow.init`).

    The SDK creates the workflow before any interceptor runs, and a wrong number of arguments would fail that task for
    ever. So an InertWorkflow takes its place, until the ArgumentGuard fails the run with the reason.
    """

    def __new__(cls, *args: Any) -> Self:
        return cast(Self, InertWorkflow()) if argument_mismatch(cls.__init__, args) else super().__new__(cls)


class InertWorkflow:
    """Takes the place of a workflow that could not be created; it ignores every message."""


def _drop_message(input: HandleUpdateInput) -> None:
    if why := argument_mismatch(_find_message_handler("updates", input.update), input.args):
        raise ApplicationError(f"{input.update}: {why}", type=UNFIT_ERROR_TYPE, non_retryable=True)


def _find_message_handler(kind: str, name: str) -> Callable[..., Any] | None:
    """Returns the method that handles a message; None if the workflow has none of that name."""
    definition = getattr(type(workflow.instance()), DEFINITION_ATTRIBUTE, None)
    handler = getattr(definition, kind, {}).get(name)
    return handler.fn if handler else None


@cache
def _signature(method: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(method)  # cached, as it is needed for every message, even in a flood


def argument_mismatch(method: Callable[..., Any] | None, args: Sequence[Any]) -> str:
    """Returns why a method cannot be called with these arguments; empty if it can."""
    try:
        if method:
            _signature(method).bind(None, *args)  # None: for self
    except TypeError as error:
        return str(error)
    return ""
