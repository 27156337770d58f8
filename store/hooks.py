"""Hooks: functions of a family that the kernel calls inside its own transactions.

A hook reads and writes in the caller's transaction and never commits. It collects facts; pure functions in `domain/`
decide what is legal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from pydantic import BaseModel

from domain.dryrun import PlannedChange
from domain.model import BeginRequest, Grant, Move, NewObject, Outcome, Request, Step
from domain.statetable import Row
from store.schema import ObjectRow

MaybeObjectRow = ObjectRow | None


@dataclass(frozen=True)
class GrantExtras:
    """What an `admit` hook adds to a grant: new objects, details for the workflow, info and spec to store."""

    new_objects: Sequence[NewObject] = ()
    details: BaseModel | None = None
    info: dict[str, Any] | None = None  # merged
    spec: dict[str, Any] | None = None  # replaces
    placement: str = ""  # of a new object
    new_places: Sequence[str] = ()  # in clouds, where the action brings something in; its tenant must be allowed each
    planned_vms: int = 0  # that the action will add after it has begun; its tenant's quota counts them at once
    moves: Sequence[Move] = ()  # moves of parts in the same transaction; each needs a row


class AdmissionFacts(NamedTuple):
    """What an `admit` hook decides by: the request and its parsed spec, the object, and the row that allows it."""

    claim: BeginRequest
    spec: BaseModel | None
    object_row: MaybeObjectRow
    row: Row


# Decides whether an action may begin, and adds to its grant; or raises Refused.
AdmitHook = Callable[[sa.Connection, AdmissionFacts], GrantExtras]


# In a dry run, writes what the action writes next. Returns what the actions do that it requests of other objects.
RehearseHook = Callable[[sa.Connection, BeginRequest, Grant], Sequence[PlannedChange]]


@dataclass(frozen=True)
class Hooks:
    """One kind's hooks: `extra_locks` and `admit` run inside begin, `on_finish` inside finish.

    `after_step` runs after each step, `before_removal` before rows are deleted, with the parameters of `land.IS_ALIKE`.
    """

    extra_locks: Callable[[sa.Connection, Request, MaybeObjectRow], Sequence[str]] | None = (
        None  # more paths to hold X on
    )
    admit: AdmitHook | None = None
    after_step: Callable[[sa.Connection, Step], None] | None = None  # raises Refused: the step is taken back
    on_finish: Callable[[sa.Connection, Grant, Outcome, datetime], None] | None = None
    rehearse: RehearseHook | None = None
    before_removal: Callable[[sa.Connection, Mapping[str, Any], datetime], None] | None = None


HooksByKind = Mapping[str, Hooks]  # of all families; a kind without hooks is absent
NO_HOOKS = Hooks()
