"""The family of docs/family.md: installed in a copy of the tree by three shared lines, it is as the page says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.newfamily import EXAMPLE, SHARED, copy_family
from tests.family import steps
from tests.patience import PATIENCE

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("domain", "store", "providers", "activities", "workflows", "client", "workers", "gateway", "starter")
BESIDE = ("tests", "docs", "bench", "examples")
MOST_LINES = 350  # of product code
LONG = 5 * PATIENCE  # seconds of the longest command


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with the family in it."""
    copy = tmp_path_factory.mktemp("tree")
    ignored = shutil.ignore_patterns("*.pyc.*")  # being written; what is compiled need not be compiled again
    for folder in (*FOLDERS, *BESIDE):
        shutil.copytree(ROOT / folder, copy / folder, ignore=ignored)
    for page in (*ROOT.glob("*.md"), ROOT / "pyproject.toml", ROOT / "run.py"):
        shutil.copy(page, copy)
    copy_family("volumes", "volume", copy)
    return copy


def _run(tree: Path, *arguments: str, **variables: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(tree), **variables}
    ended = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=tree, env=environment, capture_output=True, text=True, timeout=LONG
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_a_volume_lives_and_survives_faults_of_its_provider(tree: Path, tmp_path: Path) -> None:
    _run(tree, "tests.family_life", str(tmp_path))


def test_the_command_line_offers_the_family(tree: Path) -> None:
    assert "--server" in _run(tree, "starter", "volume", "attach", "--help")
    assert re.search(r"attach +Available +Attaching +InUse", _run(tree, "starter", "states", "volume"))


def test_its_demo_runs_to_the_end(tree: Path, tmp_path: Path) -> None:
    told = _run(tree, "starter", "demo", "volumes", RATCHET_HOME=str(tmp_path), RATCHET_SIMULATED_LATENCY="0")
    assert [words for words in ("refused", "InUse", "What to try next") if words not in told] == []


@pytest.mark.timeout(2 * LONG)  # half the suite's rules and a killed worker: minutes on a busy machine
def test_what_it_lacks_is_named_and_then_it_is_complete(tree: Path) -> None:
    """The checks of the page, workers killed in an action on a volume included; not those of pages, which take long."""
    with pytest.raises(AssertionError) as lacking:
        _run(tree, "pytest", "-n", "0", "-p", "no:cacheprovider", "tests/test_families.py")
    assert "has no tests/histories/volumes-*.json" in str(lacking.value), lacking.value
    for words in steps("volumes"):
        _run(tree, *(word for word in words if word != "tests/test_readme.py"), RATCHET_CHAOS_FAMILY="volumes")


def test_another_name_is_everywhere_and_a_taken_one_changes_nothing(tmp_path: Path) -> None:
    for name in SHARED:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    written = {str(file.relative_to(tmp_path)): file.read_text() for file in copy_family("gadgets", "gadget", tmp_path)}
    assert "domain/gadgets/tables.py" in written
    assert [name for name, text in written.items() if "volume" in (name + text).lower()] == []
    with pytest.raises(SystemExit, match=r"nothing was written: the tree has .*choose another name"):
        copy_family("gadgets", "gadget", tmp_path)
    assert {name: (tmp_path / name).read_text() for name in written} == written


def test_it_is_not_long() -> None:
    product = [file for file in EXAMPLE.rglob("*.py") if "tests" not in file.parts]
    assert sum(len(file.read_text().splitlines()) for file in product) <= MOST_LINES


def test_the_page_shows_the_files_as_they_are() -> None:
    page = (ROOT / "docs" / "family.md").read_text()
    shown = dict(re.findall(r"<!-- file: (\S+) -->\n```python\n(.*?)```", page, re.DOTALL))
    assert shown, "the page shows no file"
    for name, text in shown.items():
        assert text == (EXAMPLE / name).read_text(), f"{name} on the page is not the file"


def test_the_page_names_every_shared_place() -> None:
    page = (ROOT / "docs" / "family.md").read_text()
    assert [name for name in SHARED if name not in page] == []
