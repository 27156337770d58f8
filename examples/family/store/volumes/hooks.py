"""Volumes in the kernel's transactions: what begin refuses besides the state table."""

from __future__ import annotations

import sqlalchemy as sa
from pydantic import BaseModel

from domain.model import BeginRequest
from domain.statetable import Row
from domain.volumes.rules import refuse_to_shrink
from domain.volumes.specs import Resize
from store.hooks import GrantExtras, Hooks, MaybeObjectRow


def _admit(
    connection: sa.Connection, claim: BeginRequest, spec: BaseModel | None, object_row: MaybeObjectRow, row: Row
) -> GrantExtras:
    if isinstance(spec, Resize) and object_row:
        refuse_to_shrink(claim.request.path, int(object_row.info.get("size", 0)), spec.size)
    return GrantExtras()


HOOKS = {"volume": Hooks(admit=_admit)}
