"""The workflow runner that packs a flood: if more signals come in one workflow task than are read in one, it makes one
signal of them, which the interceptor of `workflows/floods.py` reads in several tasks.

Signals that no handler takes are packed however few they are. The SDK would set them aside, and wake nothing: a
workflow that waits until its history is long would not look at its length, and Temporal would make it deaf.

The SDK spends about a fifth of a millisecond on each signal, and fails a step that takes two seconds. Ten thousand
signals, Temporal's limit for a run, take longer on a busy machine, and the task would be repeated for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from temporalio.bridge.proto.workflow_activation import SignalWorkflow, WorkflowActivation, WorkflowActivationJob
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner
from temporalio.workflow import Info

from domain.limits import SIGNALS_PER_TASK
from workflows.floods import FLOOD_HEADER


class SignalPackingRunner(WorkflowRunner):
    """Runs workflows with another runner, and packs their floods of signals."""

    def __init__(self, runner: WorkflowRunner) -> None:
        self._runner = runner

    def prepare_workflow(self, defn: Any) -> None:
        self._runner.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        instance = self._runner.create_instance(det)
        return _SignalPackingInstance(instance, list(det.defn.signals)) if det.defn.signals else instance

    def set_worker_level_failure_exception_types(self, types: Any) -> None:
        self._runner.set_worker_level_failure_exception_types(types)


class _SignalPackingInstance(WorkflowInstance):
    def __init__(self, instance: WorkflowInstance, handled: Sequence[str | None]) -> None:
        self._instance, self._handled = instance, handled

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        pack_flood(act, self._handled)
        return self._instance.activate(act)

    def get_serialization_context(self, command_info: Any) -> Any:
        return self._instance.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> Any:
        return self._instance.get_external_store_context(command_info)

    def get_info(self) -> Info:
        return self._instance.get_info()

    def get_thread_id(self) -> int | None:
        return self._instance.get_thread_id()


def pack_flood(act: WorkflowActivation, handled: Sequence[str | None]) -> None:
    """Replaces the signals of an activation by one, if they are more than one task reads, or not all are handled.

    `handled`: the names that have a handler; None is the handler of all other names.
    """
    signals = [job for job in act.jobs if job.HasField("signal_workflow")]
    for job in signals:
        job.signal_workflow.headers.pop(FLOOD_HEADER, None)  # only this runner packs
    foreign = None not in handled and any(job.signal_workflow.signal_name not in handled for job in signals)
    if len(signals) <= SIGNALS_PER_TASK and not foreign:
        return
    flood = WorkflowActivationJob(signal_workflow=SignalWorkflow(signal_name=handled[0] or ""))
    flood.signal_workflow.originating_event_id = signals[0].signal_workflow.originating_event_id
    flood.signal_workflow.headers[FLOOD_HEADER].data = WorkflowActivation(jobs=signals).SerializeToString()
    others = [job for job in act.jobs if not job.HasField("signal_workflow")]
    merged = WorkflowActivation(jobs=[*others, flood])
    act.ClearField("jobs")
    act.jobs.MergeFrom(merged.jobs)
