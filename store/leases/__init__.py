"""The leases family's tables, hooks and queries."""

from __future__ import annotations

from store.leases.queries import LeaseReads
from store.leases.schedule import SqlLeases

__all__ = ["LeaseReads", "SqlLeases"]
