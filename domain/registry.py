"""The kinds of objects there are and what can be asked of each. The CLI is made from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from domain import mci
from domain.errors import Category, Refused
from domain.machine import StateTable
from domain.model import NewObject, Request
from domain.paths import check_path, expand, kind_of
from domain.wire import CONTROL_VMS, CREATE_MCI, REMOVE_VMS


@dataclass(frozen=True)
class Verb:
    """One thing that can be asked of a kind: which workflow does it, with what parameters."""

    action: str
    workflow: str
    help: str
    spec: type[BaseModel] | None = None


@dataclass(frozen=True)
class Kind:
    """One kind of object."""

    table: StateTable
    scope: tuple[str, ...]  # the kinds on its path, itself last
    verbs: tuple[Verb, ...]
    help: str
    member: str | None = None  # the kind of its parts, to which its actions apply
    births: Callable[[str, Any], Iterable[NewObject]] | None = None
    aggregate: Callable[[str, Mapping[str, int]], str] | None = None  # a status computed from the members'

    @property
    def name(self) -> str:
        return self.table.kind

    def verb(self, action: str) -> Verb:
        """The verb for an action, or Refused naming those that there are."""
        for verb in self.verbs:
            if verb.action == action:
                return verb
        known = ", ".join(verb.action for verb in self.verbs)
        raise Refused(
            Category.INVALID, f"unknown action {action[:40]!r} for {self.table.label}", f"actions are: {known}"
        )


# fmt: off
_CONTROL = (
    Verb("suspend",   CONTROL_VMS, "Stop VMs without giving them up."),
    Verb("resume",    CONTROL_VMS, "Start suspended VMs again."),
    Verb("reboot",    CONTROL_VMS, "Restart running VMs."),
    Verb("terminate", CONTROL_VMS, "End VMs for good."),
)
# fmt: on

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            table=mci.MCI,
            scope=("ns", "mci"),
            verbs=(
                Verb("create", CREATE_MCI, "Create a group of VMs across clouds.", mci.MciSpec),
                *_CONTROL,
                Verb("refine", REMOVE_VMS, "Remove failed and undefined VMs, here and in the cloud."),
                Verb("delete", REMOVE_VMS, "Terminate all VMs and remove every record of the group."),
            ),
            help="Groups of VMs across clouds.",
            member="vm",
            births=mci.births,
            aggregate=mci.aggregate,
        ),
        Kind(table=mci.VM, scope=("ns", "mci", "vm"), verbs=_CONTROL, help="Single VMs of a group."),
    )
}


def kind(name: str) -> Kind:
    """The kind of that name, or Refused naming those that there are."""
    if name not in KINDS:
        raise Refused(Category.INVALID, f"unknown kind {name[:40]!r}", f"kinds are: {', '.join(KINDS)}")
    return KINDS[name]


def kind_at(path: str) -> Kind:
    """The kind of the object at a path whose shape fits that kind."""
    found = kind(kind_of(check_path(path)))
    expand(path, found.scope)
    return found


def parse_spec(request: Request) -> BaseModel | None:
    """The request's spec, checked against what its action takes."""
    verb = kind_at(request.path).verb(request.action)
    if verb.spec is None:
        if request.spec:
            raise Refused(Category.INVALID, f"{request.action} takes no spec")
        return None
    try:
        return verb.spec.model_validate(request.spec or {})
    except ValidationError as error:
        raise Refused(Category.INVALID, f"the spec is not valid: {explain(error)}") from error


def explain(error: ValidationError) -> str:
    """What pydantic found, as a person would say it: where, and what."""
    found = [
        f"{'.'.join(map(str, problem['loc'])) or 'spec'}: {problem['msg'].removeprefix('Value error, ')}"
        for problem in error.errors(include_url=False, include_input=False)
    ]
    return "; ".join(found[:5]) + (f"; and {len(found) - 5} more" if len(found) > 5 else "")
