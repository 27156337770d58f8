"""`starter build`: lists the builds of versioned workers, and promotes the one on which new actions begin."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter

from domain import wire
from domain.errors import Category, Refused, format_count
from domain.requests import PromoteBuild
from starter import terminal
from starter.errors import ExitCode
from starter.flags import OutputOption, WatchOption
from starter.output import Output, Sheet, format_time, print_sheet
from starter.session import load_settings, open_client
from starter.watch import run_once_or_watch

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
        builds = await list_builds(client.client, name)
    cells = [(each.build, each.status, str(each.workers), str(each.pinned), format_time(each.since)) for each in builds]
    data = [asdict(each) | {"since": format_time(each.since)} for each in builds]
    print_sheet(Sheet(data, HEADINGS, cells, [each.build for each in builds]), output)
    if any(each.workers for each in builds):
        terminal.print_remark("a worker that has stopped is counted for up to 90 seconds after its last poll")
    for each in builds:
        if each.is_deserted:
            pinned = format_count(each.pinned, "action")
            terminal.print_message(f"build {each.build} has no worker, and {pinned} that must end on it", "red")
    return ExitCode.DONE


async def promote(build: Annotated[str, Parameter(help="The build, as `starter build list` shows it.")], /) -> ExitCode:
    """Let new actions begin on a build. Actions in flight end on the build that they began on.

    Example: starter build promote 0.2.0
    """
    name = _deployment_name()
    async with open_client() as client:
        order = PromoteBuild(deployment=name, build=build)
        await client.run_query(wire.PROMOTE_BUILD, order, PromoteBuild, queue=wire.BUILDS_QUEUE)
    terminal.print_narration(f"new actions begin on build {build}; those in flight end where they began")
    terminal.print_narration(
        f"stop older workers when this says that they are drained: {terminal.rewrite_commands('starter build list')}"
    )
    return ExitCode.DONE


def _deployment_name() -> str:
    if name := load_settings().deployment:
        return name
    raise Refused(Category.INVALID, "no deployment is named", UNVERSIONED_HINT)
