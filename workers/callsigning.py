"""Signs the calls of activities that our workflows make, and what they ask of their children, with the worker's key.

Whoever may write to the namespace can start a workflow with the name of one of ours on a worker of their own, and call
our activities from it, or start our workflows as its children. It has no key of ours, so these have no token.
"""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.worker import (
    Interceptor,
    StartActivityInput,
    StartChildWorkflowInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from activities.access import describe_call, describe_child
from activities.accessguard import CALL_HEADER
from activities.proofs import ProofSigner
from domain.message import CHILD_PROOF
from domain.model import Request


class CallSigning(Interceptor):
    """The interceptor that puts a token on every call. A local activity needs none: it never leaves its worker."""

    def __init__(self, signer: ProofSigner) -> None:
        self._signer = signer

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        signer = self._signer

        class SigningWorkflow(WorkflowInboundInterceptor):
            def init(self, outbound: WorkflowOutboundInterceptor) -> None:
                super().init(_SigningWorkflowOutbound(outbound, signer))

        return SigningWorkflow


class _SigningWorkflowOutbound(WorkflowOutboundInterceptor):
    def __init__(self, next: WorkflowOutboundInterceptor, signer: ProofSigner) -> None:
        super().__init__(next)
        self._signer = signer

    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[object]:
        info = workflow.info()
        token = self._signer.sign_call(describe_call(info.workflow_id, info.run_id, input.activity))
        input.headers = {**input.headers, CALL_HEADER: Payload(data=token)}
        return super().start_activity(input)

    async def start_child_workflow(self, input: StartChildWorkflowInput) -> workflow.ChildWorkflowHandle[Any, Any]:
        input.args = [
            self._with_token(arg, input.id) if isinstance(arg, Request) and not arg.proof else arg for arg in input.args
        ]
        return await super().start_child_workflow(input)

    def _with_token(self, request: Request, child: str) -> Request:
        info = workflow.info()
        token = self._signer.sign_call(describe_child(info.workflow_id, info.run_id, child, request))
        return request.model_copy(update={"proof": CHILD_PROOF + token.decode()})
