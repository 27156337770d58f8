"""Small parts of workflows, without a server: the pace of a loop, what lists of runs show."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from domain.limits import SIGNALS_PER_TASK
from workflows import action, floods


async def test_a_loop_ends_its_task_after_every_so_many_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    rests = list[Any]()

    async def rest(*told: Any, **_: Any) -> None:
        rests.append(told)

    monkeypatch.setattr(floods, "workflow", SimpleNamespace(sleep=rest))
    pace = floods.TaskPace()
    for part in range(3):
        for _ in range(SIGNALS_PER_TASK):
            assert len(rests) == part
            await pace.take_one()
    assert len(rests) == 3


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_run_that_was_started_without_search_attributes_gets_all_of_them(
    monkeypatch: pytest.MonkeyPatch, is_listed: bool
) -> None:
    path, written = "ns:default:mci:web", list[Any]()
    pairs = [SearchAttributePair(SearchAttributeKey.for_keyword("ObjectPath"), path)] if is_listed else []
    info = SimpleNamespace(typed_search_attributes=TypedSearchAttributes(pairs))
    monkeypatch.setattr(action, "workflow", SimpleNamespace(info=lambda: info, upsert_search_attributes=written.extend))
    progress = SimpleNamespace(path=path, phase="Suspending", action="suspend")
    run: Any = SimpleNamespace(_progress=progress, _providers=["aws"])
    action.ActionWorkflow._write_search_attributes(run, 50)
    shown = {"Phase": "Suspending", "Progress": 50, "Providers": ["aws"]}
    started = {} if is_listed else {"ObjectPath": path, "ObjectKind": "mci", "Action": "suspend"}
    assert {update.key.name: update.value for update in written} == shown | started
