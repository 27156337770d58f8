"""The policy file: read once, when a worker starts. A file that is wrong in any way stops the worker from starting."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import ValidationError

from domain.errors import Category, Refused, brief
from domain.policy import Policy
from domain.registry import explain


def load(name: str) -> Policy:
    """The policy in a file, or Refused saying what is wrong with it."""
    try:
        return Policy.model_validate(yaml.safe_load(Path(name).read_text()) or {})
    except OSError as error:
        raise _wrong(name, f"cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _wrong(name, f"is not YAML: {brief(error, 200)}") from error
    except ValidationError as error:
        raise _wrong(name, f"is not valid: {explain(error)}") from error


def _wrong(name: str, why: str) -> Refused:
    hint = "mend RATCHET_POLICY_FILE; there is an example in examples/policy.yaml"
    return Refused(Category.INVALID, f"the policy file {name} {why}", hint)
