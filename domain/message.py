"""Bases of messages: what every message is, and what every one that comes from outside says about its sender."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

ShortText = Annotated[str, StringConstraints(max_length=500)]
ShortWord = Annotated[str, StringConstraints(max_length=100)]
MAX_PROOF = 2_000  # characters; a longer one is refused before it is parsed


class Model(BaseModel):
    """Base of every message: frozen, and refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SignedMessage(Model):
    """Base of every message from outside: who sends it, and the proof of that (`domain/proofs.py`)."""

    requested_by: ShortWord = ""
    proof: Annotated[str, StringConstraints(max_length=MAX_PROOF)] = ""

    @property
    def judged_path(self) -> str:
        """The path that the authorizer is asked about; empty: everything."""
        return str(getattr(self, "path", ""))

    def judged_verb(self, verb: str) -> str:
        """The verb that the authorizer is asked for, where the activity or message says `verb`."""
        return verb
