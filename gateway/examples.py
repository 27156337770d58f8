"""An example body for each action, from the example of its spec; a test checks each against its model."""

from __future__ import annotations

from typing import Any

from domain.kinds import Kind, Verb


def example_body(kind: Kind, verb: Verb) -> dict[str, Any]:
    """An example body for an action of a kind."""
    spec = verb.spec.example if verb.spec else {}
    return {**({"spec": spec} if spec else {}), "reason": f"{verb.action} of the {kind.name} as planned"}
