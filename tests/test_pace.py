"""A loop handles only so many messages in one workflow task."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from domain.limits import SIGNALS_PER_TASK
from workflows import floods


async def test_a_loop_rests_after_so_many_messages_of_one_task_and_begins_anew_in_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    info, rests = SimpleNamespace(length=5), list[Any]()

    async def rest(*told: Any, **_: Any) -> None:
        rests.append(told)

    task = SimpleNamespace(get_current_history_length=lambda: info.length)
    fake = SimpleNamespace(info=lambda: task, patched=lambda _name: True, sleep=rest)
    monkeypatch.setattr(floods, "workflow", fake)
    pace = floods.TaskPace()
    for info.length in (5, 9):
        for _ in range(SIGNALS_PER_TASK):
            await pace.take_one()
        assert rests == []
    await pace.take_one()
    assert len(rests) == 1
