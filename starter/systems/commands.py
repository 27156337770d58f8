"""`starter system deploy|rollback|diff|logs|status|deploys|show|graph`: commands that take a path within a system."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from cyclopts import App, Parameter

from domain import registry
from domain.errors import Category, Refused
from domain.paths import expand_path
from domain.systems.rules import node_path
from starter import actions
from starter.actions import ActionOptions
from starter.errors import ExitCode
from starter.flags import OutputOption, WatchOption
from starter.kinds import SpecFile, read_spec_file
from starter.session import open_client
from starter.systems import definitions, views
from starter.watch import run_once_or_watch

MAX_LINES = 100

SystemName = Annotated[str, Parameter(help="The system's name, or its path.")]
TreePath = Annotated[str, Parameter(help="Where in the system: / or /a/b/c.")]
Deadline = Annotated[str, Parameter(help="How long its services may take to be stable, such as 90s or 5m.")]
Rollback = Annotated[
    bool, Parameter(name="--rollback-on-failure", negative="", help="Restore the former definition if it fails.")
]


def extend_app(app: App) -> None:
    """Replaces the registry's commands where a path within a system is needed, and adds the views."""
    system = app["system"]
    for name in ("deploy", "status"):
        del system[name]
    for command in (deploy, rollback, diff, logs, status, deploys, show, graph):
        system.command(command)
    app["part"]["deploy"].show = False  # users call system deploy, with the part's path


async def deploy(
    system: SystemName,
    path: TreePath = "/",
    /,
    *,
    file: SpecFile,
    deadline: Deadline = "5m",
    rollback: Rollback = False,
    options: ActionOptions = ActionOptions(),  # noqa: B008  frozen
) -> ExitCode:
    """Replace the definition at a path of the system and wait until its services are stable.

    Example: starter system deploy shop /back/api -f api.yaml --rollback-on-failure
    """
    definition = read_spec_file(file)
    target = node_path(system_path(system), path)
    spec: dict[str, object] = {
        "definition": definition,
        "deadline": _parse_seconds(deadline),
        "rollback": rollback,
    }
    return await actions.run_action(registry.kind_at(target), target, "deploy", options, spec)


async def rollback(
    system: SystemName,
    name: Annotated[str, Parameter(help="The deploy to go back to, such as d3.")] = "",
    /,
    *,
    deadline: Deadline = "5m",
    options: ActionOptions = ActionOptions(),  # noqa: B008  frozen
) -> ExitCode:
    """Deploy again what a deploy had put at its path; without its name, what the last deploy replaced.

    Example: starter system rollback shop d1
    """
    async with open_client() as client:
        goal = await definitions.find_rollback_definition(client, system_path(system), name)
    spec: dict[str, object] = {"definition": goal.definition, "deadline": _parse_seconds(deadline)}
    told = replace(options, reason=options.reason or goal.label)
    return await actions.run_action(registry.kind_at(goal.path), goal.path, "deploy", told, spec)


async def diff(
    system: SystemName,
    first: Annotated[str, Parameter(help="A deploy, such as d1.")] = "",
    second: Annotated[str, Parameter(help="Another deploy at the same path; without it, what is there now.")] = "",
    /,
    *,
    path: Annotated[str, Parameter(help="With --file: where in the system, / or /a/b/c.")] = "/",
    file: SpecFile = "",
    output: OutputOption = "table",
) -> ExitCode:
    """Compare definitions: what the last deploy changed; what differs since a deploy; or what a file would change.

    Example: starter system diff shop -f examples/system-demo.yaml
    """
    wanted = read_spec_file(file) or {}
    if file and first:
        raise Refused(Category.INVALID, "a deploy and a file cannot be compared", "give one of the two")
    async with open_client() as client:
        if file:
            at = node_path(system_path(system), path)
            before = definitions.NamedDefinition(at, definitions.NOW, await views.read_current_definition(client, at))
            after = definitions.NamedDefinition(at, file, wanted)
        else:
            before, after = await definitions.find_definitions_to_compare(client, system_path(system), first, second)
    return definitions.print_diff(before, after, output)


async def logs(
    system: SystemName,
    path: TreePath = "/",
    /,
    *,
    lines: Annotated[int, Parameter(name=["--lines", "-n"], help="How many lines of each instance.")] = 20,
    output: OutputOption = "table",
) -> ExitCode:
    """The last lines that each instance of the services wrote; known secrets in them are masked.

    Example: starter system logs shop /back/api -n 50
    """
    if not 1 <= lines <= MAX_LINES:
        raise Refused(Category.INVALID, f"--lines {lines} is not from 1 to {MAX_LINES}", "starter system logs --help")
    root = system_path(system)
    return await views.print_logs(root, node_path(root, path), lines, output)


async def status(system: SystemName, /, *, watch: WatchOption = False, output: OutputOption = "table") -> ExitCode:
    """The state of a system and of each of its services.

    Example: starter system status shop -o json
    """
    path = system_path(system)
    return await run_once_or_watch(watch, lambda: views.print_status(path, output))


async def deploys(system: SystemName, /, *, watch: WatchOption = False, output: OutputOption = "table") -> ExitCode:
    """The deploys and teardowns of a system, and how far each of them is.

    Example: starter system deploys shop
    """
    path = system_path(system)
    return await run_once_or_watch(watch, lambda: views.print_deploys(path, output))


async def show(system: SystemName, path: TreePath = "/", /, *, output: OutputOption = "yaml") -> ExitCode:
    """The definition at a path, as it could be deployed again.

    Example: starter system show shop /back
    """
    return await views.print_definition(node_path(system_path(system), path), output)


async def graph(system: SystemName, /, *, watch: WatchOption = False) -> ExitCode:
    """The tree of a system with the state of everything in it, and who holds locks on it.

    Example: starter system graph shop
    """
    path = system_path(system)
    return await run_once_or_watch(watch, lambda: views.print_tree_with_locks(path))


def system_path(text: str) -> str:
    """Expands a system's name to its path."""
    return expand_path(text, ("system",))


def _parse_seconds(text: str) -> float:
    if (seconds := actions.parse_duration(text, "--deadline")) is None:
        raise Refused(Category.INVALID, "--deadline is empty", "write it as 90s, 5m or 1h")
    return seconds
