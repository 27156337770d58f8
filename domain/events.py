"""History lines as a stream of events, and the position of a reader in it."""

from __future__ import annotations

import re
from typing import NamedTuple

from domain.errors import Category, Refused
from domain.model import FrozenModel, HistoryLine, SignedMessage

READ_EVENTS = "read_events"
READ_NEWEST_EVENT = "read_newest_position"

_CURSOR_PATTERN = re.compile(r"(\d{1,19})\.(\d{1,19})", re.ASCII)
_LARGEST_NUMBER = 2**63 - 1


class EventCursor(NamedTuple):
    """The position of a line: its transaction, then its number. As text it is the event's ID."""

    xid: int
    seq: int

    def __str__(self) -> str:
        return f"{self.xid}.{self.seq}"


FIRST_CURSOR = EventCursor(0, 0)


def parse_cursor(text: str) -> EventCursor:
    """Parse an event's ID; `0` is the position before the first event."""
    if text == "0":
        return FIRST_CURSOR
    if not (found := _CURSOR_PATTERN.fullmatch(text)) or max(map(int, found.groups())) > _LARGEST_NUMBER:
        raise Refused(Category.INVALID, f"{text[:50]!r} is no event ID", "pass the ID of an event, or 0 for all events")
    return EventCursor(*map(int, found.groups()))


class Event(FrozenModel):
    """One history line, and its position."""

    id: str
    line: HistoryLine


class EventQuery(SignedMessage):
    """The events after a position, at most `limit`."""

    after: str = "0"
    limit: int = 500


class EventPage(FrozenModel):
    """The next events, and the position after them."""

    events: list[Event] = []
    cursor: str
