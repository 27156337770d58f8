"""The Temporal plugin that every client and worker of this project uses."""

from __future__ import annotations

import dataclasses

from pydantic import ValidationError
from temporalio.converter import DataConverter
from temporalio.plugin import SimplePlugin
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from client.payloads import converter, patient
from workers.logs import ActionInLogs
from workers.settings import Settings
from workflows.guard import ArgumentGuard

# Modules outside the sandbox: pure, or used by activities only. Workflow modules stay inside.
PASSED_THROUGH = ("pydantic", "pydantic_core", "annotated_types", "structlog", "cryptography", "domain", "activities")


def plugin(sandbox: bool = False, payloads: DataConverter | None = None) -> SimplePlugin:
    """Returns the plugin: data converter, workflow runner and interceptors."""
    return SimplePlugin(
        "ratchet",
        data_converter=patient(payloads or converter(Settings.model_construct())),
        workflow_runner=lambda _given: runner(sandbox),
        interceptors=[ArgumentGuard(), ActionInLogs()],
        workflow_failure_exception_types=[ValidationError],  # else a malformed request is retried for ever
    )


def runner(sandbox: bool) -> WorkflowRunner:
    """Returns the workflow runner. Tests use the sandbox, which detects forbidden calls; production saves its cost."""
    if not sandbox:
        return UnsandboxedWorkflowRunner()
    restrictions = SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH)
    return dataclasses.replace(SandboxedWorkflowRunner(), restrictions=restrictions)
