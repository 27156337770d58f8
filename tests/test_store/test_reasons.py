"""The history says once how an action ended, and once why."""

from __future__ import annotations

import pytest

from domain.model import Result
from store.finish import _reason


@pytest.mark.parametrize(
    ("result", "message", "told"),
    [
        (Result.CANCELLED, "cancelled", "cancelled"),
        (Result.CANCELLED, "cancelled; one is left", "cancelled; one is left"),
        (Result.CANCELLED, "preempted by delete", "cancelled: preempted by delete"),
        (Result.FAILED, "no room", "failed: no room"),
        (Result.SUCCEEDED, "", "succeeded"),
    ],
)
def test_a_reason_says_how_it_ended_once(result: Result, message: str, told: str) -> None:
    assert _reason(result, message) == told
