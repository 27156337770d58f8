"""The providers under contract: one module for each provider of the registry. A missing one is an error."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from providers.description import CloudProvider
from tests.test_clouds.kit import Opener


def openers(providers: Iterable[CloudProvider[Any]]) -> dict[str, Opener]:
    """Every way in which each of the providers is tested, by its title: `simulated on sqlite`."""
    return {
        f"{provider.name} on {where}": opener
        for provider in providers
        for where, opener in _module(provider.name).SUBJECTS.items()
    }


def _module(name: str) -> Any:
    if find_spec(f"{__name__}.{name}") is None:
        raise LookupError(f"the provider {name} is under no contract test: write tests/test_clouds/subjects/{name}.py")
    return import_module(f"{__name__}.{name}")
