"""How the suite is shared out among processes: by files, the longest first; some files stay together."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

# What each of these starts takes the whole machine for a moment; many together would only wait for each other. Two
# shares, for one would go on when all others are done.
HEAVY = {
    "tests/chaos/": "killing",
    "tests/test_load.py": "killing",
    "test_crashes.py": "killing",
    "tests/test_platform/": "platform",
}
ROOT = Path(__file__).parents[1]
RECORD = Path(__file__).with_name("durations.json")
USUAL = 30  # seconds of a file that nobody has measured: it may be long, and must not come last
SLOWEST = 20  # times as long as measured: what a machine may take that is busy with other things
CLOUDS = "tests/test_clouds/"


@cache
def share_of(file: str) -> str:
    """Files that start and kill processes take turns; those that need the large store, or OpenStack, share it, for it
    takes long to make.
    """
    if heavy := [share for part, share in HEAVY.items() if part in file]:
        return heavy[0]
    if file.startswith(CLOUDS):
        return CLOUDS
    return "crowded" if "crowded: Database" in (ROOT / file).read_text() else file


class Shares(LoadFileScheduling):  # type: ignore[misc]
    """A file stays whole, for its tests share fixtures."""

    def _split_scope(self, nodeid: str) -> str:
        return share_of(_file_of(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Shares:
    return Shares(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-durations", action="store_true", help=f"write what each file takes to {RECORD.name}")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Record(config.option.record_durations))


@pytest.hookimpl(trylast=True)  # folders give their tests time before
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest first, so that nobody begins with a long one when the others are done. What takes long has more time
    than the timeout of all others: it may take much longer on a busy machine.
    """
    known = json.loads(RECORD.read_text())
    usual = float(config.getini("timeout"))
    for item in items:
        if not item.get_closest_marker("timeout"):
            more = SLOWEST * float(known.get(_file_of(item.nodeid), USUAL))
            item.add_marker(pytest.mark.timeout(usual + more))
    took = {file: float(known.get(file, USUAL)) for file in {_file_of(item.nodeid) for item in items}}
    whole = Counter[str]()
    for file, seconds in took.items():
        whole[share_of(file)] += seconds  # type: ignore[assignment]

    def place(item: pytest.Item) -> tuple[float, str, float]:
        file = _file_of(item.nodeid)
        return -whole[share_of(file)], share_of(file), -took[file]

    items.sort(key=place)


def _file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


class Record:
    """What every file took."""

    def __init__(self, write: bool) -> None:
        self._write = write
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "teardown":  # that of a process's last test is the end of all that the session shares
            self._seconds[_file_of(report.nodeid)] += report.duration  # type: ignore[assignment]

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
