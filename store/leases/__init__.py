"""The family's part of the store: its tables, and what rides along in the kernel's transactions."""

from __future__ import annotations

from store.leases import hosts, riding
from store.leases.reading import LeaseReads
from store.leases.schedule import SqlLeases
from store.riders import RIDERS, Rider

__all__ = ["LeaseReads", "SqlLeases"]

RIDERS["lease"] = Rider(admit=riding.admit, ended=riding.ended)
RIDERS["event"] = Rider(admit=riding.admit_event, ended=riding.ended_event)
RIDERS["host"] = Rider(admit=hosts.admit, ended=hosts.ended)
