"""Volumes in the kernel's transactions: what begin refuses besides the state table."""

from __future__ import annotations

import sqlalchemy as sa
from domain.volumes.rules import refuse_to_shrink
from domain.volumes.specs import Resize
from pydantic import BaseModel

from domain.model import Claim
from domain.statetable import Row
from store.hooks import GrantExtras, Hooks, MaybeRow


def _admit(connection: sa.Connection, claim: Claim, spec: BaseModel | None, found: MaybeRow, row: Row) -> GrantExtras:
    if isinstance(spec, Resize) and found:
        refuse_to_shrink(claim.request.path, int(found.info["size"]), spec.size)
    return GrantExtras()


HOOKS = {"volume": Hooks(admit=_admit)}
