"""`starter system deploy|status|deploys|show|graph`: commands that take a path within a system."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from domain import registry
from domain.errors import Category, Refused
from domain.paths import expand_path
from domain.systems.rules import node_path
from starter import actions
from starter.actions import ActionOptions
from starter.errors import Exit
from starter.kinds import SpecFile, read_spec_file
from starter.output import OutputOption
from starter.systems import views
from starter.watch import WatchOption, run_and_watch

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
    for command in (deploy, status, deploys, show, graph):
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
) -> Exit:
    """Replace the definition at a path of the system and wait until its services are stable.

    Example: starter system deploy shop /back/api -f api.yaml --rollback-on-failure
    """
    target = node_path(system_path(system), path)
    spec: dict[str, object] = {
        "definition": read_spec_file(file),
        "deadline": _parse_seconds(deadline),
        "rollback": rollback,
    }
    return await actions.run_action(registry.kind_at(target), target, "deploy", options, spec)


async def status(system: SystemName, /, *, watch: WatchOption = False, output: OutputOption = "table") -> Exit:
    """The state of a system and of each of its services.

    Example: starter system status shop -o json
    """
    path = system_path(system)
    return await run_and_watch(watch, lambda: views.print_status(path, output))


async def deploys(system: SystemName, /, *, watch: WatchOption = False, output: OutputOption = "table") -> Exit:
    """The deploys and teardowns of a system, and how far each of them is.

    Example: starter system deploys shop
    """
    path = system_path(system)
    return await run_and_watch(watch, lambda: views.print_deploys(path, output))


async def show(system: SystemName, path: TreePath = "/", /, *, output: OutputOption = "yaml") -> Exit:
    """The definition at a path, as it could be deployed again.

    Example: starter system show shop /back
    """
    return await views.print_definition(node_path(system_path(system), path), output)


async def graph(system: SystemName, /, *, watch: WatchOption = False) -> Exit:
    """The tree of a system with the state of everything in it, and who holds locks on it.

    Example: starter system graph shop
    """
    path = system_path(system)
    return await run_and_watch(watch, lambda: views.print_graph(path))


def system_path(text: str) -> str:
    """Expands a system's name to its path."""
    return expand_path(text, ("system",))


def _parse_seconds(text: str) -> float:
    if (seconds := actions.parse_duration(text, "--deadline")) is None:
        raise Refused(Category.INVALID, "--deadline is empty", "write it as 90s, 5m or 1h")
    return seconds
