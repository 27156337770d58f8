"""Parses dates as people write them: `now`, `+2h`, `in 2 hours`, `tomorrow 09:00`, ISO 8601, or `2026-12-01 09:00`.

A date without a zone is in the zone of whoever asks: the CLI attaches the local one, the worker takes it for UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta

from domain.errors import Category, Refused

LATEST_DATE = datetime(2200, 1, 1, tzinfo=UTC)
AttachZone = Callable[[datetime], datetime]  # makes a moment of a date and time without a zone
_DURATION_PART = re.compile(r"(\d{1,6})([smhdw])")
_SPOKEN_PART = re.compile(r"(\d{1,6}|an?) ?(second|minute|hour|day|week)s?")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
DATE_FORMAT_HINT = (
    "write now, +2h, in 2 hours, tomorrow 09:00, monday 17:30, 2026-12-01 09:00 or 2026-12-01T09:00:00+01:00"
)


def as_utc(moment: datetime) -> datetime:
    """Takes a date and time without a zone for UTC."""
    return moment.replace(tzinfo=UTC)


def parse_date(text: str, now: datetime, what: str = "date", attach_zone: AttachZone = as_utc) -> datetime:
    """Parses a moment; `+2h` and `in 2 hours` count from now, to the second. Refuses what it cannot parse."""
    words, now = " ".join(text.lower().split()), now.replace(microsecond=0)
    try:
        length = _parse_duration(words)
        moment = now + length if length is not None else _parse_absolute(words, now, attach_zone)
    except (ValueError, OverflowError) as error:
        raise Refused(Category.INVALID, f"bad {what} {text[:60]!a}", DATE_FORMAT_HINT) from error
    if moment >= LATEST_DATE:
        raise Refused(
            Category.INVALID,
            f"{what} {format_date(moment)} is too far away: the limit is {format_date(LATEST_DATE)}",
            "choose an earlier time",
        )
    return moment


def attach_zone_to_text(text: str, now: datetime, what: str, attach_zone: AttachZone) -> str:
    """Returns a date as text with its zone, for a worker elsewhere. What counts from now stays as it is."""
    words = " ".join(text.lower().split())
    if not words or words == "now" or words.startswith(("+", "in ")):
        return text
    return parse_date(text, now, what, attach_zone).isoformat()


def format_date(at: datetime) -> str:
    """Returns a moment as it is stored and shown: in UTC, without fractions if it has none."""
    return at.astimezone(UTC).isoformat(timespec="auto").replace("+00:00", "Z")


def start_of_minute(at: datetime) -> datetime:
    """Returns the start of a moment's minute: people write no seconds, so a start in this minute is not in the past."""
    return at.replace(second=0, microsecond=0)


def _parse_duration(words: str) -> timedelta | None:
    """Parses `now`, `+1d12h` or `in 1 day 12 hours`: how long from now. None if it is a date."""
    if words == "now":
        return timedelta()
    if words.startswith("+"):
        short = _DURATION_PART.findall(words[1:])
        if not short or "".join(number + unit for number, unit in short) != words[1:]:
            raise ValueError(words)
        return sum((timedelta(**{_UNITS[unit]: int(number)}) for number, unit in short), timedelta())
    if words.startswith("in "):
        rest = words[3:].replace(" and ", " ")
        spoken = _SPOKEN_PART.findall(rest)
        if not spoken or _SPOKEN_PART.sub("", rest).strip():
            raise ValueError(words)
        counted = [(1 if number.startswith("a") else int(number), unit) for number, unit in spoken]
        return sum((timedelta(**{f"{unit}s": number}) for number, unit in counted), timedelta())
    return None


def _parse_absolute(words: str, now: datetime, attach_zone: AttachZone) -> datetime:
    day, _, clock = words.partition(" ")
    today = now.astimezone(attach_zone(now.replace(tzinfo=None)).tzinfo).date()
    if _TIME.fullmatch(day) and not clock:
        day, clock = "today", day
    if day in ("today", "tomorrow"):
        date = today + timedelta(days=day == "tomorrow")
    elif day in _WEEKDAYS:
        date = today + timedelta(days=(_WEEKDAYS.index(day) - today.weekday() - 1) % 7 + 1)  # today's name: in a week
    else:
        moment = datetime.fromisoformat(words.upper())
        return attach_zone(moment).astimezone(UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return attach_zone(datetime.combine(date, _parse_time(clock.removeprefix("at ")))).astimezone(UTC)


def _parse_time(text: str) -> time:
    if not text:
        return time()
    if (found := _TIME.fullmatch(text)) is None:
        raise ValueError(text)
    return time(int(found[1]), int(found[2]), int(found[3] or 0))
