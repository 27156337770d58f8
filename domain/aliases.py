"""Aliases: the ids by which clients of the old systems know objects, which themselves have paths.

A kind says in `Kind.alias_forms` which dialects give it an id, and of which form. An id is given in the transaction in
which the object comes into being, and never to another object: not even to a later one at the same path.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from domain.message import FrozenModel, SignedMessage

READ_ALIASES = "read_aliases"
MAX_ALIASES = 5_000  # in one answer


class AliasForm(StrEnum):
    """What the ids of a dialect look like."""

    UUID = "uuid"  # an object whose own name is a UUID keeps it, unless the id was given before
    NUMBER = "number"


class Dialect(StrEnum):
    """The dialects of the gateway that give ids of their own."""

    BLAZAR = "blazar"
    G8 = "g8"


AliasForms = Mapping[Dialect, AliasForm]
BLAZAR_UUID: AliasForms = {Dialect.BLAZAR: AliasForm.UUID}
BLAZAR_NUMBER: AliasForms = {Dialect.BLAZAR: AliasForm.NUMBER}
G8_NUMBER: AliasForms = {Dialect.G8: AliasForm.NUMBER}


class Alias(FrozenModel):
    """An id of an object in a dialect. `generation` is the epoch of the object's creation."""

    dialect: Dialect
    id: str
    path: str
    generation: int


class AliasQuery(SignedMessage):
    """Asks for aliases by their ids, or by paths; a path has the alias of the last object that was there."""

    dialect: Dialect
    ids: Annotated[list[str], Field(max_length=MAX_ALIASES)] = []
    paths: Annotated[list[str], Field(max_length=MAX_ALIASES)] = []


class AliasesView(FrozenModel):
    """The aliases that exist of those that were asked for."""

    aliases: list[Alias]
