"""The Temporal plugin that every client and worker of this project uses."""

from __future__ import annotations

import dataclasses
from typing import Any

from pydantic import ValidationError
from temporalio.client import ClientConfig
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError
from temporalio.plugin import SimplePlugin
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    UnsandboxedWorkflowRunner,
    WorkflowRunner,
)
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from client.payloads import data_converter, seal_to_namespace, tolerant_converter
from domain import wire
from workers.floods import SignalPackingRunner
from workers.logs import ActionLogInterceptor
from workers.settings import WorkerSettings
from workflows.argumentguard import ArgumentGuard
from workflows.floods import FloodReader

# Modules outside the sandbox: pure, or used by activities only. Workflow modules stay inside.
PASSED_THROUGH_MODULES = (
    "pydantic",
    "pydantic_core",
    "annotated_types",
    "structlog",
    "cryptography",
    "domain",
    "activities",
)


class PayloadPlugin(SimplePlugin):
    """A plugin whose data converter seals payloads to the client's namespace."""

    def configure_client(self, config: ClientConfig) -> ClientConfig:
        config = super().configure_client(config)
        config["data_converter"] = seal_to_namespace(config["data_converter"], config["namespace"])
        return config


def temporal_plugin(sandbox: bool = False, payloads: DataConverter | None = None) -> PayloadPlugin:
    """Returns the plugin: data converter, workflow runner and interceptors."""
    return PayloadPlugin(
        "ratchet",
        data_converter=tolerant_converter(payloads or data_converter(WorkerSettings.model_construct())),
        workflow_runner=lambda _given: workflow_runner(sandbox),
        interceptors=[FloodReader(), ArgumentGuard(), PayloadGuard(), ActionLogInterceptor()],
        workflow_failure_exception_types=[ValidationError],  # else a malformed request is retried for ever
    )


def workflow_runner(sandbox: bool) -> WorkflowRunner:
    """Returns the workflow runner. Tests use the sandbox, which detects forbidden calls; production saves its cost."""
    if not sandbox:
        return SignalPackingRunner(UnsandboxedWorkflowRunner())
    restrictions = SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH_MODULES)
    return SignalPackingRunner(dataclasses.replace(SandboxedWorkflowRunner(), restrictions=restrictions))


class PayloadGuard(Interceptor):
    """Refuses activities whose arguments cannot be decrypted, once and for all. The SDK would retry them."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _DecryptedActivity(next)


class _DecryptedActivity(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        if unread := [value for value in input.args if isinstance(value, wire.UnreadableMessage)]:
            raise ApplicationError(str(unread[0]), type=wire.REFUSED_PAYLOAD_ERROR_TYPE, non_retryable=True)
        return await super().execute_activity(input)
