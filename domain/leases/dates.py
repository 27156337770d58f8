"""Parses dates as people write them: `now`, `+2h`, ISO 8601, or `2026-12-01 09:00`, which is UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from domain.errors import Category, Refused

LATEST_DATE = datetime(2200, 1, 1, tzinfo=UTC)
_DURATION_PART = re.compile(r"(\d{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
DATE_FORMAT_HINT = "write now, +2h, +1d12h, 2026-12-01 09:00 (UTC) or 2026-12-01T09:00:00+01:00"


def parse_date(text: str, now: datetime, what: str = "date") -> datetime:
    """Parses a moment; `+2h` counts from now, to the second. Refuses what it cannot parse."""
    words, now = text.strip(), now.replace(microsecond=0)
    try:
        moment = (
            _parse_relative(words, now) if words.startswith("+") else now if words == "now" else _parse_absolute(words)
        )
    except (ValueError, OverflowError) as error:
        raise Refused(Category.INVALID, f"bad {what} {text[:60]!a}", DATE_FORMAT_HINT) from error
    if moment >= LATEST_DATE:
        raise Refused(
            Category.INVALID, f"{what} {format_date(moment)} is too far away: the limit is {format_date(LATEST_DATE)}"
        )
    return moment


def format_date(at: datetime) -> str:
    """Returns a moment as it is stored and shown: in UTC, without fractions if it has none."""
    return at.astimezone(UTC).isoformat(timespec="auto").replace("+00:00", "Z")


def parse_stored_date(text: str) -> datetime:
    """Parses a stored moment."""
    return datetime.fromisoformat(text)


def start_of_minute(at: datetime) -> datetime:
    """Returns the start of a moment's minute: people write no seconds, so a start in this minute is not in the past."""
    return at.replace(second=0, microsecond=0)


def _parse_relative(words: str, now: datetime) -> datetime:
    parts = _DURATION_PART.findall(words[1:])
    if not parts or "".join(number + unit for number, unit in parts) != words[1:]:
        raise ValueError(words)
    return now + sum((timedelta(**{_UNITS[unit]: int(number)}) for number, unit in parts), timedelta())


def _parse_absolute(words: str) -> datetime:
    moment = datetime.fromisoformat(words)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
