"""A family that is added to the worker and forgotten elsewhere is named here, by the list that lacks it."""

from __future__ import annotations

from pathlib import Path

import pytest

from starter.families import FACES
from tests.chaos.families import STORIES
from tests.records import FAMILIES as RECORDED
from workers import families

ROOT = Path(__file__).resolve().parent.parent
FAMILIES = {module.__name__.rpartition(".")[2] for module in families.FAMILIES}  # type: ignore[attr-defined]
LISTS = {
    "starter/families.py": set(FACES),
    "tests/records/__init__.py": set(RECORDED) - {"kernel"},
    "tests/chaos/families/__init__.py": {story.family for story in STORIES} - {"healing"},
    "docs/": {name for name in FAMILIES if (ROOT / "docs" / f"{name}.md").exists()},
    "tests/": {name for name in FAMILIES if any((ROOT / "tests").glob(f"test_{name}*"))},
}


@pytest.mark.parametrize("where", LISTS)
def test_every_family_of_the_worker_is_in(where: str) -> None:
    assert LISTS[where] == FAMILIES, where


def test_every_family_has_a_demo() -> None:
    assert [name for name, face in FACES.items() if face.demo is None] == []
