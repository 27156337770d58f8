"""The calendar is drawn in round columns, in the local zone, and a host that is not UP is not drawn as free."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from domain.leases.messages import CalendarView, HostOccupancy, Occupancy
from starter.leases.calendar import draw_calendar

NOON = datetime(2026, 6, 1, 12, 7, 30, tzinfo=UTC)


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def calendar(length: timedelta, **statuses: str) -> CalendarView:
    booked = Occupancy(lease="project:p1:lease:a", start=NOON, end=NOON + length / 2, units=1, whole=True)
    hosts = [
        HostOccupancy(host=host, status=status, stretches=[booked] if host == "h1" else [])
        for host, status in statuses.items()
    ]
    return CalendarView(pool="main", start=NOON, end=NOON + length, hosts=hosts)


@pytest.mark.parametrize(
    ("length", "step"),
    [
        (timedelta(minutes=1), "1 s"),
        (timedelta(hours=1), "1 min"),
        (timedelta(hours=8), "10 min"),
        (timedelta(days=1), "30 min"),
        (timedelta(days=7), "2 h"),
        (timedelta(days=30), "12 h"),
        (timedelta(days=366), "7 d"),
        (timedelta(days=36_600), "448 d"),
    ],
)
def test_a_column_is_a_round_length(length: timedelta, step: str) -> None:
    head, ruler, line, *_ = draw_calendar(calendar(length, h1="UP"), 100)
    assert f"a column is {step}," in head
    assert max(len(ruler), len(line)) <= 110


@pytest.mark.usefixtures("in_berlin")
def test_columns_begin_at_full_hours_of_the_local_zone() -> None:
    head, ruler, *_ = draw_calendar(calendar(timedelta(days=7), h1="UP"), 100)
    assert "from 2026-06-01 14:00" in head  # 14:07 there
    assert "times are CEST" in head
    assert "|06-01 14:00" in ruler


def test_a_host_that_is_not_up_is_marked_and_not_drawn_as_free() -> None:
    lines = draw_calendar(calendar(timedelta(days=1), h1="DOWN", h2="UP"), 100)
    down, up = lines[2].split()[2], lines[3].split()[2]
    assert set(down) == {"A", "x"}
    assert set(up) == {"."}
    assert "x the host is not UP" in lines[-1]
    assert "x " not in draw_calendar(calendar(timedelta(days=1), h1="UP"), 100)[-1]
