"""What a kind of object is, and which actions it offers. Each family lists its kinds with these classes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from domain.aliases import AliasForms
from domain.errors import Category, Refused
from domain.message import FrozenModel
from domain.orphans import OrphanSpec
from domain.paths import ancestor_paths, kind_of
from domain.statetable import NONE, StateTable
from domain.validation import refuse_validation_errors
from domain.wire import REMOVE_ORPHAN

AT_REST = "at rest"


class InternalProgram(StrEnum):
    """Our own programs that request actions, as `requested_by` names them; objects give their path."""

    CLOCK = "clock"
    RECYCLE_BIN = "recycle bin"
    SELF_HEALING = "self-healing"


SimulationCheck = Callable[[Mapping[str, Any], str, Mapping[str, Any]], bool]


@dataclass(frozen=True)
class Remedy:
    """What helps an object that no action helps: words and a command."""

    words: str
    command: str

    def __str__(self) -> str:
        return f"{self.words}: {self.command}"


FindRemedy = Callable[[str, str, Mapping[str, Any]], Remedy | None]
LaterActions = Callable[[str, Any], Iterable[tuple[str, str]]]  # (path, spec) -> actions, each with its path


@dataclass(frozen=True)
class Verb:
    """One action of a kind: the workflow that runs it, and the spec that it takes."""

    action: str
    workflow: str
    help: str
    spec: type[FrozenModel] | None = None
    has_own_name: bool = False  # each run of it has its own name, found in the grant's details
    takes_no_members: bool = False  # it begins on the object only; its workflow picks the members later
    is_internal: bool = False  # requested by our own programs, or by another command; not offered as a word of its own
    programs: tuple[str, ...] = ()  # programs, and kinds of objects, that may request it without a role
    on_behalf: bool = False  # programs may only on behalf of somebody who may
    needed_right: str = ""  # the action that this somebody must be allowed; empty: this one
    remakes: bool = False  # whoever requests it answers for the object from then on, as its creator did before
    leads_to: LaterActions | None = None  # what programs will do later because of it, on behalf of its requester
    preempts: bool = False  # it takes over from the action on the object and cancels those below, even without force

    def find_program(self, requested_by: str, force: bool) -> str:
        """Returns which of our programs requests it as its own work; empty if somebody else requests it.

        An object gives its path as its name; its kind is the program.
        """
        internal = requested_by if requested_by in {*InternalProgram} else ""
        name = requested_by.split(":")[-2] if ":" in requested_by else internal
        return name if name and not force and name in self.programs else ""


@dataclass(frozen=True)
class ObjectSignal:
    """A message that systems outside may send to an object: to its running action, or to a companion."""

    name: str
    message: type[BaseModel]
    help: str
    reaches_action: bool = True
    is_update: bool = False  # the action offers it as an update too, which answers whether it was taken
    companion: tuple[str, str] | None = None  # kind and role: the companion that gets what no action takes
    sender_field: str = ""  # the message's field that says who sent it


def orphan_verb(text: str, programs: tuple[str, ...] = (), workflow: str = REMOVE_ORPHAN) -> Verb:
    """The verb of the row that removes an orphan. `starter orphans remove` requests it, under its own name."""
    return Verb("discard", workflow, text, OrphanSpec, is_internal=True, programs=programs)


@dataclass(frozen=True)
class Kind:
    """One kind of object: its state table, where it stands on a path, and its actions."""

    table: StateTable
    scope: tuple[str, ...]  # the kinds on its path, itself last
    verbs: tuple[Verb, ...]
    help: str
    serves_all: bool = False  # belongs to the installation, not to a tenant: a node, an image, a host
    counts_as_vm: bool = False  # in its tenant's quota of VMs
    member: str | None = None  # the kind of its members, which its actions apply to
    places_of: Callable[[Any], Iterable[str]] | None = None  # (spec of its creation) -> the places in clouds it uses
    aggregate: Callable[[str, Mapping[str, int]], str] | None = None  # (status, members by status) -> the status shown
    derived_status: str = ""  # its own status which only means that the one shown is computed from its members
    counted_kind: str | None = None  # count objects of this kind at any depth, instead of members
    place_key: str = ""  # the key of `info` that says where it is, if it has no placement
    is_simulated: SimulationCheck | None = None  # (spec, placement, info) -> is its provider?
    as_simulated_as: str = ""  # the kind above it that says instead whether it is
    backend_role: str = ""  # with a real backend of this role in the connections file it is not
    title_case: bool = False  # its source system capitalizes a TargetAction: `Create`
    absent_word: str = NONE  # its source system's word for an object that does not exist
    has_own_command: bool = False  # its family has its own command for it: the kind's noun is not shown
    alias_forms: AliasForms = field(default_factory=dict)  # the ids that the gateway's dialects give it
    waiting_statuses: tuple[str, ...] = ()  # in which an action waits for a person's decision, for days if need be
    signals: tuple[ObjectSignal, ...] = ()  # what systems outside may send to it
    busy_hint: str = ""  # what the source system also says of an object in transition
    remedy: FindRemedy | None = None  # (path, status, spec) -> what helps before any action does

    @property
    def name(self) -> str:
        return self.table.kind

    def has_simulated_provider(
        self,
        spec: Mapping[str, Any],
        placement: str,
        real: Collection[str] = (),
        info: Mapping[str, Any] | None = None,
    ) -> bool:
        """Tells whether such an object exists only in a simulation. `real`: the roles of the worker's real backends."""
        if self.is_simulated is None or self.backend_role in real:
            return False
        return self.is_simulated(spec, placement, info or {})

    def path_telling_simulation(self, path: str) -> str:
        """Returns the path of the object that says whether the one at this path is simulated: itself, or one above."""
        return next((above for above in ancestor_paths(path) if kind_of(above) == self.as_simulated_as), path)

    def find_remedy(self, path: str, status: str, spec: Mapping[str, Any]) -> Remedy | None:
        """Returns what helps an object in this status before any action does; None if actions do."""
        return self.remedy(path, status, spec) if self.remedy else None

    def display_status(self, status: str) -> str:
        """Returns a status as people read it: a removed object has the source system's word for that."""
        return self.absent_word if status == NONE else status

    def display_own_status(self, status: str) -> str:
        """Returns a group's own status in a table of changes: `at rest` where its members' statuses say the rest."""
        return AT_REST if self.derived_status and status == self.derived_status else self.display_status(status)

    def format_target_action(self, action: str) -> str:
        """Returns a TargetAction as the source system spells it."""
        return action.title() if self.title_case else action

    @property
    def requestable_actions(self) -> tuple[str, ...]:
        """The actions that people may request: without hidden actions and those that only our programs request."""
        return tuple(
            verb.action for verb in self.verbs if not verb.is_internal and verb.action not in self.table.hidden_actions
        )

    def find_signal(self, name: str) -> ObjectSignal:
        """Returns the signal of that name; Refused, naming the known ones, if there is none."""
        for signal in self.signals:
            if signal.name == name:
                return signal
        known = ", ".join(signal.name for signal in self.signals)
        hint = f"signals are: {known}" if known else f"{self.table.label} takes no signals"
        raise Refused(Category.NOT_FOUND, f"unknown signal {name[:40]!r} for {self.table.label}", hint)

    def may_preempt(self, action: str, force: bool) -> bool:
        """Tells whether an action may end those on its object and below: with force, or if its verb preempts.

        Not a creation, as force never makes it act on an existing object. Nor a hidden action, nor the removal of an
        orphan: what a running action may own is no orphan.
        """
        verb, table = self.find_verb(action), self.table
        harmless = table.is_creation(action) or action in (*table.hidden_actions, table.orphan_removal_action)
        return (force or verb.preempts) and not harmless

    def parse_spec(self, action: str, spec: Mapping[str, Any] | None) -> BaseModel | None:
        """Parses the spec of a request with the model of its action; refuses an invalid one."""
        verb = self.find_verb(action)
        if verb.spec is None:
            if spec:
                hint = f"leave it out; see: starter {self.name} {action} --help"
                raise Refused(Category.INVALID, f"{action} takes no spec", hint)
            return None
        hint = f"see what it takes: starter {self.name} {action} --help, or starter schema {self.name} {action}"
        with refuse_validation_errors("the spec is not valid", hint, model=verb.spec):
            return verb.spec.model_validate(spec or {})

    def find_verb(self, action: str) -> Verb:
        """Returns the verb for an action; Refused, naming the known actions, if there is none."""
        for verb in self.verbs:
            if verb.action == action:
                return verb
        offered = ", ".join(self.requestable_actions)
        raise Refused(
            Category.INVALID, f"unknown action {action[:40]!r} for {self.table.label}", f"actions are: {offered}"
        )
