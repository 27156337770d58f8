"""Volumes in the kernel's transactions: what begin refuses besides the state table."""

from __future__ import annotations

import sqlalchemy as sa

from domain.volumes.rules import refuse_to_shrink
from domain.volumes.specs import Resize
from store.hooks import AdmissionFacts, GrantExtras, Hooks


def _admit(connection: sa.Connection, facts: AdmissionFacts) -> GrantExtras:
    if isinstance(facts.spec, Resize) and facts.object_row:
        refuse_to_shrink(facts.claim.request.path, int(facts.object_row.info.get("size", 0)), facts.spec.size)
    return GrantExtras()


HOOKS = {"volume": Hooks(admit=_admit)}
