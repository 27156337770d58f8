"""The format of the log for people."""

from __future__ import annotations

import sys

from workers.logs import shorten_error


def test_a_failure_is_told_in_a_line() -> None:
    try:
        raise ValueError("no\nroom")
    except ValueError:
        given = {"event": "it failed ({'id': 3})", "exc_info": sys.exc_info(), "temporal_activity": {"id": 3}}
    assert shorten_error(None, "warning", given) == {"event": "it failed", "error": "ValueError: no room"}


def test_a_line_without_a_failure_stays() -> None:
    assert shorten_error(None, "warning", {"event": "slow", "path": "a:b"}) == {"event": "slow", "path": "a:b"}
