"""What a kind of object is, and what can be asked of it. Each family lists its own kinds with these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from domain.errors import Category, Refused
from domain.model import NewObject
from domain.statetable import NONE, StateTable


class Program(StrEnum):
    """Programs of ours that ask for actions, and the names that they sign with. Objects sign with paths."""

    CLOCK = "clock"
    RECYCLE_BIN = "recycle bin"
    SELF_HEALING = "self-healing"


@dataclass(frozen=True)
class Verb:
    """One thing that can be asked of a kind: which workflow does it, with what parameters."""

    action: str
    workflow: str
    help: str
    spec: type[BaseModel] | None = None
    named: bool = False  # each of its actions has a name of its own, which the grant's details tell
    alone: bool = False  # it is about the object itself: which members go along, it decides later
    hidden: bool = False  # a program of ours asks for it when its time has come; not offered to people
    programs: tuple[str, ...] = ()  # programs of ours, and kinds of objects, that ask for it by a right of their own
    preempts: bool = False  # it takes over whatever runs on the object, and cancels what runs below, without force


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
    counts: str | None = None  # what the aggregate counts instead: objects of this kind, however deep below
    place: str = ""  # which part of its info says where it is, if it has no placement
    titled: bool = False  # its source system writes a TargetAction with a capital: `Create`
    absent: str = NONE  # its source system's word for an object that is not there
    apart: bool = False  # people reach it by a command that its family made for it: its noun is not shown
    busy: str = ""  # what the source system says, besides, of an object that is under way

    @property
    def name(self) -> str:
        return self.table.kind

    def shown(self, status: str) -> str:
        """A status as people read it: one that is gone has the source system's word for that."""
        return self.absent if status == NONE else status

    def target_action(self, action: str) -> str:
        """A TargetAction as the source system writes it."""
        return action.title() if self.titled else action

    @property
    def offered(self) -> tuple[str, ...]:
        """What people may be told to ask for: neither hidden work nor what only programs of ours ask for."""
        return tuple(verb.action for verb in self.verbs if not verb.hidden and verb.action not in self.table.hidden)

    def verb(self, action: str) -> Verb:
        """The verb for an action, or Refused naming those that there are."""
        for verb in self.verbs:
            if verb.action == action:
                return verb
        known = ", ".join(self.offered)
        raise Refused(
            Category.INVALID, f"unknown action {action[:40]!r} for {self.table.label}", f"actions are: {known}"
        )
