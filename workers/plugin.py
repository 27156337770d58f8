"""The one Temporal plugin: what every client and every worker of this project has in common."""

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

# Passed through: modules that are pure or only used by activities. Workflow modules themselves stay in the sandbox.
PASSED_THROUGH = ("pydantic", "pydantic_core", "annotated_types", "structlog", "cryptography", "domain", "activities")


def plugin(sandbox: bool = False, payloads: DataConverter | None = None) -> SimplePlugin:
    """The payloads and the workflow runner, for clients and workers alike."""
    return SimplePlugin(
        "ratchet",
        data_converter=patient(payloads or converter(Settings.model_construct())),
        workflow_runner=lambda _given: runner(sandbox),
        interceptors=[ArgumentGuard(), ActionInLogs()],
        workflow_failure_exception_types=[ValidationError],  # else a request that is no request is retried for ever
    )


def runner(sandbox: bool) -> WorkflowRunner:
    """Tests run workflows in the sandbox, where a forbidden call is an error; production runs them without its cost."""
    if not sandbox:
        return UnsandboxedWorkflowRunner()
    restrictions = SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH)
    return dataclasses.replace(SandboxedWorkflowRunner(), restrictions=restrictions)
