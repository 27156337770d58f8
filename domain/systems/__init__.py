"""The system family: trees of services, changed by deploys and teardowns under locks on their paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from domain.kinds import Kind, Verb, orphan_verb
from domain.model import FrozenModel
from domain.systems.ports import CREATE_SYSTEM, DELETE_SYSTEM, DEPLOY_PART, TEAR_DOWN_SYSTEM
from domain.systems.specs import DeploySpec, SystemSpec
from domain.systems.tables import DEPLOY, PART, SYSTEM, TEARDOWN, derive_status
from domain.wire import SIMULATED


class TearDownSpec(FrozenModel):
    """The spec of `system teardown` and `system delete`."""

    deadline: float = Field(600.0, gt=0, le=86_400, description="Seconds until every service must be gone.")


def is_simulated_backend(spec: Mapping[str, Any], _placement: str, _info: Mapping[str, Any]) -> bool:
    """Tells whether a system's backend is `simulated`, the default."""
    return str(spec.get("backend", SIMULATED)) == SIMULATED


_DEPLOY_VERB = Verb(
    "deploy", DEPLOY_PART, "Replace the definition at a path and roll it out.", DeploySpec, has_own_name=True
)

KINDS: tuple[Kind, ...] = (
    Kind(
        table=SYSTEM,
        is_simulated=is_simulated_backend,
        scope=("system",),
        verbs=(
            Verb("create", CREATE_SYSTEM, "Create a system, with no services yet.", SystemSpec),
            _DEPLOY_VERB,
            Verb(
                "teardown",
                TEAR_DOWN_SYSTEM,
                "Stop and remove every service; the system stays.",
                TearDownSpec,
                has_own_name=True,
            ),
            Verb(
                "delete",
                DELETE_SYSTEM,
                "Tear the system down and forget it, whatever runs.",
                TearDownSpec,
                preempts=True,
            ),
        ),
        help="Trees of services, deployed part by part.",
        aggregate=derive_status,
        counted_kind="part",
    ),
    Kind(
        table=PART,
        as_simulated_as=SYSTEM.kind,
        scope=("system", "part"),
        verbs=(_DEPLOY_VERB, orphan_verb("Remove at its backend a service that no record knows.")),
        help="Parts of systems: services, and systems inside a system.",
        aggregate=derive_status,
        counted_kind="part",
    ),
    Kind(table=DEPLOY, scope=("system", "deploy"), verbs=(), help="Records of deploys."),
    Kind(table=TEARDOWN, scope=("system", "teardown"), verbs=(), help="Records of teardowns."),
)
