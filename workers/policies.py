"""Reads the policy file when a worker starts. A wrong file keeps the worker from starting."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from client.documents import Unreadable, read
from domain.errors import Category, Refused
from domain.fields import describe_errors
from domain.policy import AccessPolicy


def load(name: str) -> AccessPolicy:
    """Loads a policy file; refuses a malformed one."""
    try:
        return AccessPolicy.model_validate(read(Path(name)) or {})
    except Unreadable as error:
        raise _wrong(name, str(error)) from error
    except ValidationError as error:
        raise _wrong(name, f"is not valid: {describe_errors(error)}") from error


def _wrong(name: str, why: str) -> Refused:
    hint = "correct RATCHET_POLICY_FILE; there is an example in examples/policy.yaml"
    return Refused(Category.INVALID, f"the policy file {name} {why}", hint)
