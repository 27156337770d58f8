"""The registry of kinds, family by family. The CLI is generated from it.

A family is imported when one of its kinds is first looked for: a command needs one family, a worker all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec

from pydantic import BaseModel

from domain import exposure
from domain.errors import Category, Refused
from domain.kinds import InternalProgram
from domain.kinds import Kind as Kind
from domain.kinds import Verb as Verb
from domain.message import build_messages
from domain.model import Request
from domain.paths import PART_KIND_OF_TREE, REMEMBERED_PATHS, check_path, expand_path, kind_of, root_of
from domain.wire import companion_id, object_path_of

_NAMES = (
    "mci",
    "edge",
    "machines",
    "leases",
    "systems",
)
INSTALLATION = "installation"  # the tenant of what serves everybody; no path of an object


class _Families(Mapping[str, tuple[Kind, ...]]):
    """The kinds of each family."""

    def __init__(self) -> None:
        self._loaded: dict[str, tuple[Kind, ...]] = {}

    def __getitem__(self, family: str) -> tuple[Kind, ...]:
        if family not in self._loaded and family in _NAMES:
            self._loaded[family] = import_module(f"domain.{family}").KINDS
        return self._loaded[family]

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)


class _Kinds(Mapping[str, Kind]):
    """The kinds by name. Families are loaded in their order, until one has the kind."""

    def __init__(self) -> None:
        self._loaded: dict[str, Kind] = {}

    def __getitem__(self, name: str) -> Kind:
        if name not in self._loaded:
            for kinds in FAMILIES.values():
                self._loaded.update({kind.name: kind for kind in kinds})
                if name in self._loaded:
                    break
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return (kind.name for kinds in FAMILIES.values() for kind in kinds)

    def __len__(self) -> int:
        return sum(map(len, FAMILIES.values()))


FAMILIES = _Families()
KINDS = _Kinds()


@cache
def _collect_exposures() -> tuple[exposure.Exposures, exposure.Exposures]:
    """Returns what may be called from outside: activities, and messages."""
    activities, messages = dict(exposure.KERNEL_ACTIVITIES), dict(exposure.KERNEL_MESSAGES)
    for family in _NAMES:
        if find_spec(name := f"domain.{family}.exposure"):  # a family without calls of its own has none
            own = import_module(name)
            activities |= own.ACTIVITIES
            messages |= own.MESSAGES
    return activities, messages


def activity_exposures() -> exposure.Exposures:
    """Returns which activities may be called from outside, by name."""
    return _collect_exposures()[0]


def message_exposures() -> exposure.Exposures:
    """Returns which messages may come from outside, by name."""
    return _collect_exposures()[1]


def other_verbs() -> set[str]:
    """Returns what policies can allow besides actions, such as `read` and `cancel`."""
    rows = (*activity_exposures().values(), *message_exposures().values())
    return {row.verb for row in rows} - {"", exposure.OWN_ACTION}


def load_families() -> None:
    """Imports every family and builds its messages now: workers do so before they run workflows, whose sandbox would
    import a family again.
    """
    list(KINDS)
    _collect_exposures()
    build_messages()


def find_kind(name: str) -> Kind:
    """Returns the kind of that name; refuses an unknown name, and lists the known kinds."""
    if name not in KINDS:
        raise Refused(Category.INVALID, f"unknown kind {name[:40]!r}", f"kinds are: {', '.join(KINDS)}")
    return KINDS[name]


@cache
def can_move_descendants(name: str) -> bool:
    """Tells whether actions on this kind can move objects below it other than its targets, which are group members.

    A kind without a stable status, such as an orphan, is stored only during its own action: nobody else moves it.
    """
    lasting = [other for other in KINDS.values() if other.table.stable_statuses]
    above = {word for other in lasting for word in other.scope[:-1]}.union(PART_KIND_OF_TREE.values())
    return KINDS[name].member is None and name in above


def is_object_path(path: str) -> bool:
    """Tells whether a text is the path of an object of ours, which may or may not exist."""
    try:
        kind_at(path)
    except Refused:
        return False
    return True


def workflow_types() -> list[str]:
    """Returns the workflow types of all actions."""
    return sorted({verb.workflow for kind in KINDS.values() for verb in kind.verbs})


@lru_cache(REMEMBERED_PATHS)
def kind_at(path: str) -> Kind:
    """Returns the kind of the object at a path; refuses a path that does not have that kind's scope."""
    own = find_kind(kind_of(check_path(path)))
    expand_path(path, own.scope)
    return own


def tenant_of(path: str) -> str:
    """Returns the tenant that an object belongs to: the root of its path, such as `ns:default` or `org:acme`.

    What serves everybody (nodes, images, hosts) belongs to the installation itself.
    """
    kind = KINDS.get(kind_of(path))
    return INSTALLATION if kind and kind.serves_all else root_of(path)


@cache
def is_member_kind(name: str) -> bool:
    """Tells whether this kind is a member of a group, whose objects land one by one; others end with their action."""
    return any(other.member == name for other in KINDS.values())


@cache
def may_sweep_leftovers(name: str) -> bool:
    """Tells whether self-healing may remove what creations of this kind left at the provider without a record."""
    own = KINDS[name]
    return (
        bool(own.table.orphan_removal_action)
        and InternalProgram.SELF_HEALING in own.find_verb(own.table.orphan_removal_action).programs
    )


@cache
def kind_can_meet_hidden_action(name: str) -> bool:
    """Tells whether an object of this kind can meet a hidden action, on itself or on a relative."""
    root = KINDS[name].scope[0]
    return any(other.table.hidden_actions for other in KINDS.values() if other.scope[0] == root)


def busy_hint(workflow_id: str) -> str:
    """Returns the source system's words for an object in transition, as the beginning of a hint."""
    words = kind_at(object_path_of(workflow_id)).busy_hint
    return f"{words}; " if words else ""


def workflow_id_of(path: str, action: str) -> str:
    """Returns the workflow ID of an action: the object's path, or a companion's ID for a hidden action."""
    return companion_id(path, action) if action in kind_at(path).table.hidden_actions else path


def verb_of(request: Request) -> Verb:
    """Returns the verb that a request asks for; Refused if the kind of its object has none of that name."""
    return kind_at(request.path).find_verb(request.action)


def may_preempt(request: Request) -> bool:
    """Tells whether this request may end the actions on its object and below."""
    return kind_at(request.path).may_preempt(request.action, request.force)


def parse_spec(request: Request) -> BaseModel | None:
    """Parses the request's spec with the model of its action; refuses an invalid one."""
    return kind_at(request.path).parse_spec(request.action, request.spec)


@dataclass(frozen=True)
class ResolvedRequest:
    """A request, and what its path and its action stand for."""

    request: Request
    kind: Kind
    member_kind: Kind | None  # of its members, if it is a group
    verb: Verb
    program: str  # of ours, that asks for its own work; empty: somebody else asks
    spec: BaseModel | None  # parsed
    is_hidden: bool
    workflow_id: str
    tenant: str


def resolve_request(request: Request) -> ResolvedRequest:
    """Looks up once what a request is about; refuses an unknown kind or action, and an invalid spec."""
    kind = kind_at(request.path)
    verb, is_hidden = kind.find_verb(request.action), request.action in kind.table.hidden_actions
    return ResolvedRequest(
        request=request,
        kind=kind,
        member_kind=KINDS[kind.member] if kind.member else None,
        verb=verb,
        program=verb.find_program(request.requested_by, request.force),
        spec=kind.parse_spec(request.action, request.spec),
        is_hidden=is_hidden,
        workflow_id=companion_id(request.path, request.action) if is_hidden else request.path,
        tenant=INSTALLATION if kind.serves_all else root_of(request.path),
    )


def find_requesting_program(request: Request) -> str:
    """Returns which of our programs requests its own work; empty if somebody else requests it."""
    return verb_of(request).find_program(request.requested_by, request.force)
