"""Every test file is in one tier, and every part of the program has tests in the fast one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest
from tests.cases import every_case
from tests.registry import NAMES
from tests.tiers import FAST, ROOT, SLOW, is_fast

FILES = sorted((ROOT / "tests").rglob("test_*.py"))
PARTS = ("test_mci_prepare", "test_store/test_begin", "test_statetable")  # a kill, the store, pure rules


@every_case("file", FILES)
def test_every_test_file_is_in_a_tier(file: Path) -> None:
    assert is_fast(file) in (True, False)


def test_a_file_that_is_in_no_tier_is_found() -> None:
    with pytest.raises(ValueError, match="not enough values"):
        is_fast(ROOT / "tests" / "test_new" / "test_it.py")


@every_case("entry", (*FAST, *SLOW))
def test_every_name_of_a_tier_is_there_and_in_one_tier(entry: str) -> None:
    assert (ROOT / entry).exists()
    assert (*FAST, *SLOW).count(entry) == 1


@every_case("name", PARTS)
def test_every_part_of_the_program_has_tests_in_the_fast_tier(name: str) -> None:
    assert is_fast(ROOT / "tests" / f"{name}.py")


@every_case("family", NAMES)
def test_every_family_has_tests_in_the_fast_tier(family: str) -> None:
    prefix = f"tests/test_{family}"
    mine = [file for file in FILES if file.relative_to(ROOT).as_posix().startswith(prefix)]
    assert any(map(is_fast, mine)), f"of {prefix}*, one file at least belongs to FAST of tests/tiers.py"


@pytest.mark.parametrize("wanted", [True, False])
def test_the_processes_of_xdist_are_told_whether_slow_files_run(wanted: bool) -> None:
    node: Any = SimpleNamespace(config=SimpleNamespace(option=SimpleNamespace(all=wanted)), workerinput={})
    conftest.pytest_configure_node(node)
    worker: Any = SimpleNamespace(workerinput=node.workerinput, option=SimpleNamespace(all=not wanted))
    conftest.pytest_configure(worker)
    assert worker.option.all is wanted
