"""A packed signal is read exactly as one that came alone: a replay may pack what was not packed before."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from temporalio import workflow
from temporalio.bridge.proto.workflow_activation import SignalWorkflow
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker._workflow_instance import _WorkflowInstanceImpl as Sdk

from workers.families import WORKFLOWS
from workflows.floods import read_signal_arguments

VALUES: list[list[object]] = [[], [{}], [None], [1, "two"], [{}, {}, {}], [{"state": "Ready"}]]


def test_every_signal_of_every_workflow() -> None:
    converter, seen = pydantic_data_converter.payload_converter, 0
    alone = SimpleNamespace(_workflow_context_payload_converter=converter, workflow_is_failure_exception=bool)
    alone._convert_payloads = partial(Sdk._convert_payloads, cast(Any, alone))
    for each in WORKFLOWS:
        for name, handler in workflow._Definition.must_from_class(each).signals.items():
            for values in VALUES:
                signal = SignalWorkflow(signal_name=name or "other", input=converter.to_payloads(values))
                definition = (handler.name, handler.arg_types, handler.dynamic_vararg)
                by_sdk = partial(
                    Sdk._process_handler_args, cast(Any, alone), signal.signal_name, signal.input, *definition
                )
                packed = partial(read_signal_arguments, handler, signal, converter)
                assert _arguments_or_error(packed) == _arguments_or_error(by_sdk), (each, name, values)
                seen += 1
    assert seen > 100


def _arguments_or_error(read: Callable[[], list[Any]]) -> str:
    try:
        return repr(read())
    except Exception:
        return "cannot be read"
