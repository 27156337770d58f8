"""The family of docs/family.md: installed in a copy of the tree by three shared lines, it is as the page says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "family"
FOLDERS = ("domain", "store", "providers", "activities", "workflows", "client", "workers", "gateway", "starter")
BESIDE = ("tests", "docs", "bench", "examples")
SHARED = {  # file -> what is added, after which line
    "domain/registry.py": {
        '    "systems",': '\n    "volumes",',
    },
    "workers/families.py": {
        "from workers.systems import SystemFamily": "\nfrom workers.volumes import VolumeFamily",
        "    SystemFamily,": "\n    VolumeFamily,",
    },
}
ROWS = {  # file -> what begins the rows after which one for the family belongs
    "docs/reliability.md": ("| systems | every order", "| systems | a service"),
}
MOST_LINES = 350  # of product code


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with the family in it."""
    copy = tmp_path_factory.mktemp("tree")
    ignored = shutil.ignore_patterns("*.pyc.*")  # being written; what is compiled need not be compiled again
    for folder in (*FOLDERS, *BESIDE):
        shutil.copytree(ROOT / folder, copy / folder, ignore=ignored)
    shutil.copytree(EXAMPLE, copy, dirs_exist_ok=True, ignore=ignored)
    for page in (*ROOT.glob("*.md"), ROOT / "pyproject.toml"):
        shutil.copy(page, copy)
    for name, additions in SHARED.items():
        text = (copy / name).read_text()
        for line, more in additions.items():
            assert text.count(f"{line}\n") == 1, f"{name} has no line {line!r}"
            text = text.replace(f"{line}\n", f"{line}{more}\n")
        (copy / name).write_text(text)
    return copy


def _run(tree: Path, *arguments: str, **variables: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(tree), **variables}
    ended = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=tree, env=environment, capture_output=True, text=True, timeout=300
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


def test_what_it_lacks_is_named_and_then_it_is_complete(tree: Path) -> None:
    check = ("pytest", "-n", "0", "-p", "no:cacheprovider", "tests/test_families.py")
    with pytest.raises(AssertionError) as lacking:
        _run(tree, *check)
    for words in ("has no tests/histories/volumes-*.json", "docs/reliability.md whose first column is `family`"):
        assert words in str(lacking.value), lacking.value
    _run(tree, "tests.record", "volumes")
    _run(tree, "docs.generate")
    for name, beginnings in ROWS.items():
        lines = (tree / name).read_text().splitlines(keepends=True)
        both = [[line, "| volumes | |\n"] if line.startswith(beginnings) else [line] for line in lines]
        (tree / name).write_text("".join(line for some in both for line in some))
    more = ("test_volumes", "test_layers", "test_tiers", "test_replay")
    _run(tree, *check, *(f"tests/{name}.py" for name in more))


def test_a_worker_killed_in_an_action_on_a_volume_loses_nothing(tree: Path) -> None:
    kill = ("tests/chaos/test_kill.py", "-k", "killed_at_any_step")
    _run(tree, "pytest", "-n", "0", "-p", "no:cacheprovider", *kill, RATCHET_CHAOS_FAMILY="volumes")


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
