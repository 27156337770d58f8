"""Reads the policy file when a worker starts. A wrong file keeps the worker from starting."""

from __future__ import annotations

from pathlib import Path

from client.documents import UnreadableDocument, read_document
from domain.access import AccessPolicy
from domain.errors import Category, Refused
from domain.fields import refuse_invalid

HINT = "correct RATCHET_POLICY_FILE; there is an example in examples/policy.yaml"


def load_policy(name: str) -> AccessPolicy:
    """Loads an access policy file; refuses a malformed one."""
    try:
        with refuse_invalid(f"the policy file {name} is not valid", HINT):
            return AccessPolicy.model_validate(read_document(Path(name)) or {})
    except UnreadableDocument as error:
        raise Refused(Category.INVALID, f"the policy file {name} {error}", HINT) from error
