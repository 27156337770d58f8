"""Pure rules: dates, periods, specs, properties and room on hosts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from activities.leases.audit import DoubleBookingChecker
from domain.errors import Category, Refused
from domain.leases.capacity import Allocation, ResourceSize, count_fitting_instances, peak_usage
from domain.leases.dates import attach_zone_to_text, format_date, parse_date
from domain.leases.messages import HostBooking
from domain.leases.specs import (
    HostSpec,
    LeaseChange,
    LeaseLimits,
    LeaseSpec,
    LeaseTerm,
    ReservationSpec,
    term_after_change,
    term_of_new_lease,
)
from tests.cases import every_case

NOW = datetime(2026, 6, 1, 12, 0, 30, 123456, tzinfo=UTC)
LIMITS = LeaseLimits(longest=timedelta(days=30))


@every_case(
    ("text", "meant"),
    [
        ("now", "2026-06-01T12:00:30Z"),
        ("+2h", "2026-06-01T14:00:30Z"),
        ("+1d12h30m", "2026-06-03T00:30:30Z"),
        ("+90s", "2026-06-01T12:02:00Z"),
        ("+2w", "2026-06-15T12:00:30Z"),
        ("2026-12-01 09:00", "2026-12-01T09:00:00Z"),
        ("2026-12-01", "2026-12-01T00:00:00Z"),
        ("2026-12-01T09:00:00Z", "2026-12-01T09:00:00Z"),
        ("2026-12-01T09:00:00+02:00", "2026-12-01T07:00:00Z"),
        (" 2099-01-01 00:00 ", "2099-01-01T00:00:00Z"),
        ("2026-12-01t09:00:00z", "2026-12-01T09:00:00Z"),
        ("in 2 hours", "2026-06-01T14:00:30Z"),
        ("in an hour and 30 minutes", "2026-06-01T13:30:30Z"),
        ("in 1 day 12 hours", "2026-06-03T00:00:30Z"),
        ("Tomorrow 09:00", "2026-06-02T09:00:00Z"),
        ("tomorrow at 9:30", "2026-06-02T09:30:00Z"),
        ("today 17:00", "2026-06-01T17:00:00Z"),
        ("17:00:10", "2026-06-01T17:00:10Z"),
        ("tomorrow", "2026-06-02T00:00:00Z"),
        ("friday 08:00", "2026-06-05T08:00:00Z"),
        ("monday 08:00", "2026-06-08T08:00:00Z"),  # today is a Monday: the next one
    ],
)
def test_dates_are_read_as_people_write_them(text: str, meant: str) -> None:
    assert format_date(parse_date(text, NOW)) == meant


@every_case(
    ("text", "told"),
    [
        ("2026-12-01 09:00", "2026-12-01T08:00:00+00:00"),  # winter
        ("2026-06-02 09:00", "2026-06-02T07:00:00+00:00"),  # summer
        ("tomorrow 09:00", "2026-06-02T07:00:00+00:00"),
        ("2026-12-01T09:00:00Z", "2026-12-01T09:00:00+00:00"),  # it has a zone
        ("now", "now"),
        ("+2h", "+2h"),
        ("in 2 hours", "in 2 hours"),
        ("", ""),
    ],
)
def test_a_date_without_a_zone_gets_that_of_whoever_asks(text: str, told: str) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert attach_zone_to_text(text, NOW, "start", lambda moment: moment.replace(tzinfo=berlin)) == told


def test_tomorrow_is_the_day_after_today_where_the_user_is() -> None:
    late = datetime(2026, 6, 1, 23, 30, tzinfo=UTC)  # in Berlin it is the second of June already
    berlin = ZoneInfo("Europe/Berlin")
    found = parse_date("tomorrow 09:00", late, attach_zone=lambda moment: moment.replace(tzinfo=berlin))
    assert format_date(found) == "2026-06-03T07:00:00Z"


@every_case(
    "text",
    [
        "",
        "soon",
        "+",
        "+2",
        "+2y",
        "2h",
        "+-2h",
        "+1h 2m",
        "2026-13-01",
        "+999999w",
        "9999-01-01",
        "\x00",
        "+h2",
        "in",
        "in a while",
        "in 2 hours or so",
        "tomorrow 25:00",
        "tomorrow noon",
        "someday 09:00",
        "in 2 hours 09:00",
    ],
)
def test_what_nobody_can_read_is_refused_and_says_how_to_write_it(text: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_date(text, NOW, "start")
    assert refused.value.category is Category.INVALID
    assert "start" in refused.value.message


def _lease(**dates: Any) -> LeaseSpec:
    return LeaseSpec.model_validate({"hosts": 1, "end": "+2h", **dates})


def test_the_end_is_announced_an_hour_before_it_but_never_before_the_start() -> None:
    long, short = term_of_new_lease(_lease(end="+5h"), NOW, LIMITS), term_of_new_lease(_lease(end="+30m"), NOW, LIMITS)
    assert long.before_end == long.end - timedelta(hours=1)
    assert short.before_end == short.start


@every_case(
    ("dates", "reason"),
    [
        ({"start": "+2h", "end": "+1h"}, "ends before it starts"),
        ({"start": "+1h", "end": "+1h"}, "has no length"),
        ({"start": "2026-06-01 11:59"}, "is in the past: now is 2026-06-01T12:00:30"),
        ({"end": "+31d"}, "would last 31 days, 0:00:00: the limit is 30 days, 0:00:00"),
        ({"start": "+1h", "before_end": "+59m"}, "before_end 2026-06-01T12:59:30Z is outside the lease"),
        ({"before_end": "+3h"}, "which lasts from 2026-06-01T12:00:30Z to 2026-06-01T14:00:30Z"),
    ],
)
def test_dates_that_make_no_lease_are_refused_with_the_rule(dates: dict[str, str], reason: str) -> None:
    with pytest.raises(Refused) as refused:
        term_of_new_lease(_lease(**dates), NOW, LIMITS)
    assert reason in refused.value.message
    assert refused.value.category is Category.INVALID


def test_a_start_in_this_very_minute_is_not_in_the_past_for_people_write_no_seconds() -> None:
    assert format_date(term_of_new_lease(_lease(start="2026-06-01 12:00"), NOW, LIMITS).start) == "2026-06-01T12:00:00Z"


OLD = LeaseTerm(NOW + timedelta(hours=1), NOW + timedelta(hours=5), NOW + timedelta(hours=4))


def _changed(started: bool, **change: Any) -> LeaseTerm:
    return term_after_change(LeaseChange.model_validate(change), OLD, started, NOW, LIMITS)


def test_the_announcement_keeps_its_distance_when_the_end_moves() -> None:
    assert _changed(True, end="+9h").before_end == parse_date("+8h", NOW)
    assert _changed(False, end="+90m").before_end == max(OLD.start, parse_date("+30m", NOW))


@every_case(
    ("started", "change", "reason"),
    [
        (True, {"start": "+2h"}, "its start cannot change any more"),
        (False, {"start": "2020-01-01"}, "the start 2020-01-01T00:00:00Z is in the past"),
        (True, {"end": "2020-01-01"}, "the end 2020-01-01T00:00:00Z is in the past"),
        (False, {"end": "+1m"}, "ends before it starts"),
        (True, {"end": "+40d"}, "the limit is 30 days"),
        (True, {"before_end": "+6h"}, "is outside the lease"),
    ],
)
def test_changes_that_make_no_lease_are_refused(started: bool, change: dict[str, str], reason: str) -> None:
    with pytest.raises(Refused) as refused:
        _changed(started, **change)
    assert reason in refused.value.message


@every_case(
    ("spec", "reason"),
    [
        ({"end": "+1h"}, "say what to reserve"),
        ({"end": "+1h", "hosts": 1, "reservations": [{"resource_type": "physical:host"}]}, "say what to reserve"),
        ({"end": "+1h", "reservations": [{"resource_type": "floppy"}]}, "'physical:host', 'virtual:instance', 'mci'"),
        ({"end": "+1h", "reservations": [{"resource_type": "physical:host", "min": 3, "max": 2}]}, "less than min"),
        ({"end": "+1h", "reservations": [{"resource_type": "physical:host", "min": 0}]}, "greater than or equal to 1"),
        ({"hosts": 1}, "end"),
        ({"end": "+1h", "hosts": 1, "pool": "../x"}, "bad name"),
        ({"end": "+1h", "hosts": 1, "colour": "red"}, "Extra inputs"),
        ({"end": "+1h", "reservations": [{"resource_type": "mci", "mci": "ns:a:mci:b"}] * 2}, "one reservation only"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_before_anybody_is_asked(spec: Any, reason: str) -> None:
    with pytest.raises(ValidationError) as error:
        LeaseSpec.model_validate(spec)
    assert reason in str(error.value)


def test_hosts_is_short_for_one_reservation() -> None:
    (wanted,) = LeaseSpec.model_validate({"end": "+1h", "hosts": 3}).reservation_specs()
    assert wanted == TypeAdapter(ReservationSpec).validate_python({"resource_type": "physical:host", "min": 3})


def test_a_host_knows_its_labels_and_its_sizes() -> None:
    host = HostSpec.model_validate({"labels": "rack=7, gpu=a100", "vcpus": 32})
    assert host.all_properties() == {"rack": "7", "gpu": "a100", "vcpus": 32, "memory_mb": 65536, "disk_gb": 1000}
    with pytest.raises(ValidationError, match="write name=value"):
        HostSpec.model_validate({"labels": "rack"})


def _at(hour: float) -> datetime:
    return NOW + timedelta(hours=hour)


def test_what_ends_as_another_starts_does_not_overlap_it() -> None:
    small = ResourceSize(4, 10, 0)
    after_each_other = [Allocation(_at(0), _at(1), small), Allocation(_at(1), _at(2), small)]
    assert peak_usage(after_each_other) == small
    assert count_fitting_instances(ResourceSize(8, 100, 0), after_each_other, _at(0), _at(2), small) == 1
    assert count_fitting_instances(ResourceSize(8, 100, 0), after_each_other, _at(2), _at(3), small) == 2


def test_a_host_that_is_held_as_a_whole_has_no_room() -> None:
    taken = [Allocation(_at(0), _at(1), ResourceSize(0, 0, 0), whole=True)]
    assert count_fitting_instances(ResourceSize(8, 8, 8), taken, _at(0), _at(2), ResourceSize(1, 1, 1)) == 0
    assert count_fitting_instances(ResourceSize(8, 8, 8), taken, _at(1), _at(2), ResourceSize(1, 1, 1)) == 8


_STRETCHES = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 10), st.integers(1, 8)).map(
        lambda each: Allocation(_at(each[0]), _at(each[0] + each[1]), ResourceSize(each[2], each[2], each[2]))
    ),
    max_size=12,
)


@given(_STRETCHES)
def test_the_peak_is_the_highest_of_all_hours(taken: list[Allocation]) -> None:
    by_hour = [sum(one.size.vcpus for one in taken if one.starts <= _at(h) < one.ends) for h in range(32)]
    assert peak_usage(taken).vcpus == max(by_hour)


def test_a_host_is_booked_twice_also_by_one_that_lies_within_another() -> None:
    def booking(host: str, lease: str, start: int, end: int) -> HostBooking:
        began = datetime(2030, 1, 1, tzinfo=UTC)
        return HostBooking(0, host, lease, began + timedelta(hours=start), began + timedelta(hours=end))

    inside = [("a", 0, 10), ("b", 1, 2), ("c", 3, 4), ("d", 10, 11)]
    moved = [("a", 0, 5), ("a", 1, 6), ("b", 6, 7), ("a", 6, 8)]
    after = [("a", 0, 1), ("b", 1, 2), ("c", 2, 3)]
    hosts = (("x", inside), ("y", moved), ("z", after))
    booked = [booking(host, *each) for host, some in hosts for each in some]
    checker = DoubleBookingChecker()
    told = [finding for each in sorted(booked, key=lambda each: each.key) for finding in checker.check_booking(each)]
    assert [(finding.path, finding.what) for finding in told] == [
        ("x", "is booked twice: c and a"),
        ("x", "is booked twice: b and a"),
        ("y", "is booked twice: b and a"),
    ]
