"""The families of the worker, and the files that each must have: who forgets some is told all of them at once."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

from workers.families import FAMILIES

ROOT = Path(__file__).resolve().parent.parent
NAMES = tuple(family.name for family in FAMILIES)
# Besides its modules in the layers; those of the example are in examples/family/.
FILES_OF_FAMILY = {
    "tests/test_{family}*": "its tests; a slow file has a line in SLOW of tests/tiers.py",
    "tests/chaos/families/{family}.py": "its chaos stories: STORIES, and COVERING among them",
    "tests/records/{family}.py": "the function that records its histories",
    "tests/histories/{family}-*.json": "its histories, by: python -m tests.record {family}",
    "docs/{family}.md": "its page, then: python -m docs.generate",
}


def missing_files(family: str, root: Path = ROOT) -> list[str]:
    """The files that a family lacks, each in a sentence that says what belongs there."""
    return [
        f"family {family} has no {pattern.format(family=family)}: {what.format(family=family)}"
        for pattern, what in FILES_OF_FAMILY.items()
        if not any(root.glob(pattern.format(family=family)))
    ]


def module_of(family: str, package: str) -> ModuleType:
    """The family's module in a package of tests."""
    name = f"{package}.{family}"
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name != name:
            raise
        lacking = missing_files(family) or [f"family {family} has no {name.replace('.', '/')}.py"]
        raise LookupError("\n".join(lacking)) from missing
