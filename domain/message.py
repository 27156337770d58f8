"""Bases of messages: what every message is, and what every one that comes from outside says about its sender."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, StringConstraints

ShortText = Annotated[str, StringConstraints(max_length=500)]
ShortWord = Annotated[str, StringConstraints(max_length=100)]
SenderName = Annotated[str, StringConstraints(max_length=200)]  # a person's, a program's, or an object's path
CHILD_PROOF = "child:"  # how the proof of what a workflow of ours asks of its child begins
MAX_PROOF = 4_000  # characters, with a session's certificate; a longer one is refused before it is parsed


def hash_value(value: Any) -> str:
    """Returns a hash of JSON data, whatever the order of its keys; no data equals an empty one."""
    return hashlib.sha256(json.dumps(value or {}, sort_keys=True, default=str).encode()).hexdigest()


class FrozenModel(BaseModel):
    """Base of every message: frozen, and refuses unknown fields."""

    # A model is built when it is first used: a command uses a few of those that it loads.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    example: ClassVar[Mapping[str, Any]] = {}  # of a spec: what the HTTP API's page shows


def build_messages(base: type[BaseModel] = FrozenModel) -> None:
    """Builds all messages now, and those that are loaded later at once: what serves others does not wait in a request.

    Of a type that may be built later, pydantic's adapters build anew at each use.
    """
    base.model_rebuild()
    base.model_config["defer_build"] = False
    for message in base.__subclasses__():
        build_messages(message)


class SignedMessage(FrozenModel):
    """Base of every message from outside: who sends it, and the proof of that (`domain/proofs.py`)."""

    requested_by: SenderName = ""
    proof: Annotated[str, StringConstraints(max_length=MAX_PROOF)] = ""

    unsigned: ClassVar[frozenset[str]] = frozenset()  # fields that our workflows fill in
    hashed: ClassVar[frozenset[str]] = frozenset()  # fields that the proof covers by their hash

    def signed_content(self) -> dict[str, Any]:
        """Returns what the proof covers besides the sender, without defaults: a new field changes no old proof."""
        apart = {"requested_by", "proof", *self.unsigned, *self.hashed}
        content = self.model_dump(mode="json", exclude_defaults=True, exclude=apart)
        return content | {name: hash_value(getattr(self, name)) for name in self.hashed}

    @property
    def path_to_authorize(self) -> str:
        """Returns the path that the authorizer is asked about; empty: everything."""
        return str(getattr(self, "path", ""))

    @property
    def audit_path(self) -> str:
        """Returns where the audit trail keeps what is no object's; empty: with the installation."""
        return ""

    def verb_to_authorize(self, verb: str) -> str:
        """Returns the verb that the authorizer is asked for, where the activity or message says `verb`."""
        return verb
