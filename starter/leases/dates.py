"""Dates of leases in this machine's time zone: read from what the user writes, and shown with their offset."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from domain.leases.dates import attach_zone_to_text

DATE_FIELDS = ("start", "end", "before_end")


def attach_local_zone(text: str, what: str) -> str:
    """Returns a date as the user wrote it, with the local zone if it has none; what counts from now stays as it is."""
    return attach_zone_to_text(text, datetime.now(UTC), what, datetime.astimezone)


def add_zones_to_spec(spec: dict[str, Any]) -> dict[str, Any]:
    """Returns a lease's spec whose dates have zones: the worker may be in another one."""
    dates = {name: attach_local_zone(spec[name], name) for name in DATE_FIELDS if isinstance(spec.get(name), str)}
    return {**spec, **dates}


def format_local_date(at: datetime) -> str:
    """Formats a time in the local zone, with its offset."""
    return at.astimezone().isoformat(sep=" ", timespec="auto").replace("+00:00", "Z")
