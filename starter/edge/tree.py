"""A cloudlet with its clusters and apps, as a tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from domain.edge.specs import crm_command_line
from domain.model import ObjectView
from domain.paths import name_of, parent_of, short_path
from starter import terminal
from starter.errors import ExitCode
from starter.output import Output, Sheet, print_sheet
from starter.session import open_client

if TYPE_CHECKING:
    from client.actions import ActionClient


async def print_status(path: str, output: Output) -> ExitCode:
    """Prints a cloudlet with its clusters and apps, as a tree."""
    async with open_client() as client:
        cloudlet = await client.read_object(path)
        inside = [view async for view in client.iterate_objects("cluster", path)]
        inside += [view async for view in client.iterate_objects("app", path)]
    if output == "table":
        for line in tree_lines(cloudlet, inside):
            terminal.print_data(terminal.escape_controls(line))
        return ExitCode.DONE
    print_sheet(
        Sheet(cloudlet_document(cloudlet, inside), (), [], [path, *sorted(view.path for view in inside)]), output
    )
    return ExitCode.DONE


def cloudlet_document(cloudlet: ObjectView, inside: Sequence[ObjectView] = ()) -> dict[str, Any]:
    """Returns the tree as data."""
    crm = cloudlet.info.get("crm") or {}
    return {
        "name": name_of(cloudlet.path),
        "status": cloudlet.status,
        "target_action": cloudlet.target_action,
        "target_status": cloudlet.target_status,
        "crm": {"version": "", "notify_id": 0, "connected": False, **crm},
        "orphans": cloudlet.info.get("orphans", []),
        "error": cloudlet.error,
        "clusters": [_instance_document(view, inside) for view in inside if parent_of(view.path) == cloudlet.path],
    }


def _instance_document(view: ObjectView, inside: Sequence[ObjectView]) -> dict[str, Any]:
    below = [_instance_document(each, inside) for each in inside if parent_of(each.path) == view.path]
    known = {
        "name": name_of(view.path),
        "status": view.status,
        "target_action": view.target_action,
        "spec": view.spec,
        "missing": bool(view.info.get("missing")),
        "progress": view.info.get("progress"),
        "error": view.error,
    }
    return {**known, "apps": below} if below or view.kind != "app" else known


def tree_lines(cloudlet: ObjectView, inside: Sequence[ObjectView]) -> list[str]:
    """Returns the tree as lines of text."""
    told = [f"{short_path(cloudlet.path)}  {_describe_state(cloudlet)}  ({_describe_crm(cloudlet)})"]
    told += _branch_lines(cloudlet.path, inside, "")
    told += [f"!! orphan on the cloudlet, unknown to us: {path}" for path in cloudlet.info.get("orphans", [])]
    return told


async def crm_remarks(_asking: ActionClient, cloudlet: ObjectView) -> list[tuple[str, str]]:
    """Tells which CRM is connected, or how to run one."""
    if (cloudlet.info.get("crm") or {}).get("connected"):
        return [("on site", _describe_crm(cloudlet))]
    return [
        (
            "on site",
            f"{_describe_crm(cloudlet)}; a reference CRM: {crm_command_line(cloudlet.path, cloudlet.spec)}",
        )
    ]


def _describe_crm(cloudlet: ObjectView) -> str:
    crm = cloudlet.info.get("crm") or {}
    return f"CRM {crm['version']}, notify-id {crm['notify_id']}" if crm.get("connected") else "no CRM connected"


def _branch_lines(above: str, inside: Sequence[ObjectView], indent: str) -> list[str]:
    children = [view for view in inside if parent_of(view.path) == above]
    told: list[str] = []
    for number, view in enumerate(children, start=1):
        last = number == len(children)
        told.append(
            f"{indent}{'└─' if last else '├─'} {name_of(view.path)}  {_describe_state(view)}  "
            f"{_describe_spec(view)}".rstrip()
        )
        told += _branch_lines(view.path, inside, indent + ("   " if last else "│  "))
    return told


def _describe_state(view: ObjectView) -> str:
    progress = view.info.get("progress") if view.target_action != "None" else None
    step = f" [task {progress['task']} of {progress['of']}: {progress['step']}]" if progress else ""
    missing = " MISSING on the cloudlet" if view.info.get("missing") else ""
    error = f" ! {view.error}" if view.error else ""
    return f"{view.status}{step}{missing}{error}"


def _describe_spec(view: ObjectView) -> str:
    return ", ".join(f"{key} {value}" for key, value in view.spec.items() if value != "")
