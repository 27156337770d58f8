"""Functions of a family that the kernel calls inside its own transactions.

A hook reads and writes inside the transaction that it is called in, and never commits. Pure functions in `domain/`
decide what is legal; a hook only brings them the facts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from pydantic import BaseModel

from domain.model import Claim, Grant, Move, NewObject, Outcome, Request, Step
from domain.statetable import Row

MaybeRow = sa.RowMapping | None


@dataclass(frozen=True)
class GrantExtras:
    """What a family adds to a grant: objects to be born, facts for the workflow, what to keep with the object."""

    births: Sequence[NewObject] = ()
    details: dict[str, Any] = field(default_factory=dict)
    info: dict[str, Any] | None = None  # merged
    spec: dict[str, Any] | None = None  # replaces
    placement: str = ""  # of a new object
    moves: Sequence[Move] = ()  # parts that go along in the same transaction; each must be legal


@dataclass(frozen=True)
class Hooks:
    """Called inside begin (`locks`, then `admit`), after each step (`moved`), and inside finish (`ended`).

    `gone` is called before records go, with what names them in `landings.ALIKE`."""

    locks: Callable[[sa.Connection, Request, MaybeRow], Sequence[str]] | None = None  # more paths to hold X on
    admit: Callable[[sa.Connection, Claim, BaseModel | None, MaybeRow, Row], GrantExtras] | None = (
        None  # or raises Refused
    )
    moved: Callable[[sa.Connection, Step], None] | None = None  # raises Refused: the step is taken back
    ended: Callable[[sa.Connection, Grant, Outcome, datetime], None] | None = None
    gone: Callable[[sa.Connection, Mapping[str, Any], datetime], None] | None = None


HooksByKind = Mapping[str, Hooks]  # of all families; a kind may have none
NO_HOOKS = Hooks()
