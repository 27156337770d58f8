"""Writes what README.md, docs/ and starter/firstlines.py take from the code. Run: python -m docs.generate

A part is between `<!-- generated: NAME -->` and `<!-- /generated -->`. Do not edit it by hand: `tests/test_readme.py`
fails when it differs from what this module writes.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from cyclopts import App, Parameter
from pydantic.fields import FieldInfo

import workers.families  # noqa: F401  it knows the families' tables
from client import admission as waits
from client import reading, takeover
from docs import descriptions, firstlines
from docs import refusals as in_code
from domain import errors, faults, limits, metrics, paths, registry, rendering, wire
from domain.errors import Refused
from domain.mci.specs import MciSpec, SubGroup
from domain.mci.tables import VM
from domain.model import Request
from domain.statetable import NONE, Actor, Ruling, StateTable
from gateway.settings import GatewaySettings
from starter import spec
from starter.actions import ActionOptions
from starter.app import build_cli_app
from starter.errors import EXIT_OF_CATEGORY, ExitCode
from starter.extensions import find_extension
from store.schema import metadata
from tests.test_layers import MAY_IMPORT
from workers import embedded
from workflows import action, admission, calls

T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", *sorted(f"docs/{page.name}" for page in ROOT.glob("docs/*.md")))
COMMAND = ".venv/bin/python -m docs.generate"
BLOCK = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- /generated -->)", re.DOTALL)


def layers() -> str:
    """Folder, what it is for, what it may import."""
    lines = []
    for name, others in MAY_IMPORT.items():
        what = (importlib.import_module(name).__doc__ or "").strip()
        lines.append((f"`{name}/`", what, ", ".join(each for each in MAY_IMPORT if each in others) or "nothing"))
    return _table(("folder", "what it is", "may import"), lines)


def settings() -> str:
    """Every RATCHET_* variable."""
    usual = GatewaySettings.model_construct()
    derived = {"store_url": usual.store_database_url(), "cloud_url": usual.cloud_database_url()}
    lines = []
    for name in GatewaySettings.model_fields:
        value = derived.get(name, str(getattr(usual, name)))
        lines.append(
            (f"`RATCHET_{name.upper()}`", f"`{value}`" if value else "-", _description_of(descriptions.SETTINGS, name))
        )
    return _table(("variable", "default", "what it is"), lines)


def exit_codes_table() -> str:
    return _table(
        ("code", "meaning"), [(str(int(code)), _description_of(descriptions.EXITS, code)) for code in ExitCode]
    )


def cloud_caps_table() -> str:
    """The rate limits of each cloud."""
    lines = [(f"`{csp}`", str(caps.regions), str(caps.vms)) for csp, caps in limits.CAPS_BY_CLOUD.items()]
    return _table(("cloud", "regions at once", "VMs of a region at once"), lines)


def size_limits_table() -> str:
    """The fixed limits of the program."""
    return _table(
        ("limit", "of what"),
        [
            (f"{limits.MAX_VMS_PER_MCI:,}", "VMs in one MCI"),
            (f"{limits.MAX_SUBGROUPS}", "subgroups in one MCI"),
            (f"{limits.MAX_SPEC_BYTES // 1024} KiB", f"a spec file, nested at most {spec.MAX_DEPTH} deep"),
            (f"{limits.MAX_PAYLOAD_BYTES:,}", "bytes in any payload: a request, an answer, a signal"),
            (f"{paths.MAX_NAME}", f"characters in a name; {paths.MAX_PATH} in a path"),
            (
                f"{limits.VMS_PER_CHUNK}",
                f"VMs in one activity; {action.CHUNKS_AT_ONCE} activities run at once in a place",
            ),
            (f"{limits.FAILURES_SHOWN}", "failed VMs listed in an outcome; the inventory has all of them"),
            (f"{waits.ADMISSION_SECONDS} s", f"until no answer is reported; {waits.BUSY_SECONDS} s while workers work"),
            (f"{calls.HEARTBEAT.seconds} s", "until Temporal notices that a worker died during a call"),
            (f"{reading.READ_SECONDS} s", "until a read that a frozen or dead worker took is sent once more"),
            (
                f"{admission.FORCE_TIMEOUT.seconds} s",
                "that `--force` waits for the actions below the object to clean up",
            ),
            (
                f"{takeover.PREEMPT_SECONDS:g} s",
                "that `--force` waits for the object's own action; then a worker terminates it",
            ),
            (
                f"{embedded.HISTORY_RETENTION_DAYS} days",
                "that the embedded server keeps closed workflows; the inventory has its own retention",
            ),
        ],
    )


def fault_kinds_table() -> str:
    return _table(
        ("kind", "what happens"),
        [(f"`{kind}`", _description_of(descriptions.FAULTS, kind)) for kind in faults.FaultKind],
    )


def vm_actions_table() -> str:
    """The rows of the VM's table that a user may take."""
    return rendering.markdown_table(replace(VM, rows=tuple(row for row in VM.rows if row.actor == Actor.USER)))


def verdicts_table(name: str) -> str:
    """What each action leads to, from each stable status of a kind."""
    kind = registry.KINDS[name]
    births = {row.action for row in kind.table.rows if row.source == NONE}
    verbs = [verb.action for verb in kind.verbs if verb.action not in births and not verb.is_internal]
    lines = [
        (status, *(_describe_verdict(kind.table, status, verb) for verb in verbs))
        for status in kind.table.stable_statuses
    ]
    return _table((f"{kind.table.label} is", *verbs), lines)


def family_refusals_table(family: str) -> str:
    """Every refusal in a family's own code."""
    lines = [(code, f"`{message}`", hint) for code, message, hint in in_code.refusals_of_family(family)]
    return _table(("exit", "refused with", "hint"), lines)


def states(kind: str) -> str:
    """The state table of a kind."""
    return rendering.markdown_table(registry.KINDS[kind].table)


def state_diagram(kind: str) -> str:
    return _fenced_block("mermaid", rendering.mermaid_diagram(registry.KINDS[kind].table))


def commands(name: str) -> str:
    """Every command of a noun, with the first sentence of its help."""
    return _table(
        ("command", "what it does"), [_command_cells(each) for each in _visible_commands(build_cli_app()[name])]
    )


def options() -> str:
    """The options of every action."""
    hints = get_type_hints(ActionOptions, include_extras=True)
    lines = []
    for field in fields(ActionOptions):
        told = next(item for item in hints[field.name].__metadata__ if isinstance(item, Parameter))
        names = [told.name] if isinstance(told.name, str) else list(told.name or [f"--{field.name.replace('_', '-')}"])
        names += [word for word in _words(told.negative) if word]
        lines.append((", ".join(f"`{name}`" for name in names), told.help or ""))
    return _table(("option", "what it does"), lines)


def refusals() -> str:
    """Bad requests, each with its refusal."""
    group = {"name": "front", "subGroupSize": 1, "csp": "aws", "region": "eu-central-1"}

    def create(path: str = "ns:default:mci:web", **changed: Any) -> Callable[[], object]:
        return lambda: registry.parse_spec(Request(path=path, action="create", spec={"subGroups": [group | changed]}))

    twice = {"subGroups": [group, group]}
    asked: list[tuple[str, Callable[[], object]]] = [
        ("a subgroup without VMs", create(subGroupSize=0)),
        ("more VMs than an MCI may have", create(subGroupSize=limits.MAX_VMS_PER_MCI + 1)),
        ("a bad name of a cloud", create(csp="the moon")),
        ("an unknown field", create(colour="red")),
        ("two subgroups with the same name", lambda: registry.parse_spec(_create_request(twice))),
        ("create without subgroups", lambda: registry.parse_spec(_create_request({"subGroups": []}))),
        ("a spec for an action that takes none", lambda: registry.parse_spec(_create_request(twice, "suspend"))),
        ("a bad name", lambda: paths.expand_path("default/-web", ("ns", "mci"))),
        ("a VM where an MCI is wanted", lambda: paths.expand_path("default/web/front-1", ("ns", "mci"))),
        ("an unknown action", lambda: registry.find_kind("vm").find_verb("fly")),
        ("an unknown kind", lambda: registry.find_kind("rocket")),
    ]
    return _table(("request", "exit", "refused with"), [(what, *_refusal_cells(ask)) for what, ask in asked])


def spec_fields_table() -> str:
    """The fields of an MCI's spec file."""
    lines = [_field_cells(name, field, descriptions.MCI_FIELDS) for name, field in MciSpec.model_fields.items()]
    lines += [
        _field_cells(f"subGroups[].{name}", field, descriptions.GROUP_FIELDS)
        for name, field in SubGroup.model_fields.items()
    ]
    return _table(("field", "default", "what it is"), lines)


def inventory() -> str:
    """The tables of the store."""
    lines = {}
    for table in metadata.sorted_tables:
        what = _description_of(descriptions.TABLES, table.name)
        lines[table.name] = (f"`{table.name}`", what, ", ".join(table.columns.keys()))
    return _table(("table", "what it keeps", "columns"), [lines[name] for name in descriptions.TABLES])


def error_tree() -> str:
    return _fenced_block("text", inspect.getdoc(errors) or "")


def search_attributes_table() -> str:
    return _table(("attribute", "type"), [(f"`{name}`", kind) for name, kind in wire.SEARCH_ATTRIBUTES.items()])


def request_fields_table() -> str:
    """The fields of a request."""
    properties = Request.model_json_schema()["properties"]
    return _table(
        ("field", "default", "what it is"),
        [
            (f"`{name}`", _describe_default(properties[name]), _description_of(descriptions.REQUEST_FIELDS, name))
            for name in properties
        ],
    )


def metrics_table() -> str:
    """Our own Prometheus metrics."""
    told = {**metrics.COUNTER_HELP, **metrics.TIMER_HELP, **metrics.GAUGE_HELP}
    lines = []
    for name, labels in metrics.LABELS_OF_METRIC.items():
        shown = metrics.prometheus_name(name).replace("_count", "")
        lines.append((f"`{shown}`", told[name], ", ".join(labels)))
    return _table(("metric", "what it is", "labels"), lines)


def workflow_types_table() -> str:
    """The workflow type of each action."""
    found: dict[str, list[str]] = {}
    for kind in registry.KINDS.values():
        for verb in kind.verbs:
            found.setdefault(verb.workflow, []).append(f"{kind.name} {verb.action}")
    return _table(("workflow type", "actions"), [(f"`{name}`", ", ".join(what)) for name, what in found.items()])


def tenants_table() -> str:
    """The tenant of each family's objects, by an example."""
    lines = []
    for family, kinds in registry.FAMILIES.items():
        examples = find_extension(family).examples
        roots = dict.fromkeys(kind.scope[0] for kind in kinds if not kind.serves_all)
        lines.append((family, ", ".join(f"`{root}:{examples.get(root, 'NAME')}`" for root in roots)))
    shared = [kind.name for kind in registry.KINDS.values() if kind.serves_all]
    lines.append((f"{', '.join(shared)}: they serve all tenants", f"`{registry.INSTALLATION}`"))
    return _table(("family", "tenant, such as"), lines)


def exposures() -> str:
    """What may be called from outside: activities and messages by access and verb."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, row in (registry.activity_exposures() | registry.message_exposures()).items():
        found.setdefault((row.access.value, row.verb), []).append(f"`{name}`")
    lines = [(access, verb or "-", ", ".join(sorted(names))) for (access, verb), names in sorted(found.items())]
    return _table(("access", "verb", "activities and messages"), lines)


PARTS: dict[str, Callable[[], str]] = {
    "exposures": exposures,
    "tenants": tenants_table,
    "layers": layers,
    "settings": settings,
    "exit-codes": exit_codes_table,
    "caps": cloud_caps_table,
    "sizes": size_limits_table,
    "fault-kinds": fault_kinds_table,
    "vm-actions": vm_actions_table,
    "options": options,
    "refusals": refusals,
    "spec-fields": spec_fields_table,
    "inventory": inventory,
    "error-tree": error_tree,
    "search-attributes": search_attributes_table,
    "request": request_fields_table,
    "workflow-types": workflow_types_table,
    "metrics": metrics_table,
}


# Parts by kind: `states-vm` and so on.
OF_KIND: dict[str, Callable[[str], str]] = {
    "states": states,
    "diagram": state_diagram,
    "commands": commands,
    "verdicts": verdicts_table,
    "refusals": family_refusals_table,  # of a family
}


def part(name: str) -> str:
    """A generated part by its name."""
    what, _, kind = name.partition("-")
    return PARTS[name]() if name in PARTS else OF_KIND[what](kind)


def fill_generated_parts(text: str) -> str:
    """A page with its generated parts as the code gives them now."""
    return BLOCK.sub(lambda found: f"{found[1]}{part(found[2]).rstrip()}\n{found[3]}", text)


def main() -> None:
    for name in PAGES:
        page = ROOT / name
        old = page.read_text()
        new = fill_generated_parts(old)
        page.write_text(new)
        sys.stdout.write(f"{name}: {'unchanged' if old == new else 'updated'}\n")
    firstlines.FILE.write_text(firstlines.first_lines_module(build_cli_app()))


def _table(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [headings, ["---"] * len(headings), *lines]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows) + "\n"


def _description_of(told: Mapping[T, str], about: T) -> str:
    """The description of a name in docs/descriptions.py."""
    if about not in told:
        raise LookupError(f"docs/descriptions.py does not describe {about!r}")
    return told[about]


def _fenced_block(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```\n"


def _describe_verdict(table: StateTable, status: str, verb: str) -> str:
    verdict = table.judge(status, verb)
    if verdict.ruling is Ruling.REFUSED:
        return "with force" if "without force" in verdict.reason else "no"
    if verdict.ruling is Ruling.ALREADY or not verdict.row:
        return "nothing to do"
    return verdict.row.during or "yes (hidden)"  # hidden work shows in no status


def _create_request(given: dict[str, Any], verb: str = "create") -> Request:
    return Request(path="ns:default:mci:web", action=verb, spec=given)


def _refusal_cells(ask: Callable[[], object]) -> tuple[str, str]:
    try:
        ask()
    except Refused as refused:
        hint = f"<br>`{refused.hint}`" if refused.hint else ""
        return str(int(EXIT_OF_CATEGORY[refused.category])), f"`{refused.message}`{hint}"
    raise AssertionError("this request should have been refused")


def _field_cells(name: str, field: FieldInfo, told: Mapping[str, str]) -> tuple[str, str, str]:
    usual = "must be given" if field.is_required() else f"`{field.default}`" if field.default else "empty"
    return f"`{name}`", usual, _description_of(told, name.rpartition(".")[2])


def _visible_commands(noun: App) -> list[App]:
    """The visible commands of a noun and of the nouns inside it."""
    shown = [noun[name] for name in noun.resolved_commands() if not name.startswith("-") and noun[name].show]
    return [each for one in shown for each in (_visible_commands(one) if one.default_command is None else [one])]


def _command_cells(each: App) -> tuple[str, str]:
    what, _, example = inspect.cleandoc(each.help).partition("\n\nExample: ")
    return f"`{' '.join(example.split())}`", " ".join(what.split())


def _words(given: object) -> list[str]:
    return [given] if isinstance(given, str) else [str(word) for word in given] if isinstance(given, tuple) else []


def _describe_default(schema: dict[str, Any]) -> str:
    if "default" not in schema:
        return "must be given"
    return {"": "empty", None: "none", False: "`false`"}.get(schema["default"], str(schema["default"]))


if __name__ == "__main__":
    main()
