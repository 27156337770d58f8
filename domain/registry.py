"""The registry of kinds, family by family. The CLI is generated from it."""

from __future__ import annotations

from functools import cache

from pydantic import BaseModel, ValidationError

from domain import edge, leases, machines, mci, systems
from domain.errors import Category, Refused
from domain.fields import describe_errors
from domain.kinds import Kind, Verb
from domain.model import Request
from domain.paths import TREES, check_path, expand, kind_of
from domain.wire import companion, object_of

__all__ = ["KINDS", "Kind", "Verb", "busy", "kind", "kind_at", "owner_of", "parse_spec", "takes_over"]

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        *mci.KINDS,
        *edge.KINDS,
        *machines.KINDS,
        *leases.KINDS,
        *systems.KINDS,
    )
}


def kind(name: str) -> Kind:
    """The kind of that name; Refused, naming the known kinds, if there is none."""
    if name not in KINDS:
        raise Refused(Category.INVALID, f"unknown kind {name[:40]!r}", f"kinds are: {', '.join(KINDS)}")
    return KINDS[name]


@cache
def reaches_others(name: str) -> bool:
    """Can an action on this kind move objects below it that are not its targets? A group's members are targets."""
    above = {word for other in KINDS.values() for word in other.scope[:-1]}.union(TREES.values())
    return KINDS[name].member is None and name in above


def kind_at(path: str) -> Kind:
    """The kind of the object at a path; Refused if the path does not have that kind's scope."""
    own = kind(kind_of(check_path(path)))
    expand(path, own.scope)
    return own


@cache
def is_target(name: str) -> bool:
    """Is this kind a member of a group, so that its objects land one by one? Other objects end with their action."""
    return any(other.member == name for other in KINDS.values())


@cache
def meets_hidden(name: str) -> bool:
    """Can an object of this kind meet a hidden action, on itself or on a relative?"""
    root = KINDS[name].scope[0]
    return any(other.table.hidden_actions for other in KINDS.values() if other.scope[0] == root)


def busy(workflow_id: str) -> str:
    """The source system's words for an object in transition, as the beginning of a hint."""
    words = kind_at(object_of(workflow_id)).busy
    return f"{words}; " if words else ""


def owner_of(path: str, action: str) -> str:
    """The workflow ID of an action: the object's path, or a companion ID for a hidden action, which excludes nobody."""
    return companion(path, action) if action in kind_at(path).table.hidden_actions else path


def takes_over(request: Request) -> bool:
    """May this request end the actions on its object and below? With force, or if its verb preempts.

    Not for a creation, as force never makes it act on an existing object. Nor for a hidden action.
    """
    own = kind_at(request.path)
    verb = own.verb(request.action)
    harmless = own.table.creates(request.action) or request.action in own.table.hidden_actions
    return (request.force or verb.preempts) and not harmless


def parse_spec(request: Request) -> BaseModel | None:
    """Parse the request's spec with the model of its action; Refused if it is not valid."""
    own = kind_at(request.path)
    verb = own.verb(request.action)
    if verb.spec is None:
        if request.spec:
            raise Refused(Category.INVALID, f"{request.action} takes no spec")
        return None
    try:
        return verb.spec.model_validate(request.spec or {})
    except ValidationError as error:
        hint = f"see what it takes: starter {own.name} {verb.action} --help"
        raise Refused(Category.INVALID, f"the spec is not valid: {describe_errors(error)}", hint) from error
