"""Lists the CRM connections that are open on record, so that the links of their cloudlets can be started."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import sqlalchemy as sa

from domain.edge.messages import CrmAddress
from domain.edge.tables import CLOUDLET
from store.edge.addresses import crm_address_of
from store.engine import Database
from store.schema import ObjectRow, objects

PAGE_SIZE = 500
_SELECT_CLOUDLETS = (
    sa.select(objects)
    .where(objects.c.kind == CLOUDLET.kind, objects.c.path > sa.bindparam("after"))
    .order_by(objects.c.path)
    .limit(PAGE_SIZE)
)


async def list_open_connections(database: Database) -> AsyncIterator[list[CrmAddress]]:
    """Yields the open CRM connections of each cloudlet that has any."""
    page, after = await database.run_transaction(partial(_read_page, after="")), ""
    while page:
        for addresses in page.values():
            if addresses:
                yield addresses
        after = list(page)[-1]
        page = await database.run_transaction(partial(_read_page, after=after)) if len(page) == PAGE_SIZE else {}


def _read_page(connection: sa.Connection, after: str) -> dict[str, list[CrmAddress]]:
    rows = [ObjectRow(*row) for row in connection.execute(_SELECT_CLOUDLETS, {"after": after})]
    return {row.path: [address for role in ("crm", "next") if (address := crm_address_of(row, role))] for row in rows}
