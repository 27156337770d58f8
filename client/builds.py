"""Builds of versioned workers: which of them have workers, and which have actions that are pinned to them."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime

from temporalio.api.enums.v1 import WorkerDeploymentVersionStatus
from temporalio.client import Client

from activities.builds import describe_deployment
from client.queries import describe_queue
from domain import wire

_STATUS_PREFIX = "WORKER_DEPLOYMENT_VERSION_STATUS_"
POLL_SECONDS = 90.0  # a live worker polls at least once a minute


@dataclass(frozen=True)
class BuildView:
    """A build: its status in Temporal, the workers that poll for actions, and the open actions that only it may run."""

    build: str
    status: str
    since: datetime
    workers: int
    pinned: int

    @property
    def is_deserted(self) -> bool:
        """Tells whether actions wait for workers that do not exist."""
        return bool(self.pinned) and not self.workers


async def list_builds(client: Client, name: str) -> list[BuildView]:
    """Returns the builds of a deployment; refuses an unknown one."""
    deployment = (await describe_deployment(client, name)).worker_deployment_info
    workers = await _count_workers(client, deployment.name)
    return [
        BuildView(
            build=(build := summary.deployment_version.build_id),
            status=WorkerDeploymentVersionStatus.Name(summary.status).removeprefix(_STATUS_PREFIX).lower(),
            since=summary.create_time.ToDatetime(tzinfo=UTC),
            workers=workers[build],
            pinned=await _count_pinned(client, deployment.name, build),
        )
        for summary in deployment.version_summaries
    ]


async def _count_workers(client: Client, deployment: str) -> Counter[str]:
    """Counts the workers that polled for actions lately, by build."""
    alive = {
        (poller.identity, poller.deployment_options.build_id)
        for poller in (await describe_queue(client, wire.ACTIONS_QUEUE)).pollers
        if poller.deployment_options.deployment_name == deployment
        and time.time() - poller.last_access_time.seconds < POLL_SECONDS
    }
    return Counter(build for _, build in alive)


async def _count_pinned(client: Client, deployment: str, build: str) -> int:
    """Counts the open actions that began on a build and have to end on it."""
    query = (
        f"TemporalWorkerDeploymentVersion = '{_quoted(deployment)}:{_quoted(build)}' AND ExecutionStatus = 'Running' "
        "AND TemporalWorkflowVersioningBehavior = 'Pinned'"
    )
    return (await client.count_workflows(query)).count


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
