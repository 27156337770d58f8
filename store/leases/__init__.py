"""The leases family's tables, hooks and queries."""

from __future__ import annotations

from store.leases.queries import SqlLeaseViews
from store.leases.schedule import SqlLeaseSchedule

__all__ = ["SqlLeaseSchedule", "SqlLeaseViews"]
