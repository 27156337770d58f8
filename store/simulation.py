"""Workers with RATCHET_SIMULATED=off refuse actions on what is simulated."""

from __future__ import annotations

import sqlalchemy as sa

from domain import registry
from domain.model import BeginRequest
from domain.simulated import simulated_provider_refusal
from store.hooks import MaybeObjectRow
from store.rows import find_object


def check_not_simulated(
    connection: sa.Connection, claim: BeginRequest, asked: registry.ResolvedRequest, row: MaybeObjectRow
) -> None:
    """Refuses an action on an object that exists, or would exist, only in a simulation."""
    kind = asked.kind
    path = kind.path_telling_simulation(claim.request.path)
    if path != claim.request.path:
        kind, row = registry.kind_at(path), find_object(connection, path)
        if row is None:  # refused for that reason
            return
    new_spec = asked.spec.model_dump() if asked.spec else {}
    own, placement, info = (row.spec, row.placement, row.info) if row else (new_spec, "", {})
    if kind.has_simulated_provider(own, placement, claim.real_backends, info):
        raise simulated_provider_refusal(f"the provider of {path}")
