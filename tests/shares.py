"""How the suite is shared out among processes: by files, and files that kill processes never at the same time."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

# What each of these starts takes the whole machine for a moment; together they would only wait for each other.
HEAVY = ("tests/chaos/", "tests/test_platform/", "tests/test_load.py", "test_crashes.py")


def is_heavy(name: str) -> bool:
    """Does this test, of this file, start and kill processes of its own?"""
    file = name.partition("::")[0]
    return any(part in file for part in HEAVY)


class Shares(LoadFileScheduling):  # type: ignore[misc]
    """A file stays whole, for its tests share fixtures; the heavy ones are one share, which comes first."""

    def _split_scope(self, nodeid: str) -> str:
        return "heavy" if is_heavy(nodeid) else str(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Shares:
    return Shares(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first."""
    items.sort(key=lambda item: not is_heavy(item.nodeid))


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Any:
    """Fuzzed text need not be Unicode, but a report that is sent to another process must be."""
    return _sound((yield))


def _sound(data: Any) -> Any:
    match data:
        case str():
            return data.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {_sound(key): _sound(value) for key, value in data.items()}
        case list() | tuple():
            return type(data)(map(_sound, data))
        case _:
            return data
