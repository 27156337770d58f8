"""`starter build`: lists the builds of versioned workers, and promotes the one on which new actions begin."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from domain.errors import Category, Refused
from starter import terminal
from starter.errors import ExitCode
from starter.output import Output, OutputOption, Sheet, format_time, print_sheet
from starter.session import load_settings, open_client
from starter.watch import WatchOption, run_once_or_watch

if TYPE_CHECKING:
    from client.actions import ActionClient

HEADINGS = ("BUILD", "STATUS", "WORKERS", "PINNED", "SINCE")
UNVERSIONED_HINT = "set RATCHET_DEPLOYMENT to the name that the workers have, or leave the workers unversioned"


async def list_builds(*, watch: WatchOption = False, output: OutputOption = "table") -> ExitCode:
    """List the builds of workers, and the actions that are pinned to each. Stop a build's workers when it is `drained`.

    Example: starter build list
    """
    name = _deployment_name()
    return await run_once_or_watch(watch, lambda: _print_builds(name, output))


async def _print_builds(name: str, output: Output) -> ExitCode:
    from client.builds import list_builds

    async with open_client() as client:
        found = await _describe_deployment(client, name)
        builds = await list_builds(client.client, found.worker_deployment_info)
    cells = [(each.build, each.status, str(each.workers), str(each.pinned), format_time(each.since)) for each in builds]
    data = [asdict(each) | {"since": format_time(each.since)} for each in builds]
    print_sheet(Sheet(data, HEADINGS, cells, [each.build for each in builds]), output)
    for each in builds:
        if each.is_deserted:
            terminal.print_message(f"{each.pinned} actions wait for a worker of build {each.build}", "red")
    return ExitCode.DONE


async def promote(build: Annotated[str, Parameter(help="The build, as `starter build list` shows it.")], /) -> ExitCode:
    """Let new actions begin on a build. Actions in flight end on the build that they began on.

    Example: starter build promote 0.2.0
    """
    name = _deployment_name()
    async with open_client() as client:
        await make_build_current(client, name, build)
    terminal.print_narration(f"new actions begin on build {build}; those in flight end where they began")
    terminal.print_narration(
        f"stop older workers when this says that they are drained: {terminal.rewrite_as_typed('starter build list')}"
    )
    return ExitCode.DONE


async def make_build_current(client: ActionClient, deployment: str, build: str) -> None:
    """Makes a build current. Refuses, with a list of builds, if no worker of it ever polled."""
    from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest

    found = await _describe_deployment(client, deployment)
    known = [summary.deployment_version.build_id for summary in found.worker_deployment_info.version_summaries]
    if build not in known:
        raise Refused(
            Category.NOT_FOUND, f"no worker of build {build[:100]!r} was seen", f"builds are: {', '.join(known)}"
        )
    request = SetWorkerDeploymentCurrentVersionRequest(
        namespace=client.client.namespace,
        deployment_name=deployment,
        build_id=build,
        conflict_token=found.conflict_token,
        identity=client.client.identity,
    )
    await client.client.workflow_service.set_worker_deployment_current_version(request)


def _deployment_name() -> str:
    if name := load_settings().deployment:
        return name
    raise Refused(Category.INVALID, "no deployment is named", UNVERSIONED_HINT)


async def _describe_deployment(client: ActionClient, deployment: str) -> Any:
    from temporalio.api.workflowservice.v1 import DescribeWorkerDeploymentRequest
    from temporalio.service import RPCError, RPCStatusCode

    request = DescribeWorkerDeploymentRequest(namespace=client.client.namespace, deployment_name=deployment)
    try:
        return await client.client.workflow_service.describe_worker_deployment(request)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        why = f"no worker of the deployment {deployment!r} was ever seen"
        raise Refused(Category.NOT_FOUND, why, "start one with that RATCHET_DEPLOYMENT: starter worker") from error
