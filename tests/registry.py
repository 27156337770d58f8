"""Finds the test modules that each family of the worker must have, and names a missing one."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from workers.families import FAMILIES

NAMES = tuple(family.name for family in FAMILIES)


def module_of(family: str, package: str) -> ModuleType:
    """The family's module in a package of tests."""
    name = f"{package}.{family}"
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name != name:
            raise
        raise LookupError(f"family {family} has no {name.replace('.', '/')}.py") from missing
