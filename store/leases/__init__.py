"""The family's part of the store: its tables, and what rides along in the kernel's transactions."""

from __future__ import annotations

from store.leases.queries import LeaseReads
from store.leases.schedule import SqlLeases

__all__ = ["LeaseReads", "SqlLeases"]
