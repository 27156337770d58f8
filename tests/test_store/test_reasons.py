"""The history says once how an action ended, and once why."""

from __future__ import annotations

import pytest

from domain.model import ActionResult
from store.finish import _ending_message


@pytest.mark.parametrize(
    ("result", "message", "told"),
    [
        (ActionResult.CANCELLED, "cancelled", "cancelled"),
        (ActionResult.CANCELLED, "cancelled; one is left", "cancelled; one is left"),
        (ActionResult.CANCELLED, "preempted by delete", "cancelled: preempted by delete"),
        (ActionResult.FAILED, "no room", "failed: no room"),
        (ActionResult.SUCCEEDED, "", "succeeded"),
    ],
)
def test_a_reason_says_how_it_ended_once(result: ActionResult, message: str, told: str) -> None:
    assert _ending_message(result, message) == told
