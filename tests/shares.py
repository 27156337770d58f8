"""How the suite is shared out among processes: by files, the longest first, and those that kill processes in a row."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

# What each of these starts takes the whole machine for a moment; together they would only wait for each other.
HEAVY = ("tests/chaos/", "tests/test_platform/", "tests/test_load.py", "test_crashes.py")
RECORD = Path(__file__).with_name("durations.json")
USUAL = 5  # seconds of a file that nobody has measured
FIRST = 10_000  # as if the heavy ones took that long: they are one share, and the longest


def is_heavy(name: str) -> bool:
    """Does this test, of this file, start and kill processes of its own?"""
    file = name.partition("::")[0]
    return any(part in file for part in HEAVY)


class Shares(LoadFileScheduling):  # type: ignore[misc]
    """A file stays whole, for its tests share fixtures; the heavy ones are one share."""

    def _split_scope(self, nodeid: str) -> str:
        return "heavy" if is_heavy(nodeid) else str(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Shares:
    return Shares(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-durations", action="store_true", help=f"write what each file takes to {RECORD.name}")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Record(config.option.record_durations))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that nobody begins with a long one when the others are done."""
    known = json.loads(RECORD.read_text())

    def seconds(item: pytest.Item) -> float:
        file = item.nodeid.partition("::")[0]
        return FIRST if is_heavy(file) else float(known.get(file, USUAL))

    items.sort(key=seconds, reverse=True)


class Record:
    """What every file took, and how many cases the tests asked that are tables."""

    def __init__(self, write: bool) -> None:
        self._write = write
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.partition("::")[0]] += report.duration  # type: ignore[assignment]

    def pytest_sessionfinish(self) -> None:
        if self._write:
            known = json.loads(RECORD.read_text()) | {file: round(took, 1) for file, took in self._seconds.items()}
            RECORD.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


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
