"""The family of docs/family.md: installed in a copy of the tree by four shared lines, it lives as the page says."""

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
FOLDERS = ("domain", "store", "providers", "activities", "workflows", "client", "workers", "starter")
SHARED = {  # file -> what is added, after which line
    "domain/registry.py": {
        "from __future__ import annotations\n": "\nfrom domain import volumes\n",
        '    "systems": systems.KINDS,': '\n    "volumes": volumes.KINDS,',
    },
    "workers/families.py": {
        "from workers.systems import SystemFamily": "\nfrom workers.volumes import VolumeFamily",
        "    SystemFamily,": "\n    VolumeFamily,",
    },
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with the family in it."""
    copy = tmp_path_factory.mktemp("tree")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(EXAMPLE, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "tests").mkdir()
    for name in ("__init__.py", "stack.py", "patience.py", "family_life.py"):
        shutil.copy(ROOT / "tests" / name, copy / "tests" / name)
    for name, additions in SHARED.items():
        text = (copy / name).read_text()
        for line, more in additions.items():
            assert text.count(f"{line}\n") == 1, f"{name} has no line {line!r}"
            text = text.replace(f"{line}\n", f"{line}{more}\n")
        (copy / name).write_text(text)
    return copy


def _run(tree: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
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


def test_the_page_shows_the_files_as_they_are() -> None:
    page = (ROOT / "docs" / "family.md").read_text()
    shown = dict(re.findall(r"<!-- file: (\S+) -->\n```python\n(.*?)```", page, re.DOTALL))
    assert shown, "the page shows no file"
    for name, text in shown.items():
        assert text == (EXAMPLE / name).read_text(), f"{name} on the page is not the file"


def test_the_page_names_every_shared_place() -> None:
    page = (ROOT / "docs" / "family.md").read_text()
    assert [name for name in SHARED if name not in page] == []
