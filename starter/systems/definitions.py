"""The stored definitions of deploys: which one to go back to, and how two of them differ."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from domain.errors import Category, Refused
from domain.model import ObjectView, ReadQuery
from domain.paths import name_of, root_of, short_path
from domain.systems.ports import FORMER_DEFINITION, READ_DEFINITION, DefinitionView
from domain.systems.rules import tree_path
from domain.systems.tables import DeployStage
from starter import terminal
from starter.errors import ExitCode
from starter.output import Output, Sheet, print_sheet
from starter.systems import views

if TYPE_CHECKING:
    from client.actions import ActionClient

NOW = "now"  # the label of what is there now


@dataclass(frozen=True)
class NamedDefinition:
    """A definition of the node at a path, with what to call it."""

    path: str
    label: str
    definition: dict[str, Any]


async def find_rollback_definition(client: ActionClient, system: str, name: str) -> NamedDefinition:
    """Returns what to deploy to go back: a deploy's own definition, or without a name what the last one replaced."""
    record = await _find_deploy(client, system, name)
    if name:
        return NamedDefinition(
            _target_of_deploy(record), f"rollback to {name}", await _read_deploy_definition(client, record)
        )
    last = name_of(record.path)
    former = await _read_former_definition(client, record)
    if former is None:
        raise Refused(
            Category.NOT_ALLOWED,
            f"there was nothing at {tree_path(record.path)} before {last}",
            f"name a deploy to go back to, see: starter system deploys {short_path(system)}",
        )
    return NamedDefinition(_target_of_deploy(record), f"rollback of {last}", former)


async def suggest_command(client: ActionClient, view: ObjectView) -> str:
    """Returns the command that helps best: go back if the last deploy failed and replaced something, else deploy."""
    system, place = root_of(view.path), tree_path(view.path)
    records = [record async for record in client.iterate_objects("deploy", system)]
    last = max(records, key=lambda record: record.epoch, default=None)
    if last and last.status == DeployStage.FAILED and await _read_former_definition(client, last) is not None:
        return f"starter system rollback {short_path(system)}"
    return f"starter system deploy {short_path(system)} {place} -f FILE"


async def find_definitions_to_compare(
    client: ActionClient, system: str, first: str, second: str
) -> tuple[NamedDefinition, NamedDefinition]:
    """Returns the two definitions to compare: of two deploys, of one and now, or before and after the last."""
    record = await _find_deploy(client, system, first)
    path, name = _target_of_deploy(record), name_of(record.path)
    own = NamedDefinition(path, name, await _read_deploy_definition(client, record))
    if not first:
        return NamedDefinition(path, f"before {name}", await _read_former_definition(client, record) or {}), own
    if not second:
        return own, NamedDefinition(path, NOW, await views.read_current_definition(client, path))
    other = await _find_deploy(client, system, second)
    if _target_of_deploy(other) != path:
        raise Refused(
            Category.INVALID,
            f"{first} is a deploy of {tree_path(path)}, {second} of {tree_path(other.path)}",
            f"compare deploys of one path, see: starter system deploys {short_path(system)}",
        )
    return own, NamedDefinition(path, second, await _read_deploy_definition(client, other))


def print_diff(before: NamedDefinition, after: NamedDefinition, output: Output) -> ExitCode:
    """Prints the differences of two definitions, line by line, with the parts in the order of the definition."""
    # What is there now was read part by part, by name: the other one has the order in which it was written.
    written = (before if after.label == NOW else after).definition
    old, new = (_format_yaml_lines(_sort_parts_like(each.definition, written)) for each in (before, after))
    lines = list(difflib.unified_diff(old, new, before.label, after.label, lineterm=""))
    if output == "table":
        for line in lines:
            terminal.print_data(line)
        if not lines:
            terminal.print_message(f"{tree_path(before.path)} is the same in both")
        return ExitCode.DONE
    data = {"path": before.path, "from": before.label, "to": after.label, "diff": lines}
    print_sheet(Sheet(data, (), [], [before.path]), output)
    return ExitCode.DONE


async def _find_deploy(client: ActionClient, system: str, name: str) -> ObjectView:
    """Returns the record of a deploy by its name, or of the last one."""
    await client.read_object(system)  # raises if the system does not exist
    records = [view async for view in client.iterate_objects("deploy", system)]
    records.sort(key=lambda view: view.epoch)
    found = [view for view in records if name in ("", name_of(view.path))]
    if not found:
        told = f"there is no deploy {name[:40]}" if name else "nothing was deployed yet"
        hint = f"starter system deploys {short_path(system)}" if records else "starter system deploy --help"
        raise Refused(Category.NOT_FOUND, f"{told} in {short_path(system)}", hint)
    return found[-1]


async def _read_deploy_definition(client: ActionClient, record: ObjectView) -> dict[str, Any]:
    found = await client.run_query(READ_DEFINITION, ReadQuery(path=record.path), DefinitionView)
    return found.definition or {}


async def _read_former_definition(client: ActionClient, record: ObjectView) -> dict[str, Any] | None:
    query = ReadQuery(path=record.path, kind=FORMER_DEFINITION)
    return (await client.run_query(READ_DEFINITION, query, DefinitionView)).definition


def _target_of_deploy(record: ObjectView) -> str:
    return record.path.partition("::")[0]


def _sort_parts_like(definition: dict[str, Any], written: dict[str, Any]) -> dict[str, Any]:
    """Returns a definition with its parts and jobs in the order of another one; those that it lacks come last."""
    ordered = dict(definition)
    for key in ("parts", "jobs"):
        like, parts = _name_parts(written.get(key)), _name_parts(definition.get(key))
        if parts:
            names = sorted(parts, key=lambda name: list(like).index(name) if name in like else len(like))
            ordered[key] = [_sort_parts_like(parts[name], like.get(name, {})) for name in names]
    return ordered


def _name_parts(parts: Any) -> dict[str, dict[str, Any]]:
    """Returns parts by name; none if the file has something else there, which a deploy would refuse."""
    if not isinstance(parts, list) or not all(isinstance(part, dict) and "name" in part for part in parts):
        return {}
    named = {str(part["name"]): part for part in parts}
    return named if len(named) == len(parts) else {}


def _format_yaml_lines(definition: dict[str, Any]) -> list[str]:
    """Returns the definition as YAML; the database does not keep the order of keys."""
    import yaml

    text: str = yaml.safe_dump(definition, sort_keys=True, allow_unicode=True) if definition else ""
    return text.splitlines()
