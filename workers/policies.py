"""Reads the policy file when a worker starts. A wrong file keeps the worker from starting."""

from __future__ import annotations

from pathlib import Path

from client.documents import Unreadable, read
from domain.errors import Category, Refused
from domain.fields import refuse_invalid
from domain.policy import AccessPolicy

HINT = "correct RATCHET_POLICY_FILE; there is an example in examples/policy.yaml"


def load(name: str) -> AccessPolicy:
    """Loads a policy file; refuses a malformed one."""
    try:
        with refuse_invalid(f"the policy file {name} is not valid", HINT):
            return AccessPolicy.model_validate(read(Path(name)) or {})
    except Unreadable as error:
        raise Refused(Category.INVALID, f"the policy file {name} {error}", HINT) from error
