"""Lists the CRM connections that are open on record, so that the links of their cloudlets can be started."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import sqlalchemy as sa

from domain.edge.messages import CrmAddress
from domain.edge.tables import CLOUDLET
from store.edge.hooks import address_of
from store.engine import Database
from store.rows import read_all
from store.schema import ObjectRow, objects

PAGE = 500
_CLOUDLETS = (
    sa.select(objects)
    .where(objects.c.kind == CLOUDLET.kind, objects.c.path > sa.bindparam("after"))
    .order_by(objects.c.path)
    .limit(PAGE)
)


async def connections(database: Database) -> AsyncIterator[list[CrmAddress]]:
    """Yields the open CRM connections of each cloudlet that has any."""
    page, after = await database.run(partial(_page, after="")), ""
    while page:
        for addresses in page.values():
            if addresses:
                yield addresses
        after = list(page)[-1]
        page = await database.run(partial(_page, after=after)) if len(page) == PAGE else {}


def _page(connection: sa.Connection, after: str) -> dict[str, list[CrmAddress]]:
    rows = read_all(ObjectRow, connection.execute(_CLOUDLETS, {"after": after}))
    return {row.path: [each for role in ("crm", "next") if (each := address_of(row, role))] for row in rows}
