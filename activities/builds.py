"""Makes a build of versioned workers the current one, for somebody who may."""

from __future__ import annotations

from typing import Any

from temporalio import activity
from temporalio.api.workflowservice.v1 import DescribeWorkerDeploymentRequest, SetWorkerDeploymentCurrentVersionRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.oidc import RecordAttempt
from activities.reads import refusals_as_errors
from domain.errors import Category, Refused
from domain.exposure import PROMOTE
from domain.requests import AccessAttempt, PromoteBuild


class BuildActivities:
    """Promotes builds, and records who asked for it. The guard has judged the sender before.

    Served on a queue without versions: before the first build is current, nothing else of a worker is called.
    """

    def __init__(self, client: Client, record: RecordAttempt) -> None:
        self._client = client
        self._record = record

    @activity.defn
    @refusals_as_errors
    async def promote_build(self, order: PromoteBuild) -> PromoteBuild:
        """Makes a build current. Refuses, with a list of builds, if no worker of it ever polled."""
        found = await describe_deployment(self._client, order.deployment)
        known = [summary.deployment_version.build_id for summary in found.worker_deployment_info.version_summaries]
        if order.build not in known:
            message = f"no worker of build {order.build[:100]!r} was seen"
            raise Refused(Category.NOT_FOUND, message, f"builds are: {', '.join(known)}")
        request = SetWorkerDeploymentCurrentVersionRequest(
            namespace=self._client.namespace,
            deployment_name=order.deployment,
            build_id=order.build,
            conflict_token=found.conflict_token,
            identity=self._client.identity,
        )
        try:
            await self._client.workflow_service.set_worker_deployment_current_version(request)
        except RPCError as error:
            if error.status is not RPCStatusCode.FAILED_PRECONDITION:
                raise
            why = f"build {order.build} cannot be promoted yet: {error.message}"
            raise Refused(
                Category.NOT_ALLOWED, why, "wait until its workers poll every queue, and ask again"
            ) from error
        message = f"{order.build} promoted by {order.requested_by or 'nobody named'}"
        line = AccessAttempt(path=order.audit_path, verb=PROMOTE, message=message)
        await self._record(line)
        return order


async def describe_deployment(client: Client, deployment: str) -> Any:
    """Returns what Temporal knows of a deployment; refuses an unknown one."""
    request = DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=deployment)
    try:
        # Temporal asks a workflow of its own, by a query, which it refuses while that workflow has a task.
        return await client.workflow_service.describe_worker_deployment(request, retry=True)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        why = f"no worker of the deployment {deployment!r} was ever seen"
        raise Refused(Category.NOT_FOUND, why, "start one with that RATCHET_DEPLOYMENT: starter worker") from error
